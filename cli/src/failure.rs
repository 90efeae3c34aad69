//! How a run can end badly, and the exit status that says so.

use std::fmt::Display;
use std::process::ExitCode;

/// Why tagperf stops. Each is one line on standard error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Bad usage or bad input: exit status 2.
    #[error("tagperf: {0}")]
    Usage(String),
    /// Bad input that names its own file and line, ready to be clicked on: exit status 2.
    #[error("{0}")]
    Input(String),
    /// A measurement or a verification failed: exit status 1.
    #[error("tagperf: {0}")]
    Measurement(String),
    /// The user has seen enough: exit status 130, as of a shell's ^C.
    #[error("tagperf: interrupted; what was measured until then is told")]
    Interrupted,
    /// A process that was launched failed, and was told of: its exit status is ours.
    #[error("a process that was launched failed, status {0}")]
    Launched(u8),
    /// Whoever read our output has gone (`tagperf ... | head`). Nothing to say, nothing failed.
    #[error("the reader of the output has gone")]
    ReaderGone,
}

impl Failure {
    /// Prints the line and gives the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::ReaderGone => return ExitCode::SUCCESS,
            Self::Launched(status) => return ExitCode::from(*status),
            failure => {
                // Standard error may be gone as well; there is nobody left to tell.
                let _ = std::io::Write::write_all(
                    &mut std::io::stderr(),
                    format!("{}\n", one_line(failure)).as_bytes(),
                );
            }
        }
        match self {
            Self::Measurement(_) => ExitCode::from(1),
            Self::Interrupted => ExitCode::from(130),
            _ => ExitCode::from(2),
        }
    }

    /// An output, named `name`, that could not be written to.
    pub(crate) fn write(name: impl Display, error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Self::ReaderGone
        } else {
            Self::Measurement(format!("cannot write to {name}: {error}"))
        }
    }
}

/// Anything a message quotes (a file's name, a peer's words) may hold control characters; they
/// must neither break the line nor drive the terminal.
pub(crate) fn one_line(text: impl Display) -> String {
    let text = text.to_string();
    if !text.contains(char::is_control) {
        return text;
    }
    text.chars().fold(String::new(), |mut out, c| {
        if c.is_control() {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_stays_one_line() {
        assert_eq!(one_line("a\nb\u{1b}[2J\u{9b}\u{e9}"), "a\\nb\\u{1b}[2J\\u{9b}\u{e9}");
    }
}
