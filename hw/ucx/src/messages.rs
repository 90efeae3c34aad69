//! Sends, receives, probes.

use tagmatch_device::matching::{
    CompleteWhen, Envelope, HeldId, MatchingEvent, OperationError, TagPattern, TagSend, Unfit,
};
use tagmatch_device::slab::Key;
use tagmatch_device::{Buffer, DownReason, PeerId};
use tagmatch_fabric::handshake::{PeerState, Sent, break_with, come_up};
use tagmatch_ucx_sys as sys;

use super::Ucx;
use super::operations::{Canceller, Index, Kind};
use super::worker::Found;

/// Messages of unknown senders that one probe discards at most.
const STRAY_MAX: usize = 64;

impl Ucx {
    /// See [`MatchingDevice::send`](tagmatch_device::matching::MatchingDevice::send).
    #[inline]
    pub(super) fn send_message(
        &mut self,
        message: TagSend,
    ) -> Result<Option<Buffer>, (Buffer, Unfit)> {
        let TagSend { peer, tag, immediate, buffer, complete_when, token } = message;
        if complete_when == CompleteWhen::Delivered {
            return Err((buffer, NOT_DELIVERED));
        }
        if let Err(unfit) = self.check_send(peer, tag, immediate) {
            return Err((buffer, unfit));
        }
        let operation = self.operations.take(Kind::Send, Some(peer), token, buffer);
        let operation = operation.map_err(|buffer| (buffer, Unfit::Exhausted))?;
        operation.tag.set(tag);
        operation.immediate.set(immediate);
        operation.is_synchronous.set(complete_when == CompleteWhen::Matched);
        let index = operation.index();
        self.launch(peer, index)
    }

    fn check_send(&self, peer: PeerId, tag: u64, immediate: Option<u32>) -> Result<(), Unfit> {
        match self.meeting.peers.find(peer) {
            None => Err(Unfit::NoSuchPeer),
            Some(peer) if peer.is_leaving() => Err(Unfit::Down),
            Some(_) => self.carrier.check_send(tag, immediate),
        }
    }

    /// Begins a send, or lets it wait until its peer is up. Returns the buffer if the send is
    /// complete.
    fn launch(&mut self, peer: PeerId, index: Index) -> Result<Option<Buffer>, (Buffer, Unfit)> {
        let Some(entry) = self.meeting.peers.find_mut(peer) else { return Ok(None) };
        entry.live += 1;
        entry.sent = Sent::Unflushed;
        if !matches!(entry.state, PeerState::Up) || !entry.link.waiting.is_empty() {
            entry.link.waiting.push_back(index);
            return Ok(None);
        }
        match self.start(peer, index) {
            sys::Started::Request(_) => Ok(None),
            sys::Started::Complete => Ok(Some(self.retire(index))),
            sys::Started::Failed(sys::UCS_ERR_NO_MEMORY) => {
                Err((self.retire(index), Unfit::Exhausted))
            }
            sys::Started::Failed(status) => {
                self.operations.at(index).end(status);
                break_with(self, peer, DownReason::Gone);
                Ok(None)
            }
        }
    }

    /// Passes a send to UCX.
    #[inline]
    fn start(&self, peer: PeerId, index: Index) -> sys::Started {
        let operation = self.operations.at(index);
        let Some((endpoint, number)) = self
            .meeting
            .peers
            .find(peer)
            .and_then(|peer| Some((peer.link.endpoint?, peer.our_number)))
        else {
            return sys::Started::Failed(sys::UCS_ERR_NOT_CONNECTED);
        };
        let wire = self.carrier.send(operation.tag.get(), operation.immediate.get(), number);
        operation.tag.set(wire);
        self.worker.send(endpoint, operation)
    }

    /// Takes back the buffer and the slot of an operation that UCX does not have any more.
    #[inline]
    fn retire(&mut self, index: Index) -> Buffer {
        let operation = self.operations.at(index);
        self.worker.free(operation);
        let buffer = operation.buffer.take();
        if let Some(peer) = operation.peer.get().and_then(|peer| self.meeting.peers.find_mut(peer))
        {
            peer.live -= 1;
        }
        self.operations.release(index);
        buffer
    }

    /// Begins the sends that have waited for a peer to be up.
    pub(super) fn launch_those_waiting(&mut self, peer: PeerId) {
        while let Some(index) =
            self.meeting.peers.find_mut(peer).and_then(|peer| peer.link.waiting.pop_front())
        {
            match self.start(peer, index) {
                sys::Started::Request(_) => {}
                sys::Started::Complete => self.operations.at(index).end(sys::UCS_OK),
                sys::Started::Failed(status) => self.operations.at(index).end(status),
            }
        }
    }

    /// See [`MatchingDevice::inject`](tagmatch_device::matching::MatchingDevice::inject).
    pub(super) fn inject_message(
        &mut self,
        peer: PeerId,
        tag: u64,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> Result<bool, Unfit> {
        self.check_send(peer, tag, immediate)?;
        if let Some(entry) = self.meeting.peers.find_mut(peer)
            && matches!(entry.state, PeerState::Up)
            && entry.link.waiting.is_empty()
            && let Some(endpoint) = entry.link.endpoint
        {
            entry.sent = Sent::Unflushed;
            let wire = self.carrier.send(tag, immediate, entry.our_number);
            return Ok(self.worker.inject(endpoint, wire, payload));
        }
        Ok(false)
    }

    /// Tag and mask on the wire for a pattern.
    #[inline]
    fn wire_pattern(&self, pattern: TagPattern) -> Result<(u64, u64), Unfit> {
        let number = match pattern.source {
            None => None,
            Some(peer) => {
                let peer = self.meeting.peers.find(peer).ok_or(Unfit::NoSuchPeer)?;
                Some(peer.its_number.ok_or(NOT_NUMBERED)?)
            }
        };
        self.carrier.pattern(pattern.tag, pattern.mask, number)
    }

    /// See [`MatchingDevice::receive`](tagmatch_device::matching::MatchingDevice::receive).
    #[inline]
    pub(super) fn post_receive(
        &mut self,
        pattern: TagPattern,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, Unfit)> {
        if !buffer.is_writable() {
            return Err((buffer, Unfit::ReadOnly));
        }
        let wire = match self.wire_pattern(pattern) {
            Ok(wire) => wire,
            Err(unfit) => return Err((buffer, unfit)),
        };
        let source = pattern.source;
        let is_down =
            source.and_then(|s| self.meeting.peers.find(s)).is_some_and(|p| p.is_leaving());
        // Messages of the peer that are complete can still be received.
        if self.meeting.is_closed || is_down && self.worker.probe(wire, false).is_none() {
            return Err((buffer, Unfit::Down));
        }
        let operation = self.operations.take(Kind::Receive, source, token, buffer);
        let operation = operation.map_err(|buffer| (buffer, Unfit::Exhausted))?;
        let started = self.worker.receive(operation, wire);
        let index = operation.index();
        self.posted(index, started)
    }

    /// Records a receive that UCX has accepted, or takes it back if UCX refused.
    #[inline]
    fn posted(&mut self, index: Index, started: sys::Started) -> Result<(), (Buffer, Unfit)> {
        let operation = self.operations.at(index);
        if let Some(peer) = operation.peer.get().and_then(|peer| self.meeting.peers.find_mut(peer))
        {
            peer.live += 1;
        }
        if let sys::Started::Failed(_) = started {
            return Err((self.retire(index), Unfit::Exhausted));
        }
        self.tokens.insert(operation.token.get(), index);
        Ok(())
    }

    /// See [`MatchingDevice::cancel`](tagmatch_device::matching::MatchingDevice::cancel).
    pub(super) fn cancel_receive(&mut self, token: u64) -> bool {
        let Some(index) = self.tokens.get(&token) else { return false };
        let operation = self.operations.at(*index);
        self.worker.cancel(operation, Canceller::Caller);
        operation.has_ended.get()
            && operation.cancelled_by.get() == Canceller::Caller
            && operation.status.get() == sys::UCS_ERR_CANCELED
    }

    /// The oldest unexpected message that matches, of a peer that was reported as up.
    pub(super) fn look_for(
        &mut self,
        pattern: TagPattern,
        takes: bool,
    ) -> Result<Option<(Found, Envelope)>, Unfit> {
        let wire = self.wire_pattern(pattern)?;
        for _ in 0..STRAY_MAX {
            // A message of a peer that was not reported as up yet is not found yet.
            let is_taken = takes && self.meeting.peers.unconfirmed == 0;
            let Some(found) = self.worker.probe(wire, is_taken) else { return Ok(None) };
            // A second probe finds the same message: UCX made no progress between the two.
            let take = || if is_taken { Some(found) } else { self.worker.probe(wire, true) };
            let Some(envelope) = self.envelope(found.tag, found.length) else {
                // The sender is not known, so the message can't be reported: it is discarded.
                if let Some(found) = take() {
                    self.discard(found);
                }
                continue;
            };
            if self.meeting.is_up_unreported(envelope.source) {
                come_up(self, envelope.source);
                return Ok(None);
            }
            let found = if takes { take() } else { Some(found) };
            return Ok(found.map(|found| (found, envelope)));
        }
        Ok(None)
    }

    /// The envelope of a message from its tag on the wire; `None` if no peer has the source number.
    #[inline]
    pub(super) fn envelope(&self, wire: u64, length: usize) -> Option<Envelope> {
        let carried = self.carrier.read(wire);
        let source = self.meeting.peers.of_number(carried.number)?;
        let (tag, immediate) = (carried.tag, carried.immediate);
        Some(Envelope { source, tag, length: length as u64, immediate })
    }

    /// See
    /// [`MatchingDevice::receive_held`](tagmatch_device::matching::MatchingDevice::receive_held).
    pub(super) fn take_held(
        &mut self,
        message: HeldId,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, Unfit)> {
        if !buffer.is_writable() {
            return Err((buffer, Unfit::ReadOnly));
        }
        let Some(found) = self.held.get(Key::from_bits(message.0)).copied() else {
            return Err((buffer, Unfit::NoSuchMessage));
        };
        let operation = self.operations.take(Kind::Receive, None, token, buffer);
        let operation = operation.map_err(|buffer| (buffer, Unfit::Exhausted))?;
        let started = self.worker.receive_taken(operation, found.message);
        let index = operation.index();
        self.posted(index, started)?;
        self.held.remove(Key::from_bits(message.0));
        Ok(())
    }

    /// Receives a message without keeping its bytes, so that the message is freed and its send
    /// ends.
    pub(super) fn discard(&mut self, found: Found) {
        let taken = self.operations.take(Kind::Discard, None, 0, Buffer::default());
        let Ok(operation) = taken else { return };
        let started = self.worker.receive_taken(operation, found.message);
        let index = operation.index();
        if let sys::Started::Failed(_) = started {
            self.retire(index);
        }
    }

    /// The event for the end of an operation, if there is one. The event that its peer is up may
    /// come first.
    #[inline]
    pub(super) fn event_of(&mut self, index: Index) -> Option<MatchingEvent> {
        let operation = self.operations.at(index);
        let (kind, token) = (operation.kind.get(), operation.token.get());
        let (status, peer) = (operation.status.get(), operation.peer.get());
        let cancelled_by = operation.cancelled_by.get();
        let (wire, length) = (operation.tag.get(), operation.length.get());
        let mut buffer = self.retire(index);
        match kind {
            Kind::Discard => None,
            Kind::Send => {
                self.count_lost(status, peer);
                let result = match (status, peer) {
                    (sys::UCS_OK, _) => Ok(()),
                    (_, Some(peer)) => Err(OperationError::PeerDown(peer)),
                    (status, None) => Err(OperationError::Failed { status: status.into() }),
                };
                Some(MatchingEvent::Sent { token, buffer, result })
            }
            Kind::Receive => {
                if self.tokens.get(&token) == Some(&index) {
                    self.tokens.remove(&token);
                }
                let result = match (cancelled_by, peer) {
                    (Canceller::Caller, _) if status == sys::UCS_ERR_CANCELED => {
                        Err(OperationError::Cancelled)
                    }
                    _ => self.received(status, wire, length, peer, &mut buffer),
                };
                let received = MatchingEvent::Received { token, buffer, result };
                if let MatchingEvent::Received { result: Ok(envelope), .. } = &received
                    && self.meeting.is_up_unreported(envelope.source)
                {
                    come_up(self, envelope.source);
                    self.events.push_back(received);
                    return self.events.pop_front();
                }
                Some(received)
            }
        }
    }

    /// A send has ended: without success if its peer has, too.
    #[inline]
    fn count_lost(&mut self, status: sys::ucs_status_t, peer: Option<PeerId>) {
        if status != sys::UCS_OK
            && let Some(entry) = peer.and_then(|peer| self.meeting.peers.find_mut(peer))
        {
            entry.lost += 1;
        }
    }

    #[inline]
    fn received(
        &self,
        status: sys::ucs_status_t,
        wire: u64,
        length: usize,
        named: Option<PeerId>,
        buffer: &mut Buffer,
    ) -> Result<Envelope, OperationError> {
        let envelope = self.envelope(wire, length);
        match (status, envelope) {
            (sys::UCS_OK, Some(envelope)) => Ok(envelope),
            (sys::UCS_ERR_MESSAGE_TRUNCATED, Some(envelope)) => {
                // UCX may have written none of the bytes, and they may not have been initialised.
                buffer.room().unwrap_or_default().zero();
                Ok(envelope)
            }
            (sys::UCS_OK | sys::UCS_ERR_MESSAGE_TRUNCATED, None) => {
                Err(OperationError::Failed { status: sys::UCS_ERR_INVALID_ADDR.into() })
            }
            // The peer's end has cancelled the receive, or the receive had matched a message whose
            // sender ended before all bytes had come.
            (
                sys::UCS_ERR_CANCELED
                | sys::UCS_ERR_CONNECTION_RESET
                | sys::UCS_ERR_ENDPOINT_TIMEOUT
                | sys::UCS_ERR_NOT_CONNECTED
                | sys::UCS_ERR_UNREACHABLE,
                envelope,
            ) => match named.or(envelope.map(|envelope| envelope.source)) {
                Some(peer) => Err(OperationError::PeerDown(peer)),
                None => Err(OperationError::Failed { status: status.into() }),
            },
            (status, _) => Err(OperationError::Failed { status: status.into() }),
        }
    }
}

const NOT_DELIVERED: Unfit = Unfit::NotCarried(
    "UCX tells when a message is matched, not when it is in its receiver's buffer; ask for Matched",
);
const NOT_NUMBERED: Unfit = Unfit::NotCarried(
    "with UcxConfig::own_source a peer can be named once it is up, when its number is known; wait for that",
);
