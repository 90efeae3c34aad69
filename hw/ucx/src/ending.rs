//! How peers are flushed, and how the device ends.

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use tagmatch_device::{DownReason, Flush, PeerId};
use tagmatch_fabric::handshake::{Peer, PeerState, Sent, break_with, tend_leaving};
use tagmatch_ucx_sys as sys;

use super::Ucx;
use super::link::UcxLink;
use super::operations::{Canceller, Kind, Operation};

/// How long a device that is dropped makes progress until no operation is under way.
const DROP_MAX: Duration = Duration::from_secs(3);

impl Ucx {
    /// Makes progress with peers that are ending.
    #[cold]
    pub(super) fn tend_peers(&mut self, was_busy: bool) {
        let worker = &self.worker;
        self.closing.retain(|request| !worker.has_ended(*request));
        tend_leaving(self, was_busy);
    }

    /// Whether UCX holds no message that was sent to the peer. Asked right before the endpoint is
    /// closed by force: UCX 1.13 over TCP frees a connection when the peer closes it, and goes on
    /// to write to the freed memory if writes were under way.
    pub(super) fn drain(&mut self, peer: PeerId) -> bool {
        let Some(entry) = self.meeting.peers.find_mut(peer) else { return true };
        if entry.link.draining.is_some_and(|request| !self.worker.has_ended(request)) {
            return false;
        }
        let Some(endpoint) = entry.link.endpoint else { return true };
        entry.link.draining = None;
        match self.worker.flush(endpoint) {
            sys::Started::Request(request) => entry.link.draining = Some(request),
            sys::Started::Complete if entry.sent == Sent::Unflushed => entry.sent = Sent::Flushed,
            // The endpoint has failed: UCX sends nothing on it any more.
            sys::Started::Complete | sys::Started::Failed(_) => {}
        }
        entry.link.draining.is_none()
    }

    /// See [`MatchingDevice::flush`](tagmatch_device::matching::MatchingDevice::flush).
    pub(super) fn flush_peer(&mut self, peer: PeerId) -> Flush {
        let Some(entry) = self.meeting.peers.find(peer).filter(|_| peer != PeerId::ONESELF) else {
            return Flush::Done;
        };
        let Peer { state, sent, lost, live, .. } = *entry;
        // An endpoint that is asked although sends are under way flushes meanwhile.
        if state == PeerState::Up && sent == Sent::Unflushed && self.drain(peer) {
            let has_failed = |entry: &Peer<UcxLink>| entry.sent == Sent::Unflushed;
            if self.meeting.peers.find(peer).is_some_and(has_failed) {
                break_with(self, peer, DownReason::Gone);
            }
        }
        let sends = if live == 0 { 0 } else { self.sends_of(peer) };
        let is_unflushed = self.meeting.peers.find(peer).is_some_and(|entry| match entry.state {
            PeerState::Down => false,
            // Its end tells which messages are lost.
            PeerState::Leaving { .. } | PeerState::Ending { .. } if live > 0 || lost > 0 => true,
            _ => entry.sent == Sent::Unflushed,
        });
        match state {
            PeerState::Down if lost > 0 => Flush::Lost { messages: lost },
            _ if is_unflushed || sends > 0 => Flush::Pending { messages: sends.max(1) },
            _ => Flush::Done,
        }
    }

    /// Sends to a peer whose ends were not reported.
    fn sends_of(&self, peer: PeerId) -> usize {
        let is_send = |operation: &&Operation| {
            operation.kind.get() == Kind::Send && operation.peer.get() == Some(peer)
        };
        self.operations.used().filter(is_send).count()
    }

    /// See [`MatchingDevice::has_unsent`](tagmatch_device::matching::MatchingDevice::has_unsent).
    pub(super) fn holds_messages(&mut self) -> bool {
        let is_send = |operation: &Operation| {
            operation.kind.get() == Kind::Send && operation.peer.get() != Some(PeerId::ONESELF)
        };
        if self.operations.under_way().any(is_send) {
            return true;
        }
        // Every endpoint is asked, also after one that has messages left: so all of them are
        // flushed at the same time.
        let mut holds = false;
        for peer in self.meeting.peers.ids().filter(|peer| *peer != PeerId::ONESELF) {
            let has_sent =
                |entry: &Peer<UcxLink>| entry.sent != Sent::Nothing && entry.state == PeerState::Up;
            if self.meeting.peers.find(peer).is_some_and(has_sent) {
                holds |= !self.drain(peer);
            }
        }
        holds
    }

    /// Discards messages that were sent to oneself, so that their sends end.
    pub(super) fn discard_own(&mut self) {
        let own = self.meeting.peers.find(PeerId::ONESELF).and_then(|entry| entry.its_number);
        let Ok(wire) = self.carrier.pattern(0, 0, own) else { return };
        while let Some(found) = self.worker.probe(wire, true) {
            self.discard(found);
        }
    }

    /// See [`MatchingDevice::close`](tagmatch_device::matching::MatchingDevice::close).
    pub(super) fn close_all(&mut self) {
        if self.meeting.is_closed {
            return;
        }
        self.meeting.close();
        for operation in self.operations.under_way() {
            if operation.kind.get() == Kind::Receive {
                self.worker.cancel(operation, Canceller::Caller);
            }
        }
        for peer in self.meeting.peers.ids() {
            break_with(self, peer, DownReason::Disconnected);
        }
    }

    /// Whether no operation is left whose memory UCX may still touch.
    fn is_over(&self) -> bool {
        self.operations.live == 0
            && self.closing.is_empty()
            && self.meeting.peers.leaving.is_empty()
    }
}

impl Drop for Ucx {
    fn drop(&mut self) {
        if !self.worker.is_own_process() {
            // A forked child must not touch its copy of UCX's memory.
            return;
        }
        self.close_all();
        for found in std::mem::take(&mut self.held).into_entries() {
            self.discard(found);
        }
        let deadline = Instant::now() + DROP_MAX;
        while !self.is_over() && Instant::now() < deadline {
            if self.next_event().is_none() {
                std::thread::yield_now();
            }
        }
        if !self.is_over() {
            // UCX may still read or write the memory of operations under way: worker and operations
            // are leaked.
            return;
        }
        // SAFETY: dropped once, here; nothing uses either afterwards. The worker goes first, for it
        // has pointers into the table.
        unsafe {
            ManuallyDrop::drop(&mut self.worker);
            ManuallyDrop::drop(&mut self.operations);
        }
    }
}
