//! `tagperf run`: starts processes of a command as the ranks of a job, here or on other machines.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tagmatch_launch::launcher::{self, GuardedEnd, Hosts, Launch, LaunchError, Member};
use tagmatch_results::show::one_line;

use crate::args;
use crate::failure::{Failure, with_limit};

/// How long to wait, at the end, until all failures are printed.
const TELL_TIME: Duration = Duration::from_secs(1);

/// The command. Its exit status is that of the first process that failed.
pub(crate) fn command(args: &args::Run) -> Result<(), Failure> {
    if let Some(end) = launcher::guarded().map_err(|error| refused(&error))? {
        return ended(end, true);
    }
    let launch =
        Launch::new(args.command.clone(), args.n).label(args.label).keep_going(args.keep_going);
    let (teller, is_told) = tell();
    let report = move |member: Member, failure: &launcher::Failure| {
        let line = one_line(format!("tagperf run: rank {member} {failure}")) + "\n";
        let _ = teller.send(line);
    };
    let run = launcher::run_on(&launch, hosts(args)?.as_ref(), report);
    // If this message can't be written, the exit status still tells of the failure.
    let _ = is_told.recv_timeout(TELL_TIME);
    match run {
        Ok(None) => Ok(()),
        Ok(Some((_, failure))) => Err(Failure::Launched(failure.status())),
        // As a command that a shell runs: the signal says that the reader has gone.
        Err(LaunchError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => {
            Err(Failure::Launched(128 + 13))
        }
        Err(error @ LaunchError::Output(_)) => Err(Failure::Measurement(format!("run: {error}"))),
        Err(error) => Err(refused(&error)),
    }
}

fn refused(error: &LaunchError) -> Failure {
    Failure::Usage(format!("run: {}", with_limit(error)))
}

/// Ends as the guardian did, and says so if it was killed.
fn ended(end: GuardedEnd, is_told: bool) -> Result<(), Failure> {
    match end {
        GuardedEnd::Exited(0) => Ok(()),
        GuardedEnd::Exited(status) => Err(Failure::Launched(status)),
        GuardedEnd::Killed(signal) => {
            if is_told {
                let line = format!(
                    "tagperf run: the process that runs the job was killed by signal {signal}; all \
                     processes of the job were killed\n"
                );
                let _ = std::io::stderr().write_all(line.as_bytes());
            }
            Err(Failure::Launched(u8::try_from(128 + signal).unwrap_or(1)))
        }
    }
}

/// A thread that prints lines on standard error until the sender is dropped; the receiver is
/// disconnected when all are printed. So the launcher can be ended also while nobody reads them.
fn tell() -> (Sender<String>, Receiver<()>) {
    let ((teller, lines), (telling, is_told)) = (channel::<String>(), channel());
    std::thread::spawn(move || {
        let _telling: Sender<()> = telling;
        for line in lines {
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    });
    (teller, is_told)
}

/// The helper of `run --hosts` on another machine.
pub(crate) fn help() -> Result<(), Failure> {
    let failed = |error: LaunchError| Failure::Measurement(format!("run: {}", with_limit(&error)));
    if let Some(end) = launcher::guarded().map_err(failed)? {
        return ended(end, false);
    }
    launcher::help().map_err(failed)
}

/// The machines that the command line names, if it names any.
fn hosts(args: &args::Run) -> Result<Option<Hosts>, Failure> {
    let hosts = match &args.hostfile {
        Some(path) => {
            let wrong = |why: String| Failure::Usage(format!("run --hostfile {path:?}: {why}"));
            let file = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
            launcher::parse_hosts(&file).map_err(|error| wrong(error.to_string()))?
        }
        None if args.hosts.is_empty() => {
            let is_alone = args.ppn.is_none() && args.agent.is_none();
            let why = || Failure::usage("run: --ppn and --agent are for other machines", "--hosts");
            return if is_alone { Ok(None) } else { Err(why()) };
        }
        None => args.hosts.clone(),
    };
    let program =
        std::env::current_exe().map_err(|error| Failure::system("find tagperf", &error))?;
    let agent = args.agent.as_deref();
    let agent = agent.map(|agent| agent.split_whitespace().map(OsString::from).collect::<Vec<_>>());
    if agent.as_ref().is_some_and(Vec::is_empty) {
        return Err(Failure::usage("run --agent: no command", "--agent ssh"));
    }
    let helper = [b"exec ", &*quoted(program.as_os_str().as_bytes()), b" run-here"].concat();
    let helper = OsString::from_vec(helper);
    Ok(Some(Hosts { hosts, per_host: args.ppn, agent, helper }))
}

/// A word as a shell reads it.
fn quoted(word: &[u8]) -> Vec<u8> {
    let mut out = b"'".to_vec();
    for &byte in word {
        if byte == b'\'' { out.extend(b"'\\''") } else { out.push(byte) }
    }
    out.push(b'\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_a_quoted_word_as_it_was() {
        let word = "a b'c\"$HOME\\";
        let script = [b"printf %s ", &*quoted(word.as_bytes())].concat();
        let script = OsString::from_vec(script);
        let output = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
        assert_eq!(output.stdout, word.as_bytes());
    }
}
