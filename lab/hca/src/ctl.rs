//! `tagmatch-hca ctl`: asks a device that runs for a fault.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;

use crate::{control_socket, fault};

/// Asks a tagmatch-hca that runs for a fault: of this user, and in this network namespace.
///
/// `tagmatch-hca --fault help` lists all faults.
#[derive(Debug, Parser)]
#[command(name = "tagmatch-hca ctl")]
struct CtlOptions {
    /// The process of the tagmatch-hca. It can be left out if there is only one, and by programs
    /// that run inside of one.
    #[arg(long, value_name = "PID")]
    process: Option<u32>,

    /// The fault, such as `down 500ms` or `pkey 0 0x8001`.
    #[arg(required = true, trailing_var_arg = true)]
    fault: Vec<String>,
}

/// Why no device was asked.
#[derive(Debug, thiserror::Error)]
enum CtlError {
    #[error("{0}")]
    Fault(#[from] fault::FaultError),
    #[error("no tagmatch-hca runs in this network namespace")]
    Nobody,
    #[error("several run: --process with one of {0:?}")]
    Several(Vec<u32>),
    #[error("the tagmatch-hca {0}: {1}")]
    Unreachable(u32, io::Error),
    #[error("{0}")]
    Refused(String),
}

/// The parent of a process.
fn parent(process: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok().filter(|parent| *parent != 0)
}

/// The process to ask: the one that this process runs inside of, or the only one.
fn find() -> Result<u32, CtlError> {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let found = control_socket::listening(&table);
    let ancestors = std::iter::successors(Some(std::process::id()), |of| parent(*of));
    if let Some(own) = ancestors.into_iter().find(|of| found.contains(of)) {
        return Ok(own);
    }
    match found[..] {
        [] => Err(CtlError::Nobody),
        [only] => Ok(only),
        _ => Err(CtlError::Several(found)),
    }
}

fn ask(options: &CtlOptions) -> Result<(), CtlError> {
    let text = options.fault.join(" ");
    text.parse::<fault::DeviceFault>()?;
    let process = options.process.map_or_else(find, Ok)?;
    let answer = control_socket::ask(process, &text);
    let why = answer.map_err(|error| CtlError::Unreachable(process, error))?;
    why.map_or(Ok(()), |why| Err(CtlError::Refused(why)))
}

/// Runs `tagmatch-hca ctl` with these arguments, which follow the name.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let name = OsString::from("tagmatch-hca ctl");
    let options = match CtlOptions::try_parse_from([&name].into_iter().chain(arguments)) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 125 } else { 0 });
        }
    };
    match ask(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "tagmatch-hca ctl: {error}");
            ExitCode::FAILURE
        }
    }
}
