//! Waiting for something to do without polling.

use std::time::{Duration, Instant};

use super::Verbs;

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
