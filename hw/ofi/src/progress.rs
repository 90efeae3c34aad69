//! Polling: ends of operations, what has waited for libfabric, and every few polls the handshake.

use std::time::Instant;

use tagmatch_device::matching::MatchingEvent;
use tagmatch_device::slab::Key;
use tagmatch_fabric::handshake::{look, tend_leaving};
use tagmatch_ofi_sys as sys;

use super::Ofi;
use super::endpoint::Completion;
use super::operations::{Canceller, Kind};

/// Polls between two looks at the sockets of the handshake, while a handshake is under way; the
/// second constant holds otherwise.
const LOOK_PERIOD_GREETING: u32 = 8;
const LOOK_PERIOD: u32 = 1024;

impl Ofi {
    /// See [`MatchingDevice::poll`](tagmatch_device::matching::MatchingDevice::poll).
    #[inline]
    pub(super) fn next_event(&mut self) -> Option<MatchingEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let was_busy = self.advance();
        self.polls = self.polls.wrapping_add(1);
        let is_due = self.polls.is_multiple_of(LOOK_PERIOD_GREETING);
        let waits = !self.blocked.is_empty() || !self.unposted.is_empty();
        if was_busy || is_due || waits || !self.meeting.peers.leaving.is_empty() {
            self.follow_progress(was_busy, is_due);
        }
        self.events.pop_front()
    }

    /// Begins what has waited, and handles deadlines that have passed.
    #[inline(never)]
    fn follow_progress(&mut self, was_busy: bool, is_due: bool) {
        if is_due && (self.polls.is_multiple_of(LOOK_PERIOD) || self.meeting.has_handshakes()) {
            look(self, Instant::now());
        }
        if is_due && !self.rising.is_empty() {
            self.report_late(Instant::now());
        }
        self.post_waiting();
        self.launch_blocked();
        if !self.meeting.peers.leaving.is_empty() {
            tend_leaving(self, was_busy);
        }
    }

    /// Makes progress, and handles what has ended; `false` if nothing has.
    #[inline]
    pub(super) fn advance(&mut self) -> bool {
        let batch = self.endpoint.read();
        for completion in batch.iter() {
            if let Some(key) = self.operations.key_at(completion.index) {
                self.completed(key, &completion);
            }
        }
        !batch.is_empty()
    }

    /// An operation has ended.
    #[inline]
    pub(super) fn completed(&mut self, key: Key, completion: &Completion) {
        let Some(operation) = self.operations.at(key) else { return };
        operation.is_begun = false;
        if operation.is_told {
            // Nobody waits for it any more.
            if !operation.is_held() {
                self.operations.remove(key);
            }
            return;
        }
        match operation.kind {
            Kind::Send => self.head_sent(key, completion),
            Kind::Receive => self.head_received(key, completion),
            Kind::Discard => self.dropped(key, completion),
            Kind::PieceOut => self.piece_sent(key, completion),
            Kind::PieceIn => self.piece_received(key, completion),
            Kind::ControlOut => self.packet_sent(key, completion),
            Kind::ControlIn => self.control_received(key, completion),
            Kind::Look => self.looked(key, completion),
        }
    }

    /// Cancels a receive because the peer that it depends on has ended.
    pub(super) fn cancel_with_peer(&mut self, key: Key) {
        let Some((operation, context)) = self.operations.with_context(key) else { return };
        operation.canceller = Canceller::PeersEnd;
        if operation.is_begun {
            self.endpoint.cancel(false, context);
        } else if operation.long.is_none() {
            self.take_unposted(key);
            let index = key.index;
            let ended = Completion { index, errno: sys::FI_ECANCELED, ..Completion::default() };
            self.completed(key, &ended);
        }
    }
}
