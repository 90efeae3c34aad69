//! The descriptor that a thread sleeps on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use tagmatch_device::{DeviceError, InCall};
use tagmatch_os::event::{Epoll, Timer};

use super::listeners::Listeners;

/// One descriptor over the handshake's sockets, UCX's own descriptor and a timer.
pub(super) struct Alarm {
    epoll: Epoll,
    pub(super) timer: Timer,
    pub(super) is_armed: bool,
    pub(super) has_begun_work: bool,
}

impl Alarm {
    pub(super) fn new(
        listeners: &Listeners,
        ucx: Option<BorrowedFd<'_>>,
    ) -> Result<Self, DeviceError> {
        let open = || -> io::Result<Alarm> {
            let (epoll, timer) = (Epoll::new()?, Timer::new()?);
            epoll.watch(listeners.descriptor(), 0)?;
            epoll.watch(timer.as_fd(), 0)?;
            if let Some(descriptor) = ucx {
                epoll.watch(descriptor, 0)?;
            }
            Ok(Alarm { epoll, timer, is_armed: false, has_begun_work: false })
        };
        open().in_call("make a descriptor to sleep on")
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Records that work was begun which the descriptor does not report.
    #[inline]
    pub(super) fn work_begun(&mut self) {
        self.has_begun_work = self.is_armed;
    }

    /// Ends the sleep.
    pub(super) fn disarm(&mut self) {
        self.timer.set(None);
        self.is_armed = false;
        self.has_begun_work = false;
    }
}
