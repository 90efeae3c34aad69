//! Failures and their exit statuses.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use tagmatch::Shortage;
use tagmatch_results::show::one_line;

/// Why tagperf stops. Each is one line on standard error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Bad usage or bad input: exit status 2.
    #[error("tagperf: {0}")]
    Usage(String),
    /// Bad input; the text begins with the file and line, so that editors find the place: exit
    /// status 2.
    #[error("{0}")]
    Input(String),
    /// A measurement or a verification failed: exit status 1.
    #[error("tagperf: {0}")]
    Measurement(String),
    /// The user has pressed ^C: exit status 130, as in a shell.
    #[error("tagperf: interrupted; rows that were measured before are printed")]
    Interrupted,
    /// A launched process failed, and its failure was printed: its exit status is ours.
    #[error("a process that was launched failed, status {0}")]
    Launched(u8),
    /// The reader of the output has gone (`tagperf ... | head`): nothing is printed, exit status 0.
    #[error("the reader of the output has gone")]
    ReaderGone,
}

impl Failure {
    /// Prints the line and gives the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        let status = match self {
            Self::ReaderGone => return ExitCode::SUCCESS,
            Self::Launched(status) => return ExitCode::from(*status),
            Self::Measurement(_) => 1,
            Self::Interrupted => 130,
            Self::Usage(_) | Self::Input(_) => 2,
        };
        let line = format!("{}\n", one_line(self));
        // Standard error may be closed as well.
        let _ = io::Write::write_all(&mut io::stderr(), line.as_bytes());
        ExitCode::from(status)
    }

    /// Bad usage: what is wrong, and what to use instead.
    pub(crate) fn usage(wrong: impl Display, instead: impl Display) -> Self {
        Self::Usage(format!("{wrong}; use {instead}"))
    }

    /// The system refused `what`.
    pub(crate) fn system(what: impl Display, error: &io::Error) -> Self {
        Self::Measurement(format!("cannot {what}: {}", with_limit(error)))
    }

    /// An output, named `name`, could not be written. The limits of connections have nothing to do
    /// with it.
    pub(crate) fn write(name: impl Display, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            io::ErrorKind::FileTooLarge => Self::system(format_args!("write to {name}"), error),
            _ => Self::Measurement(format!("cannot write to {name}: {error}")),
        }
    }
}

/// The text of an error. Where a system call failed because a limit was reached, it names the limit
/// once: errors of the libraries of this project do by themselves.
pub(crate) fn with_limit(error: &(dyn Error + 'static)) -> String {
    let text = error.to_string();
    let mut causes =
        std::iter::successors(Some(error), |&cause: &&(dyn Error + 'static)| cause.source());
    let limit = causes
        .find_map(|cause| Shortage::of_errno(cause.downcast_ref::<io::Error>()?.raw_os_error()?))
        .map(|limit| limit.to_string());
    match limit {
        Some(limit) if !text.ends_with(&limit) => format!("{text}: {limit}"),
        _ => text,
    }
}
