//! The events that the launcher's main thread handles, and the thread that makes signals events.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Instant;

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

use super::failure::Member;
use crate::spawn::request::PmiRequest;
use crate::wire::WireError;

pub(super) enum LauncherEvent {
    Request(Member, Result<PmiRequest, WireError>),
    Signal(i32),
    OutputEnded,
}

/// The next event; `None` if there is none until this time.
pub(super) fn next(
    events: &Receiver<LauncherEvent>,
    until: Option<Instant>,
) -> Option<LauncherEvent> {
    let Some(until) = until else { return events.recv().ok() };
    events.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
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
