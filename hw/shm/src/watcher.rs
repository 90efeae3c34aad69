//! The descriptors that a worker watches: its listener, its timer, sockets and processes of peers.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use tagmatch_device::{DeviceError, InCall, PeerId};
use tagmatch_os::event::{BATCH, Epoll, Timer};

/// A watched descriptor. As an epoll number: the kind in the upper half, an id in the lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    Listener,
    Timer,
    /// The socket of a pending connection, by the number that the listening side gave it.
    Pending(u32),
    Socket(PeerId),
    Process(PeerId),
    /// The eventfd that is signalled by messages to oneself.
    OwnEventFd,
    /// The socket by which peers wake this worker.
    Waker,
    /// The eventfd by which a thread says that lifelines have ended.
    Reports,
}

impl Watched {
    fn number(self) -> u64 {
        let (kind, id) = match self {
            Watched::Listener => (0, 0),
            Watched::Timer => (1, 0),
            Watched::Pending(id) => (2, id),
            Watched::Socket(peer) => (3, peer.0),
            Watched::Process(peer) => (4, peer.0),
            Watched::OwnEventFd => (5, 0),
            Watched::Waker => (6, 0),
            Watched::Reports => (7, 0),
        };
        kind << 32 | u64::from(id)
    }

    #[allow(clippy::cast_possible_truncation, reason = "takes the lower half")]
    fn from_number(number: u64) -> Option<Self> {
        let id = number as u32;
        Some(match number >> 32 {
            0 => Watched::Listener,
            1 => Watched::Timer,
            2 => Watched::Pending(id),
            3 => Watched::Socket(PeerId(id)),
            4 => Watched::Process(PeerId(id)),
            5 => Watched::OwnEventFd,
            6 => Watched::Waker,
            7 => Watched::Reports,
            _ => return None,
        })
    }
}

/// An epoll descriptor, which is the event descriptor of the device, and the timer among what it
/// watches.
pub(crate) struct Watcher {
    epoll: Epoll,
    timer: Timer,
    is_timer_set: bool,
}

impl Watcher {
    pub(crate) fn new() -> Result<Self, DeviceError> {
        let epoll = Epoll::new().in_call("epoll_create1")?;
        let timer = Timer::new().in_call("timerfd_create")?;
        let watcher = Watcher { epoll, timer, is_timer_set: false };
        watcher.watch(watcher.timer.as_fd(), Watched::Timer).in_call("epoll_ctl")?;
        Ok(watcher)
    }

    pub(crate) fn watch(&self, fd: BorrowedFd<'_>, what: Watched) -> io::Result<()> {
        self.epoll.watch(fd, what.number())
    }

    /// Stops watching a descriptor. Needed before the descriptor is closed.
    pub(crate) fn forget(&self, fd: BorrowedFd<'_>) {
        self.epoll.forget(fd);
    }

    /// Stops reporting a watched descriptor, or resumes.
    pub(crate) fn mute(&self, fd: BorrowedFd<'_>, what: Watched, muted: bool) {
        let _ = self.epoll.mute(fd, what.number(), muted);
    }

    /// The descriptors that are ready now, at most [`BATCH`] of them. Doesn't block.
    pub(crate) fn ready(&self) -> impl Iterator<Item = Watched> + use<> {
        let mut numbers = [0; BATCH];
        let count = self.epoll.ready(&mut numbers);
        numbers.into_iter().take(count).filter_map(Watched::from_number)
    }

    /// Sets the timer for a sleep; `None` for a sleep without a limit.
    pub(crate) fn set_timer(&mut self, delay: Option<Duration>) {
        if delay.is_some() || self.is_timer_set {
            self.timer.set(delay);
            self.is_timer_set = delay.is_some();
        }
    }

    /// Makes the timer unreadable after it was reported.
    pub(crate) fn clear_timer(&self) {
        self.timer.set(None);
    }
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
