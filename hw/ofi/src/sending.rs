//! Sends: what goes to libfabric at once, what waits, and when a send is complete.
//!
//! A message of at most [`HEAD_MAX`] bytes whose sender waits for nothing goes as it is. Any other
//! goes as a head, with a trailer behind it (see [`control`](super::control)). A provider that
//! tells lengths and matches truly gets every message as it is.
//!
//! What libfabric has no room for waits in its peer's queue, first in, first out. So does
//! everything behind it.

use tagmatch_device::matching::{CompleteWhen, MatchingEvent, OperationError, TagSend, Unfit};
use tagmatch_device::slab::Key;
use tagmatch_device::{Buffer, DownReason, PeerId};
use tagmatch_fabric::handshake::{PeerState, Sent, break_with};
use tagmatch_ofi_sys as sys;

use super::OfiTransport;
use super::carrier::{CqData, Label, Wire};
use super::control::{NOBODY, PACKET, Packet, TRAILER, Trailer};
use super::endpoint::{Begun, Completion, Lane, LaneAddress, MemorySpan, TaggedMessage};
use super::operations::{HEAD_MAX, Kind, Long, OfiOperation};

/// Bytes of a message in its head, if there is a trailer.
pub(super) const HEAD: usize = HEAD_MAX - TRAILER;

impl OfiTransport {
    /// Sends a message that can be carried.
    #[inline]
    pub(super) fn send_message(
        &mut self,
        message: TagSend,
    ) -> Result<Option<Buffer>, (Buffer, Unfit)> {
        let TagSend { peer, tag, immediate, buffer, complete_when: until, token } = message;
        let length = buffer.len();
        if until == CompleteWhen::Reusable && self.inject_now(peer, tag, immediate, &buffer) {
            return Ok(Some(buffer));
        }
        let mut operation =
            OfiOperation { token, peer: Some(peer), buffer, ..OfiOperation::default() };
        operation.bits.tag = tag;
        (operation.immediate, operation.until, operation.length) = (immediate, until, length);
        let key = self.core.enter_send(peer, operation)?;
        if let Some(entry) = self.core.meeting.peers.find_mut(peer) {
            entry.link.sent = entry.link.sent.wrapping_add(1);
        }
        self.launch(peer, key);
        Ok(None)
    }

    /// Whether a message of so many bytes can be carried.
    #[inline]
    pub(super) fn check_message(&self, tag: u64, length: usize) -> Result<(), Unfit> {
        if length > self.provider.message_max {
            return Err(TOO_LONG);
        }
        self.carrier.check_send(tag)
    }

    /// Sends a copy of a short message if libfabric takes one now.
    #[inline]
    pub(super) fn inject_now(
        &mut self,
        peer: PeerId,
        tag: u64,
        immediate: Option<u32>,
        bytes: &[u8],
    ) -> bool {
        if bytes.len() > self.provider.inject_max
            || immediate.is_some() && self.carrier.data == CqData::One
        {
            return false;
        }
        let Some(entry) = self.core.meeting.peers.find_mut(peer) else { return false };
        let Some(address) = entry.link.address else { return false };
        let is_up = matches!(entry.state, PeerState::Up) && !entry.link.is_rising;
        if !is_up || !entry.link.waiting.is_empty() {
            return false;
        }
        #[expect(clippy::cast_possible_truncation, reason = "no more than `inject_max`")]
        let length = bytes.len() as u32;
        let length = Some(length);
        let label = Label { number: entry.our_number, tag, has_trailer: false, immediate, length };
        let wire = self.carrier.send(&label);
        if self.endpoint.inject(LaneAddress::messages(address), bytes, wire) != Begun::Yes {
            return false;
        }
        entry.sent = Sent::Unflushed;
        entry.link.sent = entry.link.sent.wrapping_add(1);
        true
    }

    /// Begins to send an operation, or lets it wait. While a peer's connections are being made,
    /// only marks go to it, past the messages that wait.
    pub(super) fn launch(&mut self, peer: PeerId, key: Key) {
        let Some(entry) = self.core.meeting.peers.find_mut(peer) else { return };
        let is_rising = entry.link.is_rising;
        let kind = self.core.operations.at(key).map(|operation| operation.kind);
        let passes = is_rising && kind == Some(Kind::ControlOut);
        let is_held = is_rising && !passes;
        let waits = !takes_messages(entry.state) || !entry.link.waiting.is_empty() && !passes;
        if is_held || waits || self.start(peer, key) == Begun::Again {
            self.wait_for(peer, key, passes);
        }
    }

    fn wait_for(&mut self, peer: PeerId, key: Key, is_first: bool) {
        let Some(entry) = self.core.meeting.peers.find_mut(peer) else { return };
        if is_first {
            entry.link.waiting.push_front(key);
        } else {
            entry.link.waiting.push_back(key);
        }
        let waits_for_room = takes_messages(entry.state) && (is_first || !entry.link.is_rising);
        if waits_for_room && !self.blocked.contains(&peer) {
            self.blocked.push(peer);
        }
    }

    /// Begins what has waited for libfabric or for its peer.
    pub(super) fn launch_blocked(&mut self) {
        let mut at = 0;
        while let Some(peer) = self.blocked.get(at).copied() {
            if self.launch_those_waiting(peer) {
                self.blocked.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Begins what waits for a peer; `true` if nothing waits any more.
    pub(super) fn launch_those_waiting(&mut self, peer: PeerId) -> bool {
        loop {
            let Some(entry) = self.core.meeting.peers.find(peer) else { return true };
            let Some(key) = entry.link.waiting.front().copied() else { return true };
            let is_rising = entry.link.is_rising;
            if !takes_messages(entry.state) {
                return false;
            }
            let kind = self.core.operations.at(key).map(|operation| operation.kind);
            if is_rising && kind != Some(Kind::ControlOut) {
                // `rise` goes on.
                return true;
            }
            if self.start(peer, key) == Begun::Again {
                return false;
            }
            // The end of the peer may have emptied the queue.
            if let Some(entry) = self.core.meeting.peers.find_mut(peer)
                && entry.link.waiting.front() == Some(&key)
            {
                entry.link.waiting.pop_front();
            }
        }
    }

    /// Passes an operation to libfabric. One that is refused ends, and so does its peer: a message
    /// that is lost breaks the order.
    fn start(&mut self, peer: PeerId, key: Key) -> Begun {
        let begun = self.pass(peer, key);
        match begun {
            Begun::Yes => {
                if let Some(operation) = self.core.operations.at(key) {
                    operation.is_begun = true;
                }
            }
            Begun::Again => {}
            Begun::Failed(errno) => self.send_failed(key, errno),
        }
        begun
    }

    fn pass(&mut self, peer: PeerId, key: Key) -> Begun {
        let Some(entry) = self.core.meeting.peers.find(peer) else {
            return Begun::Failed(sys::FI_ENOTCONN);
        };
        let (Some(address), number) = (entry.link.address, entry.our_number) else {
            return Begun::Failed(sys::FI_ENOTCONN);
        };
        let side = entry.link.side;
        match self.core.operations.at(key).map(|operation| (operation.kind, operation.lane)) {
            Some((Kind::Send, _)) => self.pass_send(address, number, key),
            Some((Kind::PieceOut, _)) => self.pass_piece(side, key),
            Some((Kind::ControlOut, lane)) => {
                let address = if lane == Lane::Messages { address } else { side };
                let wire = self.carrier.control_wire(number);
                self.pass_own(LaneAddress { address, lane }, wire, key)
            }
            _ => Begun::Failed(sys::FI_EINVAL),
        }
    }

    fn pass_send(&mut self, address: sys::fi_addr_t, number: u64, key: Key) -> Begun {
        let data = self.carrier.data;
        let Some(operation) = self.core.operations.at(key) else { return Begun::Yes };
        let has_trailer = data != CqData::Sender
            && (operation.length > HEAD_MAX
                || operation.until != CompleteWhen::Reusable
                || operation.immediate.is_some() && data == CqData::One);
        let tag = operation.bits.tag;
        let immediate = operation.immediate;
        // `check_send` has checked it, unless the provider tells lengths itself.
        let length = Some(u32::try_from(operation.length).unwrap_or(u32::MAX));
        let wire = self.carrier.send(&Label { number, tag, has_trailer, immediate, length });
        let is_copied = has_trailer || !operation.buffer.is_vec();
        if is_copied && operation.own.is_empty() {
            self.copy_head(key, has_trailer);
        }
        self.pass_own(LaneAddress::messages(address), wire, key)
    }

    /// Copies the head of a message into memory of the device's own; the whole message, if it goes
    /// as it is.
    fn copy_head(&mut self, key: Key, has_trailer: bool) {
        if self.carrier.data == CqData::Sender {
            let Some(operation) = self.core.operations.at(key) else { return };
            operation.own = operation.buffer.to_vec();
            operation.own_length = operation.own.len();
            return;
        }
        let own = self.core.operations.pool.heads.take();
        let Some(operation) = self.core.operations.at(key) else { return };
        operation.own = own;
        let head = operation.length.min(if has_trailer { HEAD } else { HEAD_MAX });
        operation.own[..head].copy_from_slice(&operation.buffer[..head]);
        operation.own_length = head;
        if !has_trailer {
            return;
        }
        // An ack or a go has to come, but not for a message that is short and only has a trailer
        // for its immediate data.
        let is_short = operation.length <= HEAD;
        let waits = !is_short || operation.until != CompleteWhen::Reusable;
        let trailer = Trailer {
            send: if waits { key.to_short() } else { NOBODY },
            immediate: operation.immediate.unwrap_or(0),
            piece_max: self.provider.piece_max(&operation.buffer),
            wants_delivery: operation.until == CompleteWhen::Delivered,
            writes: self.provider.writes,
        };
        operation.own[head..head + TRAILER].copy_from_slice(&trailer.emit());
        operation.own_length = head + TRAILER;
        operation.awaits = waits.into();
        operation.long = (!is_short).then(|| Box::new(Long::to_be_sent(HEAD)));
    }

    /// Passes the bytes of an operation: its own ones, or else the caller's.
    fn pass_own(&mut self, to: LaneAddress, wire: Wire, key: Key) -> Begun {
        let is_true = self.carrier.data == CqData::Sender;
        let Some((operation, context)) = self.core.operations.with_context(key) else {
            return Begun::Yes;
        };
        let (start, length) = if operation.own.is_empty() {
            (operation.buffer.as_ptr(), operation.length)
        } else {
            (operation.own.as_ptr(), operation.own_length)
        };
        let message =
            TaggedMessage { to, bytes: MemorySpan { start: start.cast_mut(), length }, wire };
        let level = match operation.until {
            CompleteWhen::Matched if is_true => Some(sys::FI_MATCH_COMPLETE),
            CompleteWhen::Delivered if is_true => Some(sys::FI_DELIVERY_COMPLETE),
            _ => None,
        };
        // SAFETY: the operation keeps its bytes, and the table its context, until it has ended or
        // the endpoint is gone.
        unsafe {
            match level {
                None => self.endpoint.send(message, context),
                Some(level) => self.endpoint.send_until(level, message, context),
            }
        }
    }

    /// A send's head has gone, or failed.
    pub(super) fn head_sent(&mut self, key: Key, completion: &Completion) {
        if completion.errno != 0 {
            return self.send_failed(key, completion.errno);
        }
        self.finish_send(key);
    }

    /// Ends a send of which nothing is left to do.
    pub(super) fn finish_send(&mut self, key: Key) {
        let Some(operation) = self.core.operations.at(key) else { return };
        let is_sent = operation.long.as_ref().is_none_or(|long| long.is_over());
        if operation.is_begun || operation.is_told || operation.awaits > 0 || !is_sent {
            return;
        }
        let Some((token, buffer)) = self.core.retire(key) else { return };
        self.core.events.push_back(MatchingEvent::Sent { token, buffer, result: Ok(()) });
    }

    /// Ends a send, or what belongs to one, without success, and its peer with it.
    pub(super) fn send_failed(&mut self, key: Key, _errno: i32) {
        let Some(operation) = self.core.operations.at(key) else { return };
        let peer = operation.peer;
        let parent = operation.parent;
        match operation.kind {
            Kind::Send if !operation.is_held() => self.end_lost(key),
            Kind::PieceOut => {
                self.core.operations.remove(key);
                self.piece_gone(parent, true);
            }
            Kind::Send => {}
            _ => drop(self.core.operations.remove(key)),
        }
        if let Some(peer) = peer {
            break_with(self, peer, DownReason::Gone);
        }
    }

    /// Reports the end of an operation whose peer has ended. What libfabric still has stays in the
    /// table.
    pub(super) fn end_lost(&mut self, key: Key) {
        let Some(operation) = self.core.operations.at(key) else { return };
        let Some(peer) = operation.peer else { return };
        let is_send = operation.kind == Kind::Send;
        let result = OperationError::PeerDown(peer);
        let (token, buffer) = if operation.is_held() {
            operation.is_told = true;
            let buffer = if operation.lends() {
                Buffer::default()
            } else {
                std::mem::take(&mut operation.buffer)
            };
            let token = operation.token;
            self.core.let_go(Some(peer));
            (token, buffer)
        } else {
            let Some(ended) = self.core.retire(key) else { return };
            ended
        };
        if is_send {
            if let Some(entry) = self.core.meeting.peers.find_mut(peer) {
                entry.lost += 1;
            }
            self.core.events.push_back(MatchingEvent::Sent { token, buffer, result: Err(result) });
        } else {
            self.core.forget_token(token, key);
            self.core.events.push_back(MatchingEvent::Received {
                token,
                buffer,
                result: Err(result),
            });
        }
    }

    /// Sends a mark, behind messages or behind packets. It has a completion of its own.
    pub(super) fn mark(&mut self, peer: PeerId, lane: Lane) {
        if lane == Lane::Messages
            && let Some(entry) = self.core.meeting.peers.find_mut(peer)
        {
            entry.link.mark = Some(entry.link.sent);
        }
        self.say_by_operation(peer, Packet::Mark { lane });
    }

    /// Sends a control packet.
    pub(super) fn say(&mut self, peer: PeerId, packet: Packet) {
        let bytes = packet.emit();
        let Some(entry) = self.core.meeting.peers.find_mut(peer) else { return };
        if entry.link.address.is_none() {
            return;
        }
        let side = LaneAddress::packets(entry.link.side);
        if PACKET <= self.provider.inject_max && entry.link.waiting.is_empty() {
            let wire = self.carrier.control_wire(entry.our_number);
            if self.endpoint.inject(side, &bytes, wire) == Begun::Yes {
                return;
            }
        }
        self.say_by_operation(peer, packet);
    }

    fn say_by_operation(&mut self, peer: PeerId, packet: Packet) {
        let (is_mark, lane) = match packet {
            Packet::Mark { lane } => (true, lane),
            _ => (false, Lane::Packets),
        };
        let operation = OfiOperation {
            kind: Kind::ControlOut,
            peer: Some(peer),
            own: packet.emit().to_vec(),
            own_length: PACKET,
            is_mark,
            lane,
            ..OfiOperation::default()
        };
        if let Ok(key) = self.core.operations.enter(operation) {
            self.launch(peer, key);
        }
    }

    /// A control packet has gone, or failed.
    pub(super) fn packet_sent(&mut self, key: Key, completion: &Completion) {
        let Some(operation) = self.core.operations.remove(key) else { return };
        let Some(peer) = operation.peer else { return };
        if completion.errno != 0 {
            return break_with(self, peer, DownReason::Gone);
        }
        if operation.is_mark {
            self.mark_sent(peer, operation.lane);
        }
        if operation.is_mark
            && operation.lane == Lane::Messages
            && let Some(entry) = self.core.meeting.peers.find_mut(peer)
            && entry.link.mark.take() == Some(entry.link.sent)
            && entry.sent == Sent::Unflushed
        {
            entry.sent = Sent::Flushed;
            entry.link.flushed = entry.link.sent;
        }
    }
}

/// Whether what is sent to a peer in this state goes out: also the last of it, while this device
/// disconnects the peer.
pub(super) fn takes_messages(state: PeerState) -> bool {
    matches!(state, PeerState::Up | PeerState::Leaving { reason: DownReason::Disconnected, .. })
}

const TOO_LONG: Unfit = Unfit::NotCarried(
    "the message is longer than this provider carries, or than 4 GiB less one byte; send it in parts",
);
