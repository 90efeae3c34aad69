//! Polling: ends of operations, UCX's progress, and every few polls the handshake.

use std::time::Instant;

use tagmatch_device::DownReason;
use tagmatch_device::matching::MatchingEvent;
use tagmatch_fabric::handshake::{break_with, hear, look};

use super::Ucx;

/// Polls between two looks at the sockets of the handshake, while a handshake is under way; the
/// second constant holds otherwise.
const LOOK_PERIOD_GREETING: u32 = 8;
const LOOK_PERIOD: u32 = 2048;

impl Ucx {
    /// See [`MatchingDevice::poll`](tagmatch_device::matching::MatchingDevice::poll).
    #[inline]
    pub(super) fn next_event(&mut self) -> Option<MatchingEvent> {
        if (!self.events.is_empty() || self.operations.has_ends())
            && let Some(event) = self.ready_event()
        {
            return Some(event);
        }
        let was_busy = self.worker.progress();
        self.polls = self.polls.wrapping_add(1);
        // A thread that waits polls again and again, so this way is kept short: nothing was done,
        // nothing is due.
        let is_due = self.polls.is_multiple_of(LOOK_PERIOD_GREETING);
        if !was_busy && !is_due && self.meeting.peers.leaving.is_empty() && self.closing.is_empty()
        {
            return None;
        }
        self.follow_progress(was_busy, is_due)
    }

    /// Handles the results of progress, and deadlines that have passed.
    #[inline(never)]
    fn follow_progress(&mut self, was_busy: bool, is_due: bool) -> Option<MatchingEvent> {
        if is_due && (self.polls.is_multiple_of(LOOK_PERIOD) || self.meeting.has_handshakes()) {
            look(self, Instant::now());
            self.worker.unmap_ended();
        }
        if self.operations.ends().faults.get() > 0 {
            self.take_faults();
        }
        if let Some(event) = self.ready_event() {
            return Some(event);
        }
        if self.meeting.peers.leaving.is_empty() && self.closing.is_empty() {
            return None;
        }
        self.tend_peers(was_busy);
        self.ready_event()
    }

    /// The next event that needs no progress.
    #[inline]
    fn ready_event(&mut self) -> Option<MatchingEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        while let Some(operation) = self.operations.next_end() {
            let index = operation.index();
            if let Some(event) = self.event_of(index) {
                return Some(event);
            }
        }
        None
    }

    /// Handles endpoints that have failed.
    #[cold]
    fn take_faults(&mut self) {
        self.operations.ends().faults.set(0);
        for peer in self.meeting.peers.ids() {
            let fault = self.meeting.peers.find(peer).and_then(|entry| entry.link.fault);
            // SAFETY: faults live as long as the table of operations.
            if fault.is_some_and(|fault| unsafe { fault.as_ref() }.has_failed.replace(false)) {
                // UCX may notice the peer's end before the device has read from the socket that the
                // peer leaves.
                if let Some(id) = self.meeting.peers.find(peer).and_then(|entry| entry.connection())
                {
                    hear(self, id, Instant::now());
                }
                break_with(self, peer, DownReason::Gone);
            }
        }
    }
}
