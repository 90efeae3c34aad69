//! Arming the event descriptor, so that a thread can sleep until there is work.

use std::time::{Duration, Instant};

use super::Verbs;

impl Verbs {
    /// See [`Device::arm`](tagmatch_device::Device::arm). It needn't know which peers wait to send:
    /// room to send is made by completions (of an announcement, or of a signalled request), and
    /// every completion wakes the sleeper.
    pub(super) fn fall_asleep(&mut self) -> bool {
        let now = Instant::now();
        self.do_periodic_work(now);
        self.cq.take_events();
        let is_armed =
            !self.has_pending_work() && self.cq.request_event().is_ok() && !self.refill();
        if !is_armed || self.has_pending_work() {
            return false;
        }
        let delay = self.next_deadline().map(|at| at.saturating_duration_since(now));
        self.event_fds.timer.set(delay.map(|delay| delay.max(Duration::from_millis(1))));
        self.event_fds.is_armed = true;
        true
    }

    /// When periodic work is due even if no event comes.
    fn next_deadline(&self) -> Option<Instant> {
        let sweep = (!self.up.is_empty()).then(|| self.last_sweep + self.config.keepalive);
        let lingering = self.exposures.next_expiry(self.config.linger);
        sweep.into_iter().chain(lingering).chain(self.next_handshake_deadline()).min()
    }

    /// Whether there is work that no event announces and only a poll can do.
    pub(super) fn has_pending_work(&self) -> bool {
        self.needs_periodic_work
            || !self.events.is_empty()
            || !self.batch.is_empty()
            || !self.oneself.is_empty()
            || !self.waiting_to_read.is_empty()
            || !self.waiting_to_copy.is_empty()
            || !self.ending.is_empty()
            || self.local_processes.has_gone()
    }

    /// See [`Device::disarm`](tagmatch_device::Device::disarm).
    pub(super) fn disarm_events(&mut self) {
        if !self.event_fds.is_armed {
            return;
        }
        self.event_fds.is_armed = false;
        self.cq.take_events();
        self.event_fds.timer.set(None);
        self.event_fds.eventfd.clear();
        self.needs_periodic_work = true;
    }
}
