//! How a peer ends, and how the device ends.

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use tagmatch_device::matching::MatchingEvent;
use tagmatch_device::{DownReason, Expected, Flush, PeerId};
use tagmatch_ucx_sys as sys;

use super::Ucx;
use super::hello::Packet;
use super::operations::{Canceller, Kind, Operation};
use super::peers::{Peer, PeerState, Sent};

/// How long messages of a peer that is gone are still received: at least the first time, then until
/// UCX finds nothing for this many polls, at most the second time.
const LINGER_MIN: Duration = Duration::from_millis(5);
const LINGER_MAX: Duration = Duration::from_millis(500);
const LINGER_POLLS: u32 = 64;
/// How long messages that were sent may take to leave this process.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// How long UCX's acknowledgements may take to leave when no message was sent. An endpoint that was
/// never used may not be connected yet, and then drains only with the peer's help.
const DRAIN_MAX_UNUSED: Duration = Duration::from_millis(10);
/// How long a device that is dropped makes progress until no operation is under way.
const DROP_MAX: Duration = Duration::from_secs(3);

impl Ucx {
    /// Begins a peer's end.
    pub(super) fn break_with(&mut self, peer: PeerId, reason: DownReason) {
        let entry = self.peers.find_mut(peer).expected("the device has numbered the peer");
        let Some(entry) = entry else { return };
        if entry.is_leaving() {
            return;
        }
        let is_in_order = reason == DownReason::Gone && entry.says_bye;
        let reason = if is_in_order { DownReason::Left } else { reason };
        let was_connected = entry.endpoint.is_some() && peer != PeerId::ONESELF;
        let (has_sent, connection) = (entry.sent != Sent::Nothing, entry.connection);
        self.peers.leaving.push(peer);
        if reason == DownReason::Disconnected {
            // Sent first: the peer may notice the end of the endpoint before the end of the
            // connection.
            self.say_bye(connection);
        }
        let now = Instant::now();
        let until = match reason {
            DownReason::Gone | DownReason::Left => now + LINGER_MIN,
            DownReason::Disconnected if has_sent => now + DRAIN_MAX,
            DownReason::Disconnected => now + DRAIN_MAX_UNUSED,
            _ => now,
        };
        if was_connected && until > now {
            self.peers.set_state(peer, PeerState::Leaving { reason, until, quiet: 0 });
        } else {
            self.cut_off(peer, reason);
        }
    }

    /// Tells a peer that this worker leaves in order, if the connection has room.
    fn say_bye(&mut self, connection: Option<u32>) {
        if let Some(connection) = connection.and_then(|id| self.connections.get_mut(&id)) {
            connection.say(Packet::Bye);
            connection.flush();
        }
    }

    /// Ends all operations that depend on a peer.
    fn cut_off(&mut self, peer: PeerId, reason: DownReason) {
        self.peers.set_state(peer, PeerState::Ending { reason });
        let entry = self.peers.find_mut(peer).expected("the device has numbered the peer");
        let Some(entry) = entry else { return };
        let endpoint = entry.endpoint.take();
        let waiting = std::mem::take(&mut entry.waiting);
        self.closing.extend(entry.draining.take());
        for index in waiting {
            self.operations.at(index).end(sys::UCS_ERR_CANCELED);
        }
        for operation in self.operations.under_way() {
            if operation.kind.get() == Kind::Receive && operation.peer.get() == Some(peer) {
                self.worker.cancel(operation, Canceller::PeersEnd);
            }
        }
        // The endpoint to oneself has no error handling; messages that were sent there are
        // discarded instead.
        if peer != PeerId::ONESELF
            && let Some(endpoint) = endpoint
        {
            self.closing.extend(self.worker.disconnect(endpoint));
        }
    }

    /// Makes progress with peers that are ending.
    #[cold]
    pub(super) fn tend_leaving(&mut self, was_busy: bool) {
        let worker = &self.worker;
        self.closing.retain(|request| !worker.has_ended(*request));
        let now = Instant::now();
        for peer in self.peers.leaving.clone() {
            self.tend_end_of(peer, was_busy, now);
        }
        let peers = &mut self.peers;
        let mut leaving = std::mem::take(&mut peers.leaving);
        leaving
            .retain(|peer| peers.find(*peer).is_some_and(|entry| entry.state != PeerState::Down));
        peers.leaving = leaving;
    }

    fn tend_end_of(&mut self, peer: PeerId, was_busy: bool, now: Instant) {
        let entry = self.peers.find_mut(peer).expected("the device has numbered the peer");
        let Some(entry) = entry else { return };
        match entry.state {
            PeerState::Leaving {
                reason: reason @ (DownReason::Gone | DownReason::Left),
                until,
                quiet,
            } => {
                let quiet = if was_busy { 0 } else { quiet + 1 };
                entry.state = PeerState::Leaving { reason, until, quiet };
                if now >= until && quiet >= LINGER_POLLS || now >= until + LINGER_MAX {
                    self.cut_off(peer, reason);
                }
            }
            PeerState::Leaving { reason, until, .. } => {
                let is_due = now >= until || self.is_drained(peer);
                if is_due {
                    self.cut_off(peer, reason);
                }
            }
            PeerState::Ending { reason } => {
                if peer == PeerId::ONESELF {
                    self.discard_own();
                }
                let is_over = self.peers.find(peer).is_some_and(|entry| entry.live == 0);
                if is_over && !self.operations.has_ends() {
                    self.end(peer, reason);
                }
            }
            _ => {}
        }
    }

    /// Whether UCX holds no message that was sent to the peer. Asked right before the endpoint is
    /// closed by force: UCX 1.13 over TCP frees a connection when the peer closes it, and goes on
    /// to write to the freed memory if writes were under way.
    fn is_drained(&mut self, peer: PeerId) -> bool {
        let Some(entry) = self.peers.find_mut(peer) else { return true };
        if entry.draining.is_some_and(|request| !self.worker.has_ended(request)) {
            return false;
        }
        let Some(endpoint) = entry.endpoint else { return true };
        entry.draining = None;
        match self.worker.flush(endpoint) {
            sys::Started::Request(request) => entry.draining = Some(request),
            sys::Started::Complete if entry.sent == Sent::Unflushed => entry.sent = Sent::Flushed,
            // The endpoint has failed: UCX sends nothing on it any more.
            sys::Started::Complete | sys::Started::Failed(_) => {}
        }
        entry.draining.is_none()
    }

    /// See [`MatchingDevice::flush`](tagmatch_device::matching::MatchingDevice::flush).
    pub(super) fn flush_peer(&mut self, peer: PeerId) -> Flush {
        let Some(entry) = self.peers.find(peer).filter(|_| peer != PeerId::ONESELF) else {
            return Flush::Done;
        };
        let Peer { state, sent, lost, live, .. } = *entry;
        // An endpoint that is asked although sends are under way flushes meanwhile.
        if state == PeerState::Up && sent == Sent::Unflushed && self.is_drained(peer) {
            let has_failed = |entry: &Peer| entry.sent == Sent::Unflushed;
            if self.peers.find(peer).is_some_and(has_failed) {
                self.break_with(peer, DownReason::Gone);
            }
        }
        let sends = if live == 0 { 0 } else { self.sends_of(peer) };
        let is_unflushed = self.peers.find(peer).is_some_and(|entry| match entry.state {
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
        for peer in self.peers.ids().filter(|peer| *peer != PeerId::ONESELF) {
            let has_sent =
                |entry: &Peer| entry.sent != Sent::Nothing && entry.state == PeerState::Up;
            if self.peers.find(peer).is_some_and(has_sent) {
                holds |= !self.is_drained(peer);
            }
        }
        holds
    }

    /// Reports a peer as down, once no operation depends on it. The connection is closed last,
    /// after UCX has closed the endpoint.
    fn end(&mut self, peer: PeerId, reason: DownReason) {
        self.peers.set_state(peer, PeerState::Down);
        let entry = self.peers.find_mut(peer).expected("the device has numbered the peer");
        let Some(entry) = entry else { return };
        // A peer that left in order takes no messages any more, so none is missed there.
        if entry.sent == Sent::Unflushed && reason != DownReason::Left {
            entry.lost = entry.lost.max(1);
        }
        if let Some(id) = entry.connection.take() {
            self.hang_up(id);
        }
        self.events.push_back(MatchingEvent::PeerDown { peer, reason });
    }

    /// Discards messages that were sent to oneself, so that their sends end.
    fn discard_own(&mut self) {
        let own = self.peers.find(PeerId::ONESELF).and_then(|entry| entry.its_number);
        let Ok(wire) = self.carrier.pattern(0, 0, own) else { return };
        while let Some(found) = self.worker.probe(wire, true) {
            self.discard(found);
        }
    }

    /// See [`MatchingDevice::close`](tagmatch_device::matching::MatchingDevice::close).
    pub(super) fn close_all(&mut self) {
        if self.is_closed {
            return;
        }
        self.is_closed = true;
        self.listeners.close();
        let pending = self.connections.iter().filter(|(_, other)| other.owner.is_none());
        for id in pending.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.hang_up(id);
        }
        for operation in self.operations.under_way() {
            if operation.kind.get() == Kind::Receive {
                self.worker.cancel(operation, Canceller::Caller);
            }
        }
        for peer in self.peers.ids() {
            self.break_with(peer, DownReason::Disconnected);
        }
    }

    /// Whether no operation is left whose memory UCX may still touch.
    fn is_over(&self) -> bool {
        self.operations.live == 0 && self.closing.is_empty() && self.peers.leaving.is_empty()
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
