//! Sleeping until the device has something to do.

use std::time::{Duration, Instant};

use tagmatch_fabric::handshake::look;

use super::Ucx;

/// Time between two polls of a sleeping thread where UCX can't wake it, or while a peer is ending.
const PERIOD: Duration = Duration::from_millis(1);

impl Ucx {
    /// See [`MatchingDevice::arm`](tagmatch_device::matching::MatchingDevice::arm).
    pub(super) fn fall_asleep(&mut self) -> bool {
        look(self, Instant::now());
        self.worker.unmap_ended();
        let has_work = |ucx: &Ucx| !ucx.events.is_empty() || ucx.operations.has_ends();
        if has_work(self) || self.worker.progress() || has_work(self) {
            return false;
        }
        if self.operations.ends().faults.get() > 0 {
            return false;
        }
        let wakes = self.worker.descriptor().is_some();
        if wakes && !self.worker.arm() {
            return false;
        }
        let is_ending = !self.meeting.peers.leaving.is_empty() || !self.closing.is_empty();
        let now = Instant::now();
        let due = self.meeting.next_due().map(|due| due.saturating_duration_since(now));
        let period = (is_ending || !wakes).then_some(PERIOD);
        self.alarm.arm(due.into_iter().chain(period).min());
        true
    }

    /// See [`MatchingDevice::has_work`](tagmatch_device::matching::MatchingDevice::has_work). A
    /// thread that does not sleep also learns whether peers are ending; a sleeping thread is woken
    /// by the timer for that.
    pub(super) fn is_busy(&self) -> bool {
        let is_ending = !self.meeting.peers.leaving.is_empty() || !self.closing.is_empty();
        let has_begun = self.alarm.has_begun().unwrap_or(is_ending);
        has_begun || !self.events.is_empty() || self.operations.has_ends()
    }
}
