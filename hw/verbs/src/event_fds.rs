//! The event descriptor on which a thread sleeps.

use std::os::fd::{AsFd, BorrowedFd};

use tagmatch_device::{DeviceError, InCall};
use tagmatch_os::event::{Epoll, Timer};
use tagmatch_os::sleep::EventFd;

use super::context::Context;
use super::local_processes::LocalProcesses;
use super::object::Channel;

/// An epoll descriptor for all events of the device: completions, asynchronous events, the timer,
/// messages to oneself, and the ends of processes.
pub(super) struct EventFds {
    epoll: Epoll,
    pub(super) timer: Timer,
    /// Wakes the sleeping thread when another thread sends a message to oneself.
    pub(super) eventfd: EventFd,
    pub(super) is_armed: bool,
}

impl EventFds {
    pub(super) fn new(
        context: &Context,
        channel: &Channel,
        local_processes: &LocalProcesses,
    ) -> Result<Self, DeviceError> {
        let epoll = Epoll::new().in_call("epoll_create1")?;
        let timer = Timer::new().in_call("timerfd_create")?;
        let eventfd = EventFd::new().in_call("eventfd")?;
        let descriptors = [channel.fd(), context.async_fd(), timer.as_fd(), eventfd.as_fd()];
        for fd in descriptors.into_iter().chain([local_processes.as_fd()]) {
            epoll.watch(fd, 0).in_call("epoll_ctl")?;
        }
        Ok(EventFds { epoll, timer, eventfd, is_armed: false })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Makes the descriptor readable if a thread may be sleeping on it.
    pub(super) fn signal(&self) {
        if self.is_armed {
            self.eventfd.signal();
        }
    }
}
