//! A process of a run, and how it can fail.

use std::fmt::{self, Display, Formatter};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Names a process among those of all jobs of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Member {
    /// The job: 0 for the job that was launched. Jobs that processes of the run ask for count from
    /// 1.
    pub job: u32,
    /// The rank in the job.
    pub rank: u32,
}

/// The rank alone, as in `3`, in job 0; `1:3` in job 1.
impl Display for Member {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self { job: 0, rank } => write!(f, "{rank}"),
            Self { job, rank } => write!(f, "{job}:{rank}"),
        }
    }
}

/// How a process failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// It exited with a status other than 0.
    Exited(u8),
    /// It was killed by a signal.
    Killed(i32),
    /// It exited with status 0, but had joined the job and not left it.
    LeftEarly,
    /// It asked the launcher to end the job, with this status.
    Aborted(u8),
    /// The connection to its machine has ended, for this reason. The process is killed there.
    Lost(String),
    /// It broke the protocol, and was killed for that.
    Violation(String),
}

impl Failure {
    /// How a process has failed, if it has. `is_joined`: the process has joined the job and not
    /// left it.
    pub(super) fn of(status: ExitStatus, is_joined: bool) -> Option<Self> {
        match (status.code(), status.signal()) {
            (Some(0), _) => is_joined.then_some(Failure::LeftEarly),
            (Some(code), _) => Some(Failure::Exited(u8::try_from(code).unwrap_or(u8::MAX))),
            (None, signal) => Some(Failure::Killed(signal.unwrap_or(0))),
        }
    }

    /// The exit status that a shell would report for this failure.
    pub fn status(&self) -> u8 {
        match self {
            Self::Exited(status) | Self::Aborted(status) => *status,
            Self::Killed(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
            Self::LeftEarly | Self::Lost(_) | Self::Violation(_) => 1,
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited with status {status}"),
            Self::Killed(signal) => write!(f, "was killed by signal {signal}"),
            Self::LeftEarly => f.write_str("exited without leaving the job (no PMI finalize)"),
            Self::Aborted(status) => write!(f, "aborted the job with status {status}"),
            Self::Lost(why) => write!(f, "was lost: {why}"),
            Self::Violation(why) => write!(f, "was killed because it broke PMI-1: {why}"),
        }
    }
}
