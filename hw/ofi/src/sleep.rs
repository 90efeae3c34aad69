//! Sleeping until the device has something to do.

use std::time::{Duration, Instant};

use tagmatch_fabric::handshake::look;

use super::Ofi;

/// Time between two polls of a sleeping thread where libfabric can't wake it, or while something
/// waits for room in libfabric.
const PERIOD: Duration = Duration::from_millis(1);
/// The same where libfabric's descriptor may miss an event (`cxi`).
const PERIOD_RACY: Duration = Duration::from_millis(20);

impl Ofi {
    /// See [`MatchingDevice::arm`](tagmatch_device::matching::MatchingDevice::arm).
    pub(super) fn fall_asleep(&mut self) -> bool {
        look(self, Instant::now());
        self.report_late(Instant::now());
        if !self.events.is_empty() || self.advance() || !self.events.is_empty() {
            return false;
        }
        self.post_waiting();
        self.launch_blocked();
        let wakes = self.provider.wakes;
        if wakes && !self.endpoint.arm() {
            return false;
        }
        let now = Instant::now();
        let late_at = self.rising.iter().map(|(late_at, _)| *late_at);
        let due = self.meeting.next_due().into_iter().chain(late_at).min();
        let due = due.map(|due| due.saturating_duration_since(now));
        let period = if self.is_ending() || !wakes {
            Some(PERIOD)
        } else {
            self.provider.wakes_late.then_some(PERIOD_RACY)
        };
        self.alarm.arm(due.into_iter().chain(period).min());
        true
    }

    /// See [`MatchingDevice::has_work`](tagmatch_device::matching::MatchingDevice::has_work). A
    /// thread that does not sleep also learns whether something waits; a sleeping thread is woken
    /// by the timer for that.
    pub(super) fn is_busy(&self) -> bool {
        self.alarm.has_begun().unwrap_or_else(|| self.is_ending()) || !self.events.is_empty()
    }

    fn is_ending(&self) -> bool {
        let waits = !self.blocked.is_empty() || !self.unposted.is_empty();
        waits || !self.meeting.peers.leaving.is_empty()
    }
}
