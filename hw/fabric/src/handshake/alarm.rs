//! The descriptor that a thread sleeps on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use tagmatch_device::{DeviceError, InCall};
use tagmatch_os::event::{Epoll, Timer};

use super::meeting::Meeting;

/// One descriptor over the handshake's sockets, the descriptor of the transport below and a timer.
pub struct Alarm {
    epoll: Epoll,
    timer: Timer,
    is_armed: bool,
    has_begun_work: bool,
}

impl Alarm {
    /// `below` is the descriptor of the transport below, if it has one.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn new<L: Default>(
        meeting: &Meeting<L>,
        below: Option<BorrowedFd<'_>>,
    ) -> Result<Self, DeviceError> {
        let open = || -> io::Result<Alarm> {
            let epoll = Epoll::new()?;
            let timer = Timer::new()?;
            epoll.watch(meeting.listeners.descriptor(), 0)?;
            epoll.watch(timer.as_fd(), 0)?;
            if let Some(descriptor) = below {
                epoll.watch(descriptor, 0)?;
            }
            Ok(Alarm { epoll, timer, is_armed: false, has_begun_work: false })
        };
        open().in_call("make a descriptor to sleep on")
    }

    /// The one descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Records that work was begun which the descriptor does not report.
    #[inline]
    pub fn work_begun(&mut self) {
        self.has_begun_work = self.is_armed;
    }

    /// Ends the sleep.
    pub fn disarm(&mut self) {
        self.timer.set(None);
        self.is_armed = false;
        self.has_begun_work = false;
    }

    /// Lets the descriptor become readable after `period`, and with what it watches.
    pub fn arm(&mut self, period: Option<Duration>) {
        self.timer.set(period);
        self.is_armed = true;
        self.has_begun_work = false;
    }

    /// While a thread sleeps: whether work was begun which the descriptor does not report.
    pub fn has_begun(&self) -> Option<bool> {
        self.is_armed.then_some(self.has_begun_work)
    }
}
