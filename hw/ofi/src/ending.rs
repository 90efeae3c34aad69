//! How peers are flushed, and how the device ends.

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use tagmatch_device::{DownReason, Flush, PeerId};
use tagmatch_fabric::handshake::{MeetingHost, PeerState, Sent, break_with};

use super::Ofi;
use super::operations::{Canceller, Kind, Operation};

/// How long a device that is dropped makes progress until nothing is under way.
const DROP_MAX: Duration = Duration::from_secs(3);

impl Ofi {
    /// See [`MatchingDevice::flush`](tagmatch_device::matching::MatchingDevice::flush).
    pub(super) fn flush_peer(&mut self, peer: PeerId) -> Flush {
        if peer == PeerId::ONESELF || self.meeting.peers.find(peer).is_none() {
            return Flush::Done;
        }
        let is_drained = !self.is_up(peer) || self.is_drained(peer);
        let sends = self.sends_of(peer);
        let Some(entry) = self.meeting.peers.find(peer) else { return Flush::Done };
        match entry.state {
            PeerState::Down if entry.lost > 0 => Flush::Lost { messages: entry.lost },
            PeerState::Down => Flush::Done,
            // Its end tells which messages are lost.
            PeerState::Leaving { .. } | PeerState::Ending { .. }
                if entry.live > 0 || entry.lost > 0 || entry.sent == Sent::Unflushed =>
            {
                Flush::Pending { messages: sends.max(1) }
            }
            _ if sends > 0 || !is_drained || entry.sent == Sent::Unflushed => {
                Flush::Pending { messages: sends.max(1) }
            }
            _ => Flush::Done,
        }
    }

    /// See [`MatchingDevice::has_unsent`](tagmatch_device::matching::MatchingDevice::has_unsent).
    pub(super) fn holds_messages(&mut self) -> bool {
        // Every peer is asked, also after one that has messages left: so all are flushed at the
        // same time.
        let mut holds = false;
        for peer in self.meeting.peers.ids().filter(|peer| *peer != PeerId::ONESELF) {
            holds |= self.sends_of(peer) > 0 || self.is_up(peer) && !self.is_drained(peer);
        }
        // Receivers may wait for these.
        holds
            || self
                .operations
                .iter()
                .any(|operation| operation.kind == Kind::ControlOut && !operation.is_told)
    }

    /// See [`MatchingDevice::close`](tagmatch_device::matching::MatchingDevice::close).
    pub(super) fn close_all(&mut self) {
        if self.meeting.is_closed {
            return;
        }
        self.meeting.close();
        for key in self.operations.keys(|operation| operation.kind == Kind::Receive) {
            let Some(operation) = self.operations.at(key) else { continue };
            if operation.long.is_none() && operation.canceller == Canceller::Nobody {
                let token = operation.token;
                self.cancel_receive(token);
            }
        }
        for peer in self.meeting.peers.ids() {
            break_with(self, peer, DownReason::Disconnected);
        }
    }

    /// Whether nothing is left that the caller waits for.
    fn is_over(&self) -> bool {
        let is_callers = |operation: &Operation| {
            matches!(operation.kind, Kind::Send | Kind::Receive) && !operation.is_told
        };
        self.meeting.peers.leaving.is_empty() && !self.operations.iter().any(is_callers)
    }
}

impl Drop for Ofi {
    fn drop(&mut self) {
        if !self.endpoint.is_own_process() {
            // A forked child must not touch its copy of libfabric's memory.
            return;
        }
        self.close_all();
        let deadline = Instant::now() + DROP_MAX;
        while !self.is_over() && Instant::now() < deadline {
            if self.next_event().is_none() {
                std::thread::yield_now();
            }
        }
        if !self.endpoint.close() {
            // libfabric may still read or write the memory of operations under way: it is leaked.
            return;
        }
        // SAFETY: dropped once, here; nothing uses either afterwards. The endpoint is closed, so
        // libfabric has no memory of the operations any more.
        unsafe {
            ManuallyDrop::drop(&mut self.endpoint);
            ManuallyDrop::drop(&mut self.operations);
        }
    }
}
