//! The state of the protocol: peers and what they were granted, requests, both lists; and what
//! becomes of a matched message.
//!
//! [`Core`](crate::core::Core) and the NIC's side ([`offload`](crate::offload)) both work on this
//! state. Neither device nor NIC is known here: what they are to do goes to `todo`.

use std::collections::{BTreeMap, VecDeque};

use tagmatch_device::slab::{Key, Slab};
use tagmatch_device::{AccessEnd, Buffer, Bytes, OrBug, PeerId, RemoteSpan};
use tagmatch_shadow::Why;
use tagmatch_soft::{PostedList, Tag};

use crate::config::EngineConfig;
use crate::counters::Counters;
use crate::credit::{Amount, Pool};
use crate::decisions::{Decision, Decisions};
use crate::error::{Fault, PeerFault};
use crate::observer::Observer;
use crate::peers::departed::Departed;
use crate::peers::peer::{self, Peer};
use crate::receiving::unexpected::{
    ArrivedMessage, Body, Listed, Payload, Unexpected, UnexpectedMessage,
};
use crate::requests::request::{RequestId, Status};
use crate::requests::table::Requests;
use crate::rma::Rma;
use crate::slices;
use crate::store::Stored;
use crate::todo::{Operation, Todo};
use crate::wire::{AppCtx, Control, MessageKind, Opcode, RmaHeader, TMH_BYTES, Tmh, WireError};

/// A receive whose peer is going down, and its buffer.
#[derive(Clone, Debug)]
pub(crate) struct CutShort {
    pub(crate) peer: PeerId,
    pub(crate) request: RequestId,
    pub(crate) buffer: Buffer,
}

/// A receive that has a rendezvous request, and what is needed to read its message.
pub(crate) struct MatchedRendezvous {
    pub(crate) request: RequestId,
    pub(crate) status: Status,
    pub(crate) span: RemoteSpan,
    /// The sender's operation, which ends with the read.
    pub(crate) operation: AppCtx,
    pub(crate) buffer: Buffer,
}

/// The state of the protocol, apart from the NIC's side.
#[derive(Clone, Debug)]
pub(crate) struct ProtocolState {
    pub(crate) peers: Vec<Peer>,
    pub(crate) requests: Requests,
    pub(crate) operations: Slab<Operation>,
    /// Posted receives, by the line of their request.
    pub(crate) posted: PostedList<u32>,
    pub(crate) unexpected: Unexpected,
    pub(crate) rma: Rma,
    /// Credit that no peer was granted.
    pub(crate) pool: Pool,
    /// Peers that are down and left messages that hold credit, in the order of their ends. Each is
    /// here once.
    pub(crate) dead: VecDeque<PeerId>,
    /// Peers that are down and not forgotten, in the order of their ends.
    pub(crate) departed: Departed,
    /// Receives whose data the end of the peer has cut short. The device tells afterwards why the
    /// peer is down, and then the receives end.
    pub(crate) cut_short: Vec<CutShort>,
    pub(crate) todo: Vec<Todo>,
    pub(crate) counters: Counters,
    pub(crate) observer: Observer,
    pub(crate) decisions: Decisions,
}

impl ProtocolState {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        ProtocolState {
            peers: Vec::new(),
            requests: Requests::new(),
            operations: Slab::default(),
            posted: PostedList::new(config.seed),
            unexpected: Unexpected::new(config.seed.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15),
            rma: Rma::new(config.seed.rotate_left(16) ^ 0x2545_f491_4f6c_dd1d),
            pool: Pool::new(config.credit),
            dead: VecDeque::new(),
            departed: Departed::new(config.departed_max),
            cut_short: Vec::new(),
            todo: Vec::new(),
            counters: Counters::default(),
            observer: Observer::default(),
            decisions: Decisions::default(),
        }
    }

    /// Software matched a receive, and why the NIC's list did not.
    pub(crate) fn not_offloaded(&mut self, why: Why) {
        self.counters.not_offloaded.count(why);
        self.decisions.tell(Decision::NotOffloaded(why));
    }

    /// The record of a peer; made when the device names a peer for the first time. Nothing names a
    /// peer that was forgotten any more, apart from callers of the engine.
    #[inline]
    pub(crate) fn peer_mut(&mut self, peer: PeerId) -> &mut Peer {
        if self.peers.get(peer.index()).is_none_or(|known| known.id != peer) {
            self.meet(peer);
        }
        &mut self.peers[peer.index()]
    }

    #[cold]
    #[inline(never)]
    fn meet(&mut self, peer: PeerId) {
        while self.peers.len() <= peer.index() {
            self.peers.push(Peer::new(PeerId::first(self.peers.len())));
        }
        let known = &mut self.peers[peer.index()];
        if known.id.generation() < peer.generation() {
            *known = Peer::new(peer);
        }
        debug_assert_eq!(known.id, peer, "a peer that was forgotten");
    }

    /// Whether a peer is down.
    pub(crate) fn is_down(&self, peer: PeerId) -> bool {
        self.fault(peer).is_some()
    }

    /// Takes in a message of a one-sided operation. Answers go out, and operations that have waited
    /// for answers.
    pub(crate) fn one_sided(
        &mut self,
        peer: PeerId,
        header: &RmaHeader,
        bytes: &Bytes<'_>,
    ) -> Result<(), WireError> {
        let under_way = self.rma.under_way(peer);
        self.rma.arrived(peer, header, bytes, &mut self.requests)?;
        self.counters.remote_by_messages += (under_way - self.rma.under_way(peer)) as u64;
        self.todo.push(Todo::Flush(peer));
        Ok(())
    }

    /// Takes in the end of an access of the device.
    pub(crate) fn accessed(&mut self, end: AccessEnd) {
        self.todo.push(Todo::Flush(end.peer));
        self.rma.accessed(end, &mut self.requests);
    }

    /// See [`peer::fault`].
    pub(crate) fn fault(&self, peer: PeerId) -> Option<PeerFault> {
        peer::fault(&self.peers, peer)
    }

    /// See [`peer::fault_of`].
    pub(crate) fn fault_of(&self, peer: PeerId) -> Option<Fault> {
        peer::fault_of(&self.peers, peer)
    }

    /// The fault of operations with a peer that is down.
    pub(crate) fn down(&self, peer: PeerId) -> Fault {
        Fault::of_down(peer, self.fault(peer))
    }

    /// Puts an unexpected message into the buffer of its receive: from the store, or by a read.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        request: RequestId,
        message: UnexpectedMessage,
        mut buffer: Buffer,
    ) {
        let operation = message.operation();
        let mut status = message.status();
        let peer = status.source;
        match message.body {
            Body::Stored(stored) => {
                let room = buffer.room().unwrap_or_default();
                let payload = stored.bytes(usize::try_from(status.length).unwrap_or(usize::MAX));
                if room.fill(payload) < payload.len() {
                    slices::scatter(&mut buffer, payload);
                }
                self.drop_stored(&status, stored);
                self.acknowledge(peer, operation);
                self.truncate(&mut status, &buffer);
                self.requests.complete(request, Ok(status), buffer);
            }
            Body::Remote { address, key } => {
                self.freed(peer, Amount::RENDEZVOUS);
                let span = RemoteSpan { address, key, length: status.length };
                let operation = operation.unwrap_or_default();
                self.pull(MatchedRendezvous { request, status, span, operation, buffer });
            }
            Body::Lost => {}
        }
    }

    /// Puts a message that has just come into a receive's buffer.
    pub(crate) fn deliver_here(&mut self, request: RequestId, arrival: &ArrivedMessage<'_>) {
        let ArrivedMessage { status, ack, payload } = *arrival;
        let peer = status.source;
        let cost = match payload {
            Payload::Here(_) => Amount::of_eager(status.length),
            Payload::Remote(_) => Amount::RENDEZVOUS,
        };
        match payload {
            Payload::Here(bytes) => {
                self.take_long(request, &status, bytes);
                self.acknowledge(peer, ack.ack_wanted().then(|| ack.operation()));
                self.freed(peer, cost);
            }
            Payload::Remote(span) => {
                let buffer = self.buffer_for(request, peer);
                self.freed(peer, cost);
                if let Some(buffer) = buffer {
                    self.counters.posted += 1;
                    let operation = ack.operation();
                    self.pull(MatchedRendezvous { request, status, span, operation, buffer });
                }
            }
        }
    }

    /// Puts an eager message that has just come into a receive's buffer, of several slices or too
    /// short as it may be, and ends the receive.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_long(&mut self, request: RequestId, status: &Status, bytes: &Bytes<'_>) {
        let mut status = *status;
        let Some(mut buffer) = self.buffer_for(request, status.source) else { return };
        self.counters.posted += 1;
        bytes.copy_to_room(TMH_BYTES, buffer.room().unwrap_or_default());
        buffer.scatter(bytes, TMH_BYTES);
        self.truncate(&mut status, &buffer);
        self.requests.complete(request, Ok(status), buffer);
    }

    /// Puts a message that has waited into a receive's buffer.
    pub(crate) fn deliver_waiting(&mut self, request: RequestId, message: Key) {
        let message = match self.unexpected.remove(message).or_bug("a message that waits is held") {
            Ok(message) => message,
            Err(bug) => return self.requests.fail(request, Fault::Bug(bug)),
        };
        if message.is_lost() {
            return self.requests.fail(request, self.down(message.source));
        }
        let Some(buffer) = self.buffer_for(request, message.source) else {
            return self.drop_body(message);
        };
        self.counters.posted += 1;
        self.fill(request, message, buffer);
    }

    /// The buffer of a posted receive, for a message of `peer`. `None` would be a bug: the message
    /// is lost, so the connection to its sender ends.
    fn buffer_for(&mut self, request: RequestId, peer: PeerId) -> Option<Buffer> {
        match self.requests.get_mut(request).or_bug("a receive that gets a message is posted") {
            Ok(line) => Some(std::mem::take(&mut line.buffer)),
            Err(bug) => {
                self.todo.push(Todo::Break(peer, PeerFault::Bug(bug)));
                None
            }
        }
    }

    /// Reads what fits of a matched message out of its sender's memory.
    pub(crate) fn pull(&mut self, matched: MatchedRendezvous) {
        let MatchedRendezvous { request, status, span, operation, buffer } = matched;
        let length = span.length.min(buffer.total_len() as u64);
        if length == 0 {
            self.received(request, status, buffer);
            self.acknowledge(status.source, Some(operation));
            return;
        }
        self.requests.read(request, &status, operation);
        self.counters.reads += 1;
        let span = RemoteSpan { length, ..span };
        self.todo.push(Todo::Read { request, peer: status.source, span, buffer });
    }

    /// A receive has its bytes.
    #[inline]
    pub(crate) fn received(&mut self, request: RequestId, mut status: Status, buffer: Buffer) {
        self.truncate(&mut status, &buffer);
        self.requests.complete(request, Ok(status), buffer);
    }

    #[inline]
    pub(crate) fn truncate(&mut self, status: &mut Status, buffer: &Buffer) {
        let is_long = status.length > buffer.len() as u64;
        status.truncated = is_long && slices::is_too_long(buffer, status.length);
        self.counters.truncated += u64::from(status.truncated);
    }

    /// Drops a message that a matched probe took; its sender completes as if it had been received.
    pub(crate) fn discard(&mut self, message: UnexpectedMessage) {
        self.counters.discarded += 1;
        if !message.is_lost() {
            let peer = message.source;
            let operation = message.operation();
            self.drop_body(message);
            self.acknowledge(peer, operation);
        }
    }

    /// Drops a message, whose credit is free again.
    fn drop_body(&mut self, message: UnexpectedMessage) {
        let status = message.status();
        match message.body {
            Body::Stored(stored) => self.drop_stored(&status, stored),
            Body::Remote { .. } => self.freed(status.source, Amount::RENDEZVOUS),
            Body::Lost => {}
        }
    }

    /// Puts a message at the end of the unexpected list.
    #[inline]
    pub(crate) fn push_unexpected(&mut self, message: UnexpectedMessage) {
        if let Some(key) = self.unexpected.hold(message) {
            self.list_unexpected(key);
        }
    }

    /// Puts a message that was held at the end of the unexpected list.
    #[inline]
    pub(crate) fn list_unexpected(&mut self, key: Key) {
        self.unexpected.list(key);
        if self.observer.is_on()
            && let Some(status) = self.unexpected.get(key).map(UnexpectedMessage::status)
        {
            self.observer.tell(|observer| observer.unexpected(key.index, &status));
        }
    }

    /// Removes a message of a dead peer from the unexpected list.
    fn drop_listed(&mut self, listed: Listed) -> Option<UnexpectedMessage> {
        self.observer.tell(|observer| observer.lost(listed.index));
        self.unexpected.drop_listed(listed)
    }

    /// Frees what a stored message took.
    #[inline]
    fn drop_stored(&mut self, status: &Status, stored: Stored) {
        let cost = Amount::of_eager(status.length);
        self.unexpected.free(cost, stored);
        self.freed(status.source, cost);
    }

    /// A message's credit is free again.
    #[inline]
    pub(crate) fn freed(&mut self, peer: PeerId, cost: Amount) {
        let ProtocolState { peers, pool, .. } = self;
        if let Some(p) = peers.get_mut(peer.index()) {
            p.grant.freed(cost, pool);
        }
        self.grant_credit(peer);
    }

    /// Grants a peer the credit that it is due. A peer that doesn't drain its control messages is
    /// granted none: it could make us owe it more of them.
    #[inline]
    pub(crate) fn grant_credit(&mut self, peer: PeerId) {
        let ProtocolState { peers, pool, .. } = self;
        let due = |p: &mut Peer| if p.controls.is_empty() { p.grant.due(pool) } else { None };
        if let Some(credit) = peers.get_mut(peer.index()).and_then(due) {
            self.send_credit(peer, credit);
        }
    }

    pub(crate) fn send_credit(&mut self, peer: PeerId, credit: Amount) {
        let messages = u32::try_from(credit.messages).unwrap_or(u32::MAX);
        let control = Control::Credit { messages, bytes: credit.bytes };
        self.counters.credits_sent += 1;
        self.todo.push(Todo::Control(peer, control.emit()));
        // The pool shrinks only by grants, so it is enough to look here whether it runs short.
        if self.pool.is_kept_by_the_dead() {
            self.forget_the_dead();
        }
    }

    /// Drops waiting messages of peers that are down, until these keep at most half of the pool or
    /// it is no longer short. The peers that went down first come first; of each, all messages are
    /// dropped that are on the list.
    ///
    /// Linear in the waiting messages, as the end of a peer is.
    #[cold]
    #[inline(never)]
    fn forget_the_dead(&mut self) {
        let mut waiting: BTreeMap<PeerId, Vec<_>> = BTreeMap::new();
        for (source, listed) in self.unexpected.in_order() {
            waiting.entry(source).or_default().push(listed);
        }
        for _ in 0..self.dead.len() {
            if !self.pool.is_kept_by_the_dead() {
                return;
            }
            let Some(id) = self.dead.pop_front() else { return };
            for listed in waiting.remove(&id).unwrap_or_default() {
                if let Some(message) = self.drop_listed(listed)
                    && let (status, Body::Stored(stored)) = (message.status(), message.body)
                {
                    self.counters.lost_messages += 1;
                    self.peer_mut(id).lost_messages = true;
                    self.drop_stored(&status, stored);
                }
            }
            // A message that a probe has taken is not on the list; one that waits for a NIC is not
            // there yet.
            if self.peer_mut(id).grant.is_held() {
                self.dead.push_back(id);
            }
        }
    }

    /// Tells a sender that waits for it that its message is where it should be.
    #[inline]
    pub(crate) fn acknowledge(&mut self, peer: PeerId, operation: Option<AppCtx>) {
        if let Some(app_ctx) = operation {
            let fin = Tmh { opcode: Opcode::Fin, app_ctx, tag: Tag(0) };
            self.todo.push(Todo::Control(peer, fin.emit()));
        }
    }

    /// Tells a sender that its message was matched and could not be read.
    pub(crate) fn abort(&mut self, peer: PeerId, app_ctx: AppCtx, errno: i32) {
        let errno = u32::try_from(errno).unwrap_or(0);
        self.todo.push(Todo::Control(peer, Control::Abort { app_ctx, errno }.emit()));
    }

    /// A rendezvous request with a companion has come; `landing` if the NIC has matched it. A peer
    /// whose last request still lacks its companion has broken the protocol.
    pub(crate) fn await_companion(
        &mut self,
        peer: PeerId,
        operation: AppCtx,
        landing: Option<Key>,
    ) {
        let awaited = self.peer_mut(peer).awaited.replace((operation, landing));
        if let Some((late, _)) = awaited {
            let error =
                WireError::NoSuchOperation { kind: MessageKind::Companion, operation: late };
            self.todo.push(Todo::Break(peer, PeerFault::Protocol(error)));
        }
    }

    /// Rendezvous requests of a dead peer can't be answered: those that wait leave the list, those
    /// that a matched probe holds turn into an error for whoever receives them.
    pub(crate) fn lose_rendezvous(&mut self, id: PeerId) {
        let of_peer = self.unexpected.in_order().filter(|(source, _)| *source == id);
        let of_peer: Vec<_> = of_peer.map(|(_, listed)| listed).collect();
        for listed in of_peer {
            let message = self.unexpected.listed_message(listed);
            if message.is_some_and(UnexpectedMessage::is_remote) {
                self.drop_listed(listed);
                self.lost_rendezvous(id);
            }
        }
        for _ in 0..self.unexpected.lose(id) {
            self.lost_rendezvous(id);
        }
    }

    /// One rendezvous request of a dead peer will never be received.
    pub(crate) fn lost_rendezvous(&mut self, id: PeerId) {
        self.counters.lost_rendezvous += 1;
        self.freed(id, Amount::RENDEZVOUS);
    }
}

#[cfg(test)]
mod tests {
    use tagmatch_device::{Bytes, ToleratedBugs, bugs};
    use tagmatch_soft::TagMask;

    use super::*;
    use crate::credit::{CreditConfig, CreditGrant};

    const SENDER: PeerId = PeerId(1);
    const STATUS: Status =
        Status { source: SENDER, tag: Tag(7), length: 5, truncated: false, immediate: None };
    /// The place of the header, and a payload.
    const MESSAGE: [u8; TMH_BYTES + 5] = [3; TMH_BYTES + 5];

    fn arrival<'a>(bytes: &'a Bytes<'_>) -> ArrivedMessage<'a> {
        let ack = AppCtx::new(3, 0).with_ack();
        ArrivedMessage { status: STATUS, ack, payload: Payload::Here(bytes) }
    }

    /// The state of an engine that has granted a sender credit and taken in a message of it.
    fn state_with_sender() -> ProtocolState {
        let amount = Amount { messages: 64, bytes: 4096 };
        let mut state = ProtocolState::new(&EngineConfig {
            eager_max: 64,
            fragmented_max: 0,
            operations_max: 8,
            credit: CreditConfig { pool: amount, first: amount, peer_max: amount },
            nic_threshold: 0,
            source_bits: TagMask::ANY,
            departed_max: 1,
            seed: 0,
        });
        let (grant, _) = CreditGrant::open(&mut state.pool);
        state.peer_mut(SENDER).grant = grant;
        assert!(state.peer_mut(SENDER).grant.arrived(Amount::of_eager(STATUS.length)));
        state
    }

    /// Runs `deliver` for a receive that isn't there, and expects that the sender doesn't wait for
    /// ever: the connection to it ends, and its credit is free again.
    fn sender_is_let_go(deliver: impl FnOnce(&mut ProtocolState, RequestId)) {
        let mut state = state_with_sender();
        let gone = state.requests.begin().unwrap();
        state.requests.complete(gone, Ok(STATUS), Buffer::default());
        state.requests.take(gone).unwrap();
        let before = bugs();
        let _tolerated = ToleratedBugs::new();
        deliver(&mut state, gone);
        assert!(bugs() > before);
        let ended = |todo: &Todo| matches!(todo, Todo::Break(SENDER, PeerFault::Bug(_)));
        assert!(state.todo.iter().any(ended), "{:?}", state.todo);
        assert!(!state.peer_mut(SENDER).grant.is_held() && state.unexpected.bytes() == 0);
    }

    #[test]
    fn a_message_whose_receive_is_missing_ends_the_connection_to_its_sender() {
        sender_is_let_go(|state, gone| {
            state.deliver_here(gone, &arrival(&Bytes::from_slice(&MESSAGE)));
        });
    }

    #[test]
    fn a_message_that_has_waited_for_a_missing_receive_ends_the_connection_to_its_sender() {
        sender_is_let_go(|state, gone| {
            let bytes = Bytes::from_slice(&MESSAGE);
            let message = state.unexpected.store(&arrival(&bytes));
            let message = state.unexpected.hold(message).unwrap();
            state.deliver_waiting(gone, message);
        });
    }

    #[test]
    fn a_receive_whose_message_is_missing_fails() {
        let mut state = state_with_sender();
        let request = state.requests.begin().unwrap();
        let _tolerated = ToleratedBugs::new();
        state.deliver_waiting(request, Key { index: 5, generation: 0 });
        let ended = state.requests.take(request).unwrap();
        assert!(matches!(ended.result, Err(Fault::Bug(_))), "{:?}", ended.result);
    }
}
