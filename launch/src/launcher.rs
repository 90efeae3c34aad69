//! Starts the processes of a job on this machine, serves them PMI-1, and ends with them.
//!
//! 1. Each process gets a socket, its rank, and a process group of its own.
//! 2. What comes from anywhere is an event: a line of a process, a signal. One thread takes them in turn.
//! 3. Signals are handed on to all processes.
//! 4. A process may ask for a further job, which has ranks, keys and barriers of its own.
//! 5. A process that fails ends all jobs: the others get SIGTERM, and SIGKILL a second later; or they go on and
//!    can find out. What a process leaves in its group ends with it.
//! 6. The run ends with the last process of the last job.
//! 7. If the launcher itself is killed, the kernel kills the processes.

mod group;
mod output;
mod process;
mod run;

use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

use crate::pmi1::SIZE_MAX;
use crate::spawn::Spawn;
use crate::spawn::order::Request;
use crate::wire::WireError;
use run::Run;

/// Events that wait to be taken; whoever has more of them waits too.
const EVENTS_MAX: usize = 256;

/// What to start.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// How many processes.
    pub size: u32,
    /// Whether each line of their output begins with the [`Member`] in brackets; else it is theirs to write as it is.
    pub label: bool,
    /// Whether the others go on when a process fails.
    pub keep_going: bool,
}

/// A process among those of all jobs of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Member {
    /// Its job: 0, or that which was asked for as the first, second, ... by a process of the run.
    pub job: u32,
    /// Its rank in that.
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

/// Why a job can't be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There is nothing to start, or too much of it.
    #[error(
        "{size} processes of a command of {words} words: 1 to {SIZE_MAX} of one at least would be right"
    )]
    Nothing {
        /// How many processes.
        size: u32,
        /// Words of the command.
        words: usize,
    },
    /// The command can't be started.
    #[error("cannot start {command}: {error}")]
    Start {
        /// Its name.
        command: String,
        /// The system's word.
        error: io::Error,
    },
    /// The system has no more of what a launcher needs.
    #[error("cannot launch: {0}")]
    System(#[from] io::Error),
}

/// How a process failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// It exited with a status that isn't 0.
    Exited(u8),
    /// It was killed by a signal.
    Killed(i32),
    /// It exited with status 0, and had begun to take part in the job without leaving it.
    LeftEarly,
    /// It asked for the end of the job, with this status.
    Aborted(u8),
    /// It broke the protocol, for which it was killed.
    Violation(String),
}

impl Failure {
    /// The exit status by which a shell would tell it.
    pub fn status(&self) -> u8 {
        match self {
            Self::Exited(status) | Self::Aborted(status) => *status,
            Self::Killed(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
            Self::LeftEarly | Self::Violation(_) => 1,
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
            Self::Violation(why) => write!(f, "was killed since it broke PMI-1: {why}"),
        }
    }
}

enum Event {
    Request(Member, Result<Request, WireError>),
    Signal(i32),
    OutputEnded,
}

/// Runs a job, and those that its processes ask for, to their end; blocks. Gives the first failure and whose it was, if
/// there was one; `told` hears of each as it happens, those excepted that come of ending the jobs.
///
/// The process must have no other children that it waits for by SIGCHLD. Its handling of SIGINT, SIGTERM,
/// SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 is the job's from now on.
///
/// # Errors
/// The job can't be started; what was started of it has been killed.
pub fn run(
    launch: &Launch,
    told: impl FnMut(Member, &Failure),
) -> Result<Option<(Member, Failure)>, LaunchError> {
    let (size, words) = (launch.size, launch.command.len());
    if words == 0 || !(1..=SIZE_MAX).contains(&size) {
        return Err(LaunchError::Nothing { size, words });
    }
    let (sender, events) = sync_channel(EVENTS_MAX);
    let _watch = Watch::start(sender.clone())?;
    let mut run = Run::new(launch, sender, told);
    run.start(&Spawn { command: launch.command.clone(), size }, [])?;
    Ok(run.until_all_end(&events))
}

/// Signals of this process as events, while it lives.
struct Watch(Handle);

impl Watch {
    fn start(events: SyncSender<Event>) -> io::Result<Self> {
        let watched = [SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];
        let mut signals = Signals::new(watched)?;
        let watch = Watch(signals.handle());
        let wait = move || {
            for signal in signals.forever() {
                if events.send(Event::Signal(signal)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(wait)?;
        Ok(watch)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.close();
    }
}
