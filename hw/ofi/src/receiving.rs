//! Receives: what is posted, what waits, and what becomes of a head.
//!
//! A receive has memory of the device's own for a head, and the bytes are copied from there into
//! the caller's buffer. So a message that doesn't fit is truncated here, with its length and its
//! first bytes, and never by a provider: some lose its length then, some all facts, and one never
//! returns. A provider that truncates as it should gets the caller's buffer.
//!
//! libfabric may have no room for a receive now. It waits then, and so do all that follow and all
//! looks for messages, since the receive that was posted first matches first.

use tagmatch_device::matching::{Envelope, OperationError};
use tagmatch_device::slab::Key;
use tagmatch_device::{DownReason, PeerId};
use tagmatch_fabric::handshake::break_with;
use tagmatch_fabric::{Canceller, report_up};
use tagmatch_ofi_sys as sys;

use super::OfiTransport;
use super::carrier::{CqData, TagBits, Wire};
use super::control::{NOBODY, PACKET, Packet, TRAILER, Trailer};
use super::endpoint::{Begun, Completion, Lane, LaneAddress, MemorySpan};
use super::operations::{Kind, Long, OfiOperation};
use super::sending::HEAD;

/// Receives for control packets. More of them wait in the provider.
const CONTROL_POSTS: usize = 16;

impl OfiTransport {
    /// A receive, with memory of the device's own if it needs some.
    pub(super) fn with_room(&mut self, bits: TagBits) -> OfiOperation {
        let own = if self.carrier.data == CqData::Sender {
            Vec::new()
        } else {
            self.core.operations.pool.heads.take()
        };
        OfiOperation { bits, own, ..OfiOperation::default() }
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
        let begun = match self.core.operations.at(key).map(|operation| operation.kind) {
            None => return true,
            Some(Kind::PieceIn) => self.post_piece(key),
            Some(_) => self.post_head(key),
        };
        match begun {
            Begun::Yes => {
                if let Some(operation) = self.core.operations.at(key) {
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
        let directed = self.carrier.data == CqData::Sender;
        let Some((operation, context)) = self.core.operations.with_context(key) else {
            return Begun::Yes;
        };
        let (start, length) = if operation.own.is_empty() {
            (operation.buffer.as_ptr().cast_mut(), operation.buffer.len())
        } else {
            (operation.own.as_mut_ptr(), operation.own.len())
        };
        let memory = MemorySpan { start, length };
        let bits = operation.bits;
        let named = operation.peer.filter(|_| directed && operation.kind == Kind::Receive);
        let address = |peer| self.core.meeting.peers.find(peer)?.link.address;
        let Some(address) = named.map_or(Some(sys::FI_ADDR_UNSPEC), address) else {
            return Begun::Failed(sys::FI_EINVAL);
        };
        let from = LaneAddress { address, lane: operation.lane };
        // SAFETY: the operation keeps its memory, and the table its context, until it has ended or
        // the endpoint is gone; nobody looks at these bytes meanwhile.
        unsafe {
            if operation.is_claimed {
                self.endpoint.receive_claimed(address, memory, bits.tag, context)
            } else {
                self.endpoint.receive(from, memory, bits, context)
            }
        }
    }

    /// A receive of the caller's has ended, or its head has come.
    pub(super) fn head_received(&mut self, key: Key, completion: &Completion) {
        let Some(operation) = self.core.operations.at(key) else { return };
        match completion.errno {
            0 => self.deliver(key, completion),
            // Only where the caller's buffer was posted, and the provider tells what didn't fit.
            sys::FI_ETRUNC if operation.own.is_empty() => self.deliver(key, completion),
            sys::FI_ECANCELED if operation.canceller == Canceller::Caller => {
                self.core.end_receive(key, Err(OperationError::Cancelled));
            }
            _ if operation.peer.is_some() => {
                let peer = operation.peer;
                self.end_lost(key);
                if let Some(peer) = peer {
                    break_with(self, peer, DownReason::Gone);
                }
            }
            status => self.core.end_receive(key, Err(OperationError::Failed { status })),
        }
    }

    fn deliver(&mut self, key: Key, completion: &Completion) {
        let label = self.carrier.read(Wire { tag: completion.tag, data: completion.data });
        let Some(source) = self.source_of(label.number) else {
            let status = sys::FI_EINVAL;
            return self.core.end_receive(key, Err(OperationError::Failed { status }));
        };
        report_up(self, source);
        let tag = label.tag;
        let immediate = label.immediate;
        let Some(operation) = self.core.operations.at(key) else { return };
        if !label.has_trailer {
            if !operation.own.is_empty() {
                let head = completion.length.min(operation.own.len());
                operation.buffer.room().map(|room| room.fill(&operation.own[..head]));
            }
            let length = (completion.length + completion.beyond) as u64;
            let envelope = Envelope { source, tag, length, immediate };
            return self.core.end_receive(key, Ok(envelope));
        }
        let length = label.length.unwrap_or(0);
        let head = (length as usize).min(HEAD);
        let split = Trailer::split(&operation.own[..completion.length.min(operation.own.len())]);
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
            return self.core.end_receive(key, Ok(envelope));
        }
        if operation.peer.is_none() {
            operation.peer = Some(source);
            self.core.depends_on(Some(source));
        }
        let is_ending = self.core.meeting.peers.find(source).is_none_or(|peer| peer.is_leaving());
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

    fn misbehaved(&mut self, key: Key, source: PeerId, what: &'static str) {
        self.core.end_receive(key, Err(OperationError::PeerDown(source)));
        break_with(self, source, DownReason::Misbehaved { what });
    }

    /// The peer that messages with this number are from, if the way to it was made.
    pub(super) fn source_of(&self, number: u64) -> Option<PeerId> {
        let peer = self.core.meeting.peers.of_number(number)?;
        self.core.meeting.peers.find(peer)?.link.address.map(|_| peer)
    }

    /// A message that nobody wants has come: its sender learns that it was matched.
    pub(super) fn dropped(&mut self, key: Key, completion: &Completion) {
        let Some(operation) = self.core.operations.at(key) else { return };
        let label = self.carrier.read(Wire { tag: completion.tag, data: completion.data });
        let split = Trailer::split(operation.head(completion));
        let trailer = split.filter(|_| completion.errno == 0 && label.has_trailer);
        let send = trailer.map(|(_, trailer)| trailer.send).filter(|send| *send != NOBODY);
        self.core.operations.remove(key);
        if let (Some(send), Some(source)) = (send, self.source_of(label.number)) {
            self.say(source, Packet::Ack { send });
        }
    }

    /// Posts the receives for control packets.
    pub(super) fn post_controls(&mut self) {
        for _ in 0..CONTROL_POSTS {
            self.post_control(Lane::Packets);
            // Marks arrive among messages, too.
            if self.endpoint.has_side() {
                self.post_control(Lane::Messages);
            }
        }
    }

    fn post_control(&mut self, lane: Lane) {
        let bits = self.carrier.any_control();
        let own = vec![0; PACKET + TRAILER];
        let kind = Kind::ControlIn;
        let operation = OfiOperation { kind, lane, own, bits, ..OfiOperation::default() };
        if let Ok(key) = self.core.operations.enter(operation) {
            self.post_or_wait(key);
        }
    }

    /// A control packet has come.
    pub(super) fn control_received(&mut self, key: Key, completion: &Completion) {
        let Some(operation) = self.core.operations.remove(key) else { return };
        if completion.errno == sys::FI_ECANCELED {
            return;
        }
        self.post_control(operation.lane);
        let wire = Wire { tag: completion.tag, data: completion.data };
        let Some(source) = self.source_of(self.carrier.control_number(wire)) else {
            return;
        };
        let handled = match Packet::parse(operation.head(completion)) {
            Some(Packet::Mark { lane }) => {
                self.mark_received(source, lane);
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
        let Some(key) = self.core.operations.of_peer(send) else { return Ok(()) };
        let Some(operation) = self.core.operations.at(key) else { return Ok(()) };
        if !operation.awaits_word_of(source) {
            return Err("an ack of no message that waits for one");
        }
        operation.awaits = 0;
        self.finish_send(key);
        Ok(())
    }
}
