//! Starts the processes of a job on this machine, serves them PMI-1, and ends with them.
//!
//! 1. Each process gets a socket, its rank, and a process group of its own.
//! 2. What comes from anywhere is an event: a line of a process, a signal. One thread takes them in turn.
//! 3. Signals are handed on to all processes.
//! 4. A process that fails ends the job: the others get SIGTERM, and SIGKILL a second later; or they go on and
//!    can find out. What a process leaves in its group ends with it.
//! 5. If the launcher itself is killed, the kernel kills the processes.

mod output;
mod process;

use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

use crate::pmi1::SIZE_MAX;
use crate::server::{Heard, Reply, Server};
use crate::wire::{Line, WireError};
use output::Outputs;
use process::Process;

/// Between SIGTERM and SIGKILL.
const GRACE_TIME: Duration = Duration::from_secs(1);
/// One ^C may come twice, to the process and to its group, as timeout(1) sends it; a later one is meant.
const SAME_TIME: Duration = Duration::from_millis(500);
/// How long output is waited for that someone outside of the job's process groups holds open.
const OUTPUT_TIME: Duration = Duration::from_secs(1);
/// Events that wait to be taken; whoever has more of them waits too.
const EVENTS_MAX: usize = 256;

/// What to start.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// How many processes.
    pub size: u32,
    /// Whether each line of their output begins with the rank; else it is theirs to write as it is.
    pub label: bool,
    /// Whether the others go on when a process fails.
    pub keep_going: bool,
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
    Line(u32, Result<Line, WireError>),
    Signal(i32),
    OutputEnded,
}

/// Runs a job to its end; blocks. Gives the first failure and its rank, if there was one; `told` hears of each as
/// it happens, those excepted that come of ending the job.
///
/// The process must have no other children that it waits for by SIGCHLD. Its handling of SIGINT, SIGTERM,
/// SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 is the job's from now on.
///
/// # Errors
/// The job can't be started; what was started of it has been killed.
pub fn run(
    launch: &Launch,
    told: impl FnMut(u32, &Failure),
) -> Result<Option<(u32, Failure)>, LaunchError> {
    let (size, words) = (launch.size, launch.command.len());
    if words == 0 || !(1..=SIZE_MAX).contains(&size) {
        return Err(LaunchError::Nothing { size, words });
    }
    let (sender, events) = sync_channel(EVENTS_MAX);
    let _watch = Watch::start(sender.clone())?;
    let mut job = Job {
        server: Server::new(size, &format!("kvs_{}", std::process::id())),
        processes: Vec::new(),
        outputs: Outputs::default(),
        keep_going: launch.keep_going,
        first: None,
        kill_at: None,
        interrupted: None,
        told,
    };
    for rank in 0..size {
        let mut process = Process::start(launch, rank)?;
        if launch.label {
            job.outputs.begin(rank, &mut process, &sender)?;
        }
        job.processes.push(process);
        job.processes[rank as usize].listen(rank, &sender)?;
    }
    job.run(&events);
    Ok(job.first)
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

struct Job<F> {
    server: Server,
    processes: Vec<Process>,
    outputs: Outputs,
    keep_going: bool,
    first: Option<(u32, Failure)>,
    /// When those that are still there get SIGKILL: the job is being ended.
    kill_at: Option<Instant>,
    /// When the user first asked for the end.
    interrupted: Option<Instant>,
    told: F,
}

impl<F: FnMut(u32, &Failure)> Job<F> {
    fn run(&mut self, events: &Receiver<Event>) {
        while !self.processes.iter().all(Process::is_over) {
            match next(events, self.kill_at) {
                Some(event) => self.take(event),
                None => {
                    self.signal_all(Signal::KILL);
                    self.kill_at = Some(Instant::now() + GRACE_TIME);
                }
            }
        }
        let until = Some(Instant::now() + OUTPUT_TIME);
        while !self.outputs.are_over() {
            match next(events, until) {
                Some(Event::OutputEnded) => self.outputs.ended(),
                Some(_) => {}
                None => return,
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Line(rank, Ok(line)) => match self.server.hear(rank, &line) {
                Ok(Heard::Replies(replies)) => self.send(replies),
                Ok(Heard::Abort(status)) => {
                    self.fail(rank, Failure::Aborted(status));
                    self.end();
                }
                Err(violation) => self.violated(rank, violation.to_string()),
            },
            Event::Line(rank, Err(error)) => {
                // An end of the connection is none of the process: of that the kernel tells.
                if !matches!(error, WireError::Closed | WireError::Broken(_)) {
                    self.violated(rank, error.to_string());
                }
                self.processes[rank as usize].silenced();
                self.reap();
            }
            Event::Signal(SIGCHLD) => self.reap(),
            Event::Signal(signal) => self.hand_on(signal),
            Event::OutputEnded => self.outputs.ended(),
        }
    }

    fn send(&mut self, replies: Vec<Reply>) {
        for Reply { to, line } in replies {
            // One that doesn't read its answers doesn't get them.
            self.processes[to as usize].say(&line);
        }
    }

    fn violated(&mut self, rank: u32, why: String) {
        if !self.processes[rank as usize].is_over() {
            self.fail(rank, Failure::Violation(why));
            self.processes[rank as usize].signal(Signal::KILL);
        }
    }

    /// Looks who has ended.
    fn reap(&mut self) {
        for rank in 0..self.processes.len() {
            let Some(status) = self.processes[rank].ended() else { continue };
            let rank = u32::try_from(rank).unwrap_or(u32::MAX);
            let failure = match (status.code(), process::signal_of(status)) {
                (Some(0), _) if self.server.takes_part(rank) => Some(Failure::LeftEarly),
                (Some(0), _) => None,
                (Some(code), _) => Some(Failure::Exited(u8::try_from(code).unwrap_or(u8::MAX))),
                (None, signal) => Some(Failure::Killed(signal.unwrap_or(0))),
            };
            let replies = self.server.ended(rank, failure.is_some());
            self.send(replies);
            if let Some(failure) = failure {
                self.fail(rank, failure);
            }
        }
    }

    fn fail(&mut self, rank: u32, failure: Failure) {
        if self.kill_at.is_some() {
            return;
        }
        (self.told)(rank, &failure);
        self.first.get_or_insert((rank, failure));
        if !self.keep_going {
            self.end();
        }
    }

    fn end(&mut self) {
        if self.kill_at.is_none() {
            self.kill_at = Some(Instant::now() + GRACE_TIME);
            self.signal_all(Signal::TERM);
        }
    }

    fn hand_on(&mut self, signal: i32) {
        let asks_for_the_end = matches!(signal, SIGINT | SIGTERM | SIGHUP);
        if asks_for_the_end
            && self.interrupted.get_or_insert_with(Instant::now).elapsed() > SAME_TIME
        {
            self.signal_all(Signal::KILL);
        } else if let Some(signal) = Signal::from_named_raw(signal) {
            self.signal_all(signal);
        }
    }

    fn signal_all(&self, signal: Signal) {
        for process in &self.processes {
            process.signal(signal);
        }
    }
}

/// The next event; `None` if it doesn't come in time.
fn next(events: &Receiver<Event>, until: Option<Instant>) -> Option<Event> {
    let Some(until) = until else { return events.recv().ok() };
    events.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
}
