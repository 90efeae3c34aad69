//! The events that the launcher's main thread handles, and the thread that makes signals events.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Instant;

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

use super::failure::Member;
use super::frame::ToHelper;

pub(super) enum LauncherEvent {
    /// The bytes of a process's request. If they are no request, the connection has ended.
    Request(Member, Vec<u8>),
    Signal(i32),
    OutputEnded,
    /// Standard output can't be written.
    OutputFailed(io::Error),
    /// The helper on the machine with this number has started its part of a job, or can't.
    Started(usize, u32, Option<String>),
    /// A request of a process on this machine.
    RemoteRequest(usize, Member, Vec<u8>),
    /// A process on this machine has ended, with this status.
    Ended(usize, Member, i32),
    /// Nothing more comes from this machine, for this reason if it is known.
    HostLost(usize, Option<String>),
    /// In a helper: a frame of the launcher.
    Frame(ToHelper),
    /// In a helper: the launcher has closed the connection.
    Closed,
}

/// The next event; `None` if there is none until this time.
pub(super) fn next(
    events: &Receiver<LauncherEvent>,
    until: Option<Instant>,
) -> Option<LauncherEvent> {
    let Some(until) = until else { return events.recv().ok() };
    events.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
}

/// Whether this signal asks a process to end.
pub(super) fn is_request_to_end(signal: i32) -> bool {
    matches!(signal, SIGINT | SIGTERM | SIGHUP)
}

/// Sends the signals of this process as events, until it is dropped.
pub(super) struct SignalWatch(Handle);

impl SignalWatch {
    pub(super) fn start(events: SyncSender<LauncherEvent>) -> io::Result<Self> {
        let watched = [SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];
        let mut signals = Signals::new(watched)?;
        let watch = SignalWatch(signals.handle());
        let wait = move || {
            for signal in signals.forever() {
                if events.send(LauncherEvent::Signal(signal)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(wait)?;
        Ok(watch)
    }
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        self.0.close();
    }
}
