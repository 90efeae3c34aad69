//! The descriptor that a thread sleeps on.

use std::os::fd::{AsFd, BorrowedFd};

use tagmatch_device::DeviceError;
use tagmatch_os::event::{Epoll, Timer};
use tagmatch_os::sleep::EventFd;

use super::context::Context;
use super::object::Channel;

/// One descriptor for all that can happen.
pub(super) struct Alarm {
    epoll: Epoll,
    pub(super) timer: Timer,
    /// Wakes us when one thread sends to oneself while another sleeps.
    pub(super) eventfd: EventFd,
    pub(super) is_armed: bool,
}

impl Alarm {
    pub(super) fn new(context: &Context, channel: &Channel) -> Result<Self, DeviceError> {
        let epoll = Epoll::new().map_err(DeviceError::system("epoll_create1", ""))?;
        let timer = Timer::new().map_err(DeviceError::system("timerfd_create", ""))?;
        let eventfd = EventFd::new().map_err(DeviceError::system("eventfd", ""))?;
        let descriptors = [channel.fd(), context.async_fd(), timer.as_fd(), eventfd.as_fd()];
        for fd in descriptors {
            epoll.watch(fd, 0).map_err(DeviceError::system("epoll_ctl", ""))?;
        }
        Ok(Alarm { epoll, timer, eventfd, is_armed: false })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Makes the descriptor readable if someone sleeps on it.
    pub(super) fn signal(&self) {
        if self.is_armed {
            self.eventfd.signal();
        }
    }
}
