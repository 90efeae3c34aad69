//! The process that becomes the program.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::namespace::{self, NamespaceError};
use crate::seccomp::{self, FilterError};
use crate::settings::Settings;
use crate::wire::{Notice, Wire};

/// Why a program does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The devices can't be shown to it.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// Its calls can't be answered.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// It can't be executed.
    #[error("{program}: {why}")]
    Execute {
        /// The program.
        program: String,
        /// Why.
        why: io::Error,
    },
    /// The device has ended.
    #[error("the device has ended: {0}")]
    Device(io::Error),
}

impl StartError {
    /// The exit status, as of env(1): 126 and 127 are of the program.
    pub(crate) fn exit_status(&self) -> i32 {
        match self {
            StartError::Execute { why, .. } if why.kind() == io::ErrorKind::NotFound => 127,
            StartError::Execute { .. } => 126,
            _ => 125,
        }
    }
}

/// Becomes the program, which sees the devices. Returns only if that is not possible.
pub(crate) fn become_program(
    device: &Wire,
    settings: &Settings,
    is_killable: bool,
    program: &[OsString],
) -> StartError {
    match prepare(device, settings, is_killable) {
        Ok(()) => {}
        Err(error) => return error,
    }
    let Some((name, arguments)) = program.split_first() else {
        return StartError::Device(io::ErrorKind::InvalidInput.into());
    };
    let why = Command::new(name).args(arguments).exec();
    StartError::Execute { program: name.to_string_lossy().into_owned(), why }
}

fn prepare(device: &Wire, settings: &Settings, is_killable: bool) -> Result<(), StartError> {
    let listener = seccomp::install(is_killable)?;
    namespace::enter(settings)?;
    let notice = Notice::Listener(std::process::id().into());
    device.say(notice, Some(std::os::fd::AsFd::as_fd(&listener))).map_err(StartError::Device)?;
    match device.hear() {
        Ok(Some((Notice::Go, _))) => Ok(()),
        Ok(_) => Err(StartError::Device(io::ErrorKind::UnexpectedEof.into())),
        Err(error) => Err(StartError::Device(error)),
    }
}
