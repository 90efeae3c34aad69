//! Receives: what is posted, what waits, and what becomes of a head.
//!
//! A receive has memory of the device's own for a head, and the bytes are copied from there into
//! the caller's buffer. So a message that doesn't fit is truncated here, with its length and its
//! first bytes, and never by a provider: some lose its length then, some all facts, and one never
//! returns. A provider that truncates as it should gets the caller's buffer.
//!
//! libfabric may have no room for a receive now. It waits then, and so do all that follow and all
//! looks for messages, since the receive that was posted first matches first.

use tagmatch_device::matching::{Envelope, MatchingEvent, OperationError, TagPattern, Unfit};
use tagmatch_device::slab::Key;
use tagmatch_device::{Buffer, DownReason, PeerId};
use tagmatch_fabric::handshake::{break_with, come_up};
use tagmatch_ofi_sys as sys;

use super::Ofi;
use super::carrier::{Data, Wire};
use super::control::{NOBODY, PACKET, Packet, TRAILER, Trailer};
use super::endpoint::{Begun, Completion};
use super::operations::{Canceller, Kind, Long, Operation};
use super::sending::HEAD;

/// Receives for control packets. More of them wait in the provider.
const CONTROL_POSTS: usize = 16;
/// Reads of the queue without result after which a cancel is called late. Most providers answer
/// before the first one.
const CANCEL_ROUNDS: u32 = 64;
/// The token of such a receive says where it is posted.
const SIDE: u64 = 0;
const MAIN: u64 = 1;

/// What a receive matches on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WirePattern {
    /// The sender, if the provider compares it. `None`: its address isn't known yet.
    pub(super) from: Option<sys::fi_addr_t>,
    pub(super) tag: u64,
    pub(super) ignored: u64,
}

impl Ofi {
    /// What a pattern is on the wire.
    pub(super) fn wire_pattern(&self, pattern: TagPattern) -> Result<WirePattern, Unfit> {
        let TagPattern { tag, mask, source } = pattern;
        let named = source.map(|peer| self.meeting.peers.find(peer).ok_or(Unfit::NoSuchPeer));
        let named = named.transpose()?;
        let (tag, ignored) = self.carrier.pattern(tag, mask, source.map(|peer| peer.0.into()))?;
        let from = match named {
            Some(peer) if self.carrier.data == Data::Sender => peer.link.address,
            _ => Some(sys::FI_ADDR_UNSPEC),
        };
        Ok(WirePattern { from, tag, ignored })
    }

    /// See [`MatchingDevice::receive`](tagmatch_device::matching::MatchingDevice::receive).
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
        let peers = &self.meeting.peers;
        let is_down = pattern.source.and_then(|s| peers.find(s)).is_some_and(|p| p.is_leaving());
        // Messages of the peer that are complete can still be received.
        if self.meeting.is_closed || is_down && !self.is_there(wire) {
            return Err((buffer, Unfit::Down));
        }
        let operation = Operation {
            kind: Kind::Receive,
            token,
            peer: pattern.source,
            buffer,
            ..self.with_room(Wire { tag: wire.tag, data: wire.ignored })
        };
        let entered = self.operations.enter(operation);
        let key = entered.map_err(|refused| (refused.buffer, Unfit::Exhausted))?;
        self.tokens.insert(token, key);
        self.depends_on(key, pattern.source);
        self.post_or_wait(key);
        Ok(())
    }

    /// A receive, with memory of the device's own if it needs some.
    pub(super) fn with_room(&mut self, wire: Wire) -> Operation {
        let own = if self.carrier.data == Data::Sender {
            Vec::new()
        } else {
            self.operations.heads.take()
        };
        Operation { wire, own, ..Operation::default() }
    }

    /// Counts an operation as one that depends on a peer.
    fn depends_on(&mut self, key: Key, peer: Option<PeerId>) {
        if let Some(entry) = peer.and_then(|peer| self.meeting.peers.find_mut(peer))
            && let Some(operation) = self.operations.at(key)
        {
            entry.live += 1;
            operation.peer = peer;
        }
    }

    /// Posts a receive, or lets it wait behind those that wait already.
    pub(super) fn post_or_wait(&mut self, key: Key) {
        if self.keep_early(key) {
            return;
        }
        if !self.unposted.is_empty() || !self.post(key) {
            self.unposted.push_back(key);
        }
    }

    /// Posts the receives that wait, in order.
    pub(super) fn post_waiting(&mut self) {
        while let Some(key) = self.unposted.front().copied() {
            if !self.post(key) {
                return;
            }
            // The end of a peer may have taken it out.
            if self.unposted.front() == Some(&key) {
                self.unposted.pop_front();
            }
        }
    }

    /// `false` if libfabric has no room now.
    fn post(&mut self, key: Key) -> bool {
        let begun = match self.operations.at(key).map(|operation| operation.kind) {
            None => return true,
            Some(Kind::PieceIn) => self.post_piece(key),
            Some(_) => self.post_head(key),
        };
        match begun {
            Begun::Yes => {
                if let Some(operation) = self.operations.at(key) {
                    operation.is_begun = true;
                }
                true
            }
            Begun::Again => false,
            Begun::Failed(errno) => {
                let index = key.index;
                let failed = Completion { errno, index, ..Completion::default() };
                self.completed(key, &failed);
                true
            }
        }
    }

    fn post_head(&mut self, key: Key) -> Begun {
        let directed = self.carrier.data == Data::Sender;
        let Some((operation, context)) = self.operations.with_context(key) else {
            return Begun::Yes;
        };
        let memory = if operation.own.is_empty() {
            (operation.buffer.as_ptr().cast_mut(), operation.buffer.len())
        } else {
            (operation.own.as_mut_ptr(), operation.own.len())
        };
        let Wire { tag, data: ignored } = operation.wire;
        let is_side = operation.kind == Kind::ControlIn && operation.token == 0;
        let named = operation.peer.filter(|_| directed && operation.kind == Kind::Receive);
        let address = |peer| self.meeting.peers.find(peer)?.link.address;
        let Some(from) = named.map_or(Some(sys::FI_ADDR_UNSPEC), address) else {
            return Begun::Failed(sys::FI_EINVAL);
        };
        // SAFETY: the operation keeps its memory, and the table its context, until it has ended or
        // the endpoint is gone; nobody looks at these bytes meanwhile.
        unsafe {
            if operation.is_claimed {
                self.endpoint.receive_claimed(from, memory, tag, context)
            } else {
                self.endpoint.receive((from, is_side), memory, (tag, ignored), context)
            }
        }
    }

    /// See [`MatchingDevice::cancel`](tagmatch_device::matching::MatchingDevice::cancel). A
    /// provider that answers later has an end to report then: cancelled, or a message.
    pub(super) fn cancel_receive(&mut self, token: u64) -> bool {
        let Some(key) = self.tokens.get(&token).copied() else { return false };
        let Some((operation, context)) = self.operations.with_context(key) else { return false };
        if operation.long.is_some() || operation.canceller != Canceller::Nobody {
            return operation.canceller == Canceller::Caller && self.was_cancelled(token);
        }
        operation.canceller = Canceller::Caller;
        if operation.is_begun {
            self.endpoint.cancel(false, context);
            let is_there = |ofi: &mut Self| ofi.operations.at(key).is_some();
            let mut rounds = 0;
            while rounds < CANCEL_ROUNDS && is_there(self) {
                rounds = if self.advance() { 0 } else { rounds + 1 };
            }
        } else {
            self.take_unposted(key);
            self.end_cancelled(key);
        }
        self.was_cancelled(token)
    }

    fn was_cancelled(&self, token: u64) -> bool {
        self.events.iter().any(|event| {
            matches!(event, MatchingEvent::Received { token: ended, result, .. }
                if *ended == token && *result == Err(OperationError::Cancelled))
        })
    }

    fn end_cancelled(&mut self, key: Key) {
        let Some((token, buffer)) = self.retire(key) else { return };
        self.forget_token(token, key);
        let result = Err(OperationError::Cancelled);
        self.events.push_back(MatchingEvent::Received { token, buffer, result });
    }

    pub(super) fn forget_token(&mut self, token: u64, key: Key) {
        if self.tokens.get(&token) == Some(&key) {
            self.tokens.remove(&token);
        }
    }

    /// A receive of the caller's has ended, or its head has come.
    pub(super) fn head_received(&mut self, key: Key, completion: &Completion) {
        let Some(operation) = self.operations.at(key) else { return };
        match completion.errno {
            0 => self.deliver(key, completion),
            // Only where the caller's buffer was posted, and the provider tells what didn't fit.
            sys::FI_ETRUNC if operation.own.is_empty() => self.deliver(key, completion),
            sys::FI_ECANCELED if operation.canceller == Canceller::Caller => {
                self.end_cancelled(key)
            }
            _ if operation.peer.is_some() => {
                let peer = operation.peer;
                self.end_lost(key);
                peer.into_iter().for_each(|peer| break_with(self, peer, DownReason::Gone));
            }
            errno => self.end_failed(key, errno),
        }
    }

    fn end_failed(&mut self, key: Key, status: i32) {
        let Some((token, buffer)) = self.retire(key) else { return };
        self.forget_token(token, key);
        let result = Err(OperationError::Failed { status });
        self.events.push_back(MatchingEvent::Received { token, buffer, result });
    }

    fn deliver(&mut self, key: Key, completion: &Completion) {
        let carried = self.carrier.read(Wire { tag: completion.tag, data: completion.data });
        let Some(source) = self.source_of(carried.number) else {
            return self.end_failed(key, sys::FI_EINVAL);
        };
        if self.meeting.is_up_unreported(source) {
            come_up(self, source);
        }
        self.has_risen(source);
        let (tag, immediate) = (carried.tag, carried.immediate);
        let Some(operation) = self.operations.at(key) else { return };
        if !carried.has_trailer {
            let came = completion.length.min(operation.own.len());
            if !operation.own.is_empty() {
                operation.buffer.room().map(|room| room.fill(&operation.own[..came]));
            }
            let length = (completion.length + completion.beyond) as u64;
            return self.received(key, Envelope { source, tag, length, immediate });
        }
        let came = completion.length.min(operation.own.len());
        let length = carried.length.unwrap_or(0);
        let head = (length as usize).min(HEAD);
        let split = Trailer::split(&operation.own[..came]);
        let Some((bytes, trailer)) =
            split.filter(|(bytes, trailer)| bytes.len() == head && trailer.piece_max > 0)
        else {
            return self.misbehaved(key, source, "a message whose trailer is wrong");
        };
        operation.buffer.room().map(|room| room.fill(bytes));
        let has_immediate = self.carrier.has_immediate(completion.tag);
        let immediate = has_immediate.then_some(trailer.immediate);
        let envelope = Envelope { source, tag, length: length.into(), immediate };
        let end = (length as usize).min(operation.buffer.len());
        if end <= head {
            let waits = head < length as usize || trailer.send != NOBODY;
            if waits {
                self.say(source, Packet::Ack { send: trailer.send });
            }
            return self.received(key, envelope);
        }
        let was_named = operation.peer.is_some();
        if !was_named {
            self.depends_on(key, Some(source));
        }
        let is_ending = self.meeting.peers.find(source).is_none_or(|peer| peer.is_leaving());
        if is_ending {
            // The rest would never come.
            return self.end_lost(key);
        }
        let long = Long {
            other: trailer.send,
            end,
            envelope: Some(envelope),
            wants_ack: trailer.wants_delivery,
            ..Long::to_be_sent(head)
        };
        self.begin_rest(key, source, long, &trailer);
    }

    fn received(&mut self, key: Key, envelope: Envelope) {
        let Some((token, buffer)) = self.retire(key) else { return };
        self.forget_token(token, key);
        self.events.push_back(MatchingEvent::Received { token, buffer, result: Ok(envelope) });
    }

    fn misbehaved(&mut self, key: Key, source: PeerId, what: &'static str) {
        let Some((token, buffer)) = self.retire(key) else { return };
        self.forget_token(token, key);
        let result = Err(OperationError::PeerDown(source));
        self.events.push_back(MatchingEvent::Received { token, buffer, result });
        break_with(self, source, DownReason::Misbehaved { what });
    }

    /// The peer that messages with this number are from, if the way to it was made.
    pub(super) fn source_of(&self, number: u32) -> Option<PeerId> {
        let peer = self.meeting.peers.of_number(number.into())?;
        self.meeting.peers.find(peer)?.link.address.map(|_| peer)
    }

    /// A message that nobody wants has come: its sender learns that it was matched.
    pub(super) fn dropped(&mut self, key: Key, completion: &Completion) {
        let Some(operation) = self.operations.at(key) else { return };
        let carried = self.carrier.read(Wire { tag: completion.tag, data: completion.data });
        let came = completion.length.min(operation.own.len());
        let split = Trailer::split(&operation.own[..came]);
        let trailer = split.filter(|_| completion.errno == 0 && carried.has_trailer);
        let send = trailer.map(|(_, trailer)| trailer.send).filter(|send| *send != NOBODY);
        self.operations.remove(key);
        if let (Some(send), Some(source)) = (send, self.source_of(carried.number)) {
            self.say(source, Packet::Ack { send });
        }
    }

    /// Posts the receives for control packets.
    pub(super) fn post_controls(&mut self) {
        for _ in 0..CONTROL_POSTS {
            self.post_control(SIDE);
            // Marks come among messages.
            if self.endpoint.has_side() {
                self.post_control(MAIN);
            }
        }
    }

    fn post_control(&mut self, token: u64) {
        let (tag, data) = self.carrier.any_control();
        let wire = Wire { tag, data };
        let own = vec![0; PACKET + TRAILER];
        let kind = Kind::ControlIn;
        let operation = Operation { kind, token, own, wire, ..Operation::default() };
        if let Ok(key) = self.operations.enter(operation) {
            self.post_or_wait(key);
        }
    }

    /// A control packet has come.
    pub(super) fn control_received(&mut self, key: Key, completion: &Completion) {
        let Some(operation) = self.operations.remove(key) else { return };
        if completion.errno == sys::FI_ECANCELED {
            return;
        }
        self.post_control(operation.token);
        let wire = Wire { tag: completion.tag, data: completion.data };
        let Some(source) = self.source_of(self.carrier.control_number(wire)) else {
            return;
        };
        let came = completion.length.min(operation.own.len());
        let handled = match Packet::parse(&operation.own[..came]) {
            Some(Packet::Mark { is_side }) => {
                self.was_marked(source, is_side.into());
                Ok(())
            }
            Some(Packet::Ack { send }) => self.acknowledged(source, send),
            Some(go @ (Packet::Go { .. } | Packet::WriteTo { .. })) => self.go_on(source, go),
            Some(Packet::Written { receive }) => self.was_written(source, receive),
            None => Err("a control packet of no known kind"),
        };
        if let Err(what) = handled {
            break_with(self, source, DownReason::Misbehaved { what });
        }
    }

    fn acknowledged(&mut self, source: PeerId, send: u32) -> Result<(), &'static str> {
        // A send that has ended meanwhile, because its peer is ending.
        let Some(key) = self.operations.of_peer(send) else { return Ok(()) };
        let Some(operation) = self.operations.at(key) else { return Ok(()) };
        if !operation.awaits_word_of(source) {
            return Err("an ack of no message that waits for one");
        }
        operation.awaits = 0;
        self.finish_send(key);
        Ok(())
    }
}
