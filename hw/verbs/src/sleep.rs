//! Waiting for something to do without polling.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::Verbs;
use super::context::Context;
use super::object::Channel;
use tagmatch_device::DeviceError;
use tagmatch_os::event::{Epoll, Timer};
use tagmatch_os::sleep::EventFd;

/// One descriptor for all that can happen.
pub(super) struct Alarm {
    epoll: Epoll,
    timer: Timer,
    /// Wakes us when one thread sends to oneself while another sleeps.
    eventfd: EventFd,
    is_armed: bool,
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

impl Verbs {
    /// See [`Device::arm`](tagmatch_device::Device::arm). Room to send is made by completions: an announcement's, or
    /// that of a request, of which one in a few is signalled.
    pub(super) fn fall_asleep(&mut self) -> bool {
        let now = Instant::now();
        self.look(now);
        self.cq.take_events();
        let is_armed = !self.has_news() && self.cq.request_event().is_ok() && !self.refill();
        if !is_armed || self.has_news() {
            return false;
        }
        let delay = self.next_deadline().map(|at| at.saturating_duration_since(now));
        self.alarm.timer.set(delay.map(|delay| delay.max(Duration::from_millis(1))));
        self.alarm.is_armed = true;
        true
    }

    /// When something is to be done though nothing comes.
    fn next_deadline(&self) -> Option<Instant> {
        let sweep = (!self.up.is_empty()).then(|| self.last_sweep + self.config.keepalive);
        let lingering = self.exposures.next_due(self.config.linger);
        sweep.into_iter().chain(lingering).chain(self.next_greeting()).min()
    }

    /// Whether there is something that only our own polling can bring on.
    pub(super) fn has_news(&self) -> bool {
        self.needs_look
            || !self.events.is_empty()
            || !self.batch.is_empty()
            || !self.oneself.is_empty()
            || !self.waiting.is_empty()
            || !self.ending.is_empty()
    }

    /// See [`Device::disarm`](tagmatch_device::Device::disarm).
    pub(super) fn wake_up(&mut self) {
        if !self.alarm.is_armed {
            return;
        }
        self.alarm.is_armed = false;
        self.cq.take_events();
        self.alarm.timer.set(None);
        self.alarm.eventfd.clear();
        self.needs_look = true;
    }
}
