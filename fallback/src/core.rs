//! The protocol as a pure state machine: events in, things to do out. No device in sight.

use std::collections::VecDeque;

use tagmatch_device::{Buffer, Bytes, Event, ExposureId, Incoming, PeerId, ReadError, RemoteSpan};
use tagmatch_soft::{Pattern, PostedList, SourceId, UnexpectedList};

use crate::EngineConfig;
use crate::counters::Counters;
use crate::credit::{Amount, Pool};
use crate::error::{Fault, PeerFault};
use crate::line::Owner;
use crate::message::{Body, Message};
use crate::nic::{Nic, Payload};
use crate::peer::{Peer, PeerState};
use crate::request::{Posted, Refused, RequestId, Status};
use crate::requests::{REQUESTS_MAX, Requests};
use crate::slab::Slab;
use crate::store::{Store, Stored};
use crate::wire::{self, AppCtx, Control, Kind, Opcode, TMH_BYTES, Tmh, WireError};

/// Unexpected messages that a worker can hold at once: as many as a matching list holds.
pub(crate) const MESSAGES_MAX: u32 = 1 << 30;

/// Something that the device is to do, decided while an event was looked at.
#[derive(Clone, Debug)]
pub(crate) enum Todo {
    /// Send 16 bytes: a FIN, a credit, an abort.
    Control(PeerId, [u8; 16]),
    /// Read a matched message out of its sender's memory.
    Read { request: RequestId, peer: PeerId, span: RemoteSpan, buffer: Buffer },
    /// A send has ended: take its buffer back and complete it.
    Finish(Operation, Result<(), Fault>),
    /// Something that a peer's sends waited for is there.
    Flush(PeerId),
    /// Break with a peer that broke the protocol.
    Break(PeerId, WireError),
    /// Tend the NIC's list.
    Nic,
}

/// A send that ends with a FIN or an abort.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) request: RequestId,
    pub(crate) status: Status,
    pub(crate) memory: SendMemory,
}

/// Where the bytes of an operation are until it ends.
#[derive(Clone, Debug)]
pub(crate) enum SendMemory {
    /// The peer may read them.
    Exposed(ExposureId),
    /// They are on their way already.
    Sent(Buffer),
}

/// All state of the protocol.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) peers: Vec<Peer>,
    pub(crate) requests: Requests,
    pub(crate) operations: Slab<Operation>,
    pub(crate) messages: Slab<Message>,
    pub(crate) posted: PostedList<u32>,
    pub(crate) unexpected: UnexpectedList<u32>,
    pub(crate) store: Store,
    pub(crate) pool: Pool,
    /// Peers that are down and left messages that hold credit, in the order of their ends. Each is here once.
    pub(crate) dead: VecDeque<PeerId>,
    pub(crate) todo: Vec<Todo>,
    pub(crate) counters: Counters,
    /// If the device has a list of receives.
    pub(crate) nic: Option<Box<Nic>>,
    pub(crate) is_closing: bool,
}

impl Core {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        Core {
            peers: Vec::new(),
            requests: Requests::new(),
            operations: Slab::default(),
            messages: Slab::default(),
            posted: PostedList::new(config.seed),
            unexpected: UnexpectedList::new(config.seed.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15),
            store: Store::default(),
            pool: Pool::new(config.credit),
            dead: VecDeque::new(),
            todo: Vec::new(),
            counters: Counters::default(),
            nic: None,
            is_closing: false,
        }
    }

    /// Takes in any event of the device.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_rare(&mut self, event: Option<Event<'_>>) {
        let Some(event) = event else { return };
        match event {
            Event::Tag(event) => self.tag_event(event),
            Event::Message(incoming) => self.message(&incoming),
            Event::ReadDone { token, into, result } => self.read_done(token, into, result),
            Event::PeerUp { peer, limits } => self.peer_up(peer, limits.message_max),
            Event::PeerDown { peer, reason } => self.peer_down(peer, reason.into()),
        }
    }

    /// Takes in a message.
    #[inline(always)]
    pub(crate) fn message(&mut self, incoming: &Incoming<'_>) {
        if !self.eager(incoming) {
            self.other_message(incoming);
        }
    }

    #[inline(never)]
    fn other_message(&mut self, incoming: &Incoming<'_>) {
        if let Err(error) = self.parse_message(incoming) {
            self.todo.push(Todo::Break(incoming.peer, error));
        }
    }

    fn parse_message(&mut self, incoming: &Incoming<'_>) -> Result<(), WireError> {
        let Incoming { peer, immediate, through_list, bytes } = incoming;
        if matches!(self.peer_mut(*peer).state, PeerState::Down(_)) {
            self.dropped(*through_list);
            return Ok(());
        }
        match wire::Message::parse(bytes).inspect_err(|_| self.dropped(*through_list))? {
            wire::Message::Eager(tmh) => {
                self.other_eager(*peer, &tmh, *immediate, *through_list, bytes)
            }
            wire::Message::Rendezvous(request) => self.rendezvous(*peer, &request, *through_list),
            wire::Message::Fin(operation) => {
                let ended = self.end_operation(*peer, operation, Kind::Fin)?;
                self.todo.push(Todo::Finish(ended, Ok(())));
                Ok(())
            }
            wire::Message::Control(Control::Credit { messages, bytes }) => {
                self.peer_mut(*peer).allowance.add(Amount { messages: messages.into(), bytes });
                self.todo.push(Todo::Flush(*peer));
                Ok(())
            }
            wire::Message::Control(Control::Abort { app_ctx, errno }) => {
                let ended = self.end_operation(*peer, app_ctx, Kind::Abort)?;
                let errno = i32::try_from(errno).unwrap_or(0);
                self.todo.push(Todo::Finish(ended, Err(Fault::NotRead { peer: *peer, errno })));
                Ok(())
            }
            wire::Message::Control(Control::Companion { app_ctx, immediate, has_length }) => {
                let note = |status: &mut Status| status.immediate = immediate;
                self.companion(*peer, app_ctx, !has_length, note)
            }
            wire::Message::Control(Control::Length { app_ctx, length }) => {
                self.companion(*peer, app_ctx, true, |status| status.length = length)
            }
        }
    }

    /// The short way: an eager message for a posted receive. `false`: it is something else, and
    /// nothing was done.
    #[inline(always)]
    fn eager(&mut self, incoming: &Incoming<'_>) -> bool {
        if self.nic.is_some() {
            return false;
        }
        let Incoming { peer, immediate, ref bytes, .. } = *incoming;
        let Some(tmh) = wire::Message::parse_eager(bytes) else { return false };
        let Some(known) = self.peers.get_mut(peer.index()) else { return false };
        let length = bytes.len() - TMH_BYTES;
        let cost = Amount::eager(length);
        // Without credit, and of a peer that is down, whose credit is gone too, nothing is taken.
        if !known.grant.covers(cost) || known.state != PeerState::Up {
            return false;
        }
        let Some(index) = self.posted.take_match(tmh.tag, SourceId(peer.0)) else { return false };
        known.grant.passed(cost);
        let is_low = known.grant.is_low();
        if let Some((key, request)) = self.requests.matched(index) {
            let room = request.buffer.as_mut_slice().unwrap_or_default();
            let truncated = length > room.len();
            bytes.copy_to(TMH_BYTES, room);
            let length = length as u64;
            request.finish(&Status { source: peer, tag: tmh.tag, length, truncated, immediate });
            self.counters.posted += 1;
            self.counters.truncated += u64::from(truncated);
            if request.owner != Owner::Asks {
                self.requests.tell_owner(key);
            }
        }
        if tmh.app_ctx.ack_wanted() {
            self.acknowledge(peer, Some(tmh.app_ctx.operation()));
        }
        if is_low {
            self.grant_credit(peer);
        }
        true
    }

    /// An eager message that no receive was posted for, that a NIC may have something to do with, or that
    /// breaks a rule.
    fn other_eager(
        &mut self,
        peer: PeerId,
        tmh: &Tmh,
        immediate: Option<u32>,
        through_list: bool,
        bytes: &Bytes<'_>,
    ) -> Result<(), WireError> {
        let length = bytes.len() - TMH_BYTES;
        let cost = Amount::eager(length);
        if !self.peer_mut(peer).grant.arrived(cost) {
            self.dropped(through_list);
            return Err(WireError::Credit { bytes: cost.bytes });
        }
        let length = length as u64;
        let status = Status { source: peer, tag: tmh.tag, length, truncated: false, immediate };
        if self.nic.is_some() {
            self.came_up(status, tmh.app_ctx, Payload::Here(bytes), through_list);
            return Ok(());
        }
        let body = Body::Stored(self.store.put(bytes, TMH_BYTES));
        self.counters.unexpected_bytes_now += cost.bytes;
        self.unexpected(Message::new(&status, tmh.app_ctx, body));
        self.grant_credit(peer);
        Ok(())
    }

    fn rendezvous(
        &mut self,
        peer: PeerId,
        request: &wire::Rendezvous,
        through_list: bool,
    ) -> Result<(), WireError> {
        if !self.peer_mut(peer).grant.arrived(Amount::RENDEZVOUS) {
            self.dropped(through_list);
            return Err(WireError::Credit { bytes: 0 });
        }
        let wire::Rendezvous { app_ctx, tag, span, immediate } = *request;
        let status = Status { source: peer, tag, length: span.length, truncated: false, immediate };
        if app_ctx.has_companion() {
            self.await_companion(peer, app_ctx.operation(), None);
        }
        if self.nic.is_some() {
            self.came_up(status, app_ctx.with_ack(), Payload::Remote(span), through_list);
            return Ok(());
        }
        let matched = self.posted.take_match(tag, SourceId(peer.0));
        if let Some((key, request)) = matched.and_then(|index| self.requests.matched(index)) {
            let buffer = std::mem::take(&mut request.buffer);
            self.counters.posted += 1;
            self.freed(peer, Amount::RENDEZVOUS);
            self.pull(key, status, span, app_ctx.operation(), buffer);
        } else {
            let body = Body::Remote { address: span.address, key: span.key };
            self.unexpected(Message::new(&status, app_ctx.with_ack(), body));
            self.grant_credit(peer);
        }
        Ok(())
    }

    pub(crate) fn unexpected(&mut self, message: Message) {
        let Message { tag, source, .. } = message;
        if let Ok(key) = self.messages.insert(message, MESSAGES_MAX) {
            self.unexpected.push(tag, SourceId(source.0), key.index);
        }
    }

    /// Posts a receive, or gives it the oldest waiting message. `is_sole`: see [`Engine::receive_with`].
    ///
    /// [`Engine::receive_with`]: crate::Engine::receive_with
    #[inline(always)]
    pub(crate) fn receive(&mut self, pattern: &Pattern, buffer: Buffer, is_sole: bool) -> Posted {
        if !buffer.is_writable() {
            return failed(Fault::ReadOnlyBuffer, buffer);
        }
        let Some(index) = self.requests.next_index() else {
            return failed(Fault::TooMany { limit: REQUESTS_MAX }, buffer);
        };
        if !self.unexpected.is_empty()
            // Of copies, here and below, so that a pattern that was made in registers stays there.
            && let Some(message) = self.unexpected.take(&{ *pattern })
        {
            return self.receive_unexpected(message, buffer);
        }
        if let Some(source) = pattern.source() {
            let peer = PeerId(source.0);
            match self.peers.get(peer.index()).map(|p| &p.state) {
                None => return failed(Fault::NoSuchPeer { peer }, buffer),
                Some(&PeerState::Down(fault)) => {
                    return failed(Fault::PeerDown { peer, fault }, buffer);
                }
                Some(_) => {}
            }
        }
        let handle = self.posted.post(*pattern, index);
        if let Some(nic) = &mut self.nic {
            // The NIC is asked for the tag alone, so the shadow sees the receive without its source. Messages
            // to oneself never pass the list.
            let oneself = SourceId(PeerId::ONESELF.0);
            let by_tag = Pattern::new(pattern.tag(), pattern.mask());
            let is_sole = is_sole && pattern.source() != Some(oneself);
            let asked = if is_sole { by_tag } else { *pattern };
            nic.shadow.post(index, &asked, buffer.len() as u64, true);
            self.nic_due();
        }
        Ok(self.requests.post(handle, buffer))
    }

    #[inline(never)]
    fn receive_unexpected(&mut self, index: u32, buffer: Buffer) -> Posted {
        match self.messages.key_at(index).and_then(|key| self.messages.remove(key)) {
            Some(message) => {
                self.counters.unexpected += 1;
                self.deliver(message, buffer)
            }
            None => failed(Fault::NoSuchMessage, buffer),
        }
    }

    /// Puts a waiting message into a buffer.
    pub(crate) fn deliver(&mut self, message: Message, buffer: Buffer) -> Posted {
        if matches!(message.body, Body::Lost) {
            return failed(self.down(message.source), buffer);
        }
        let Some(key) = self.requests.begin() else {
            self.discard(message);
            return failed(Fault::TooMany { limit: REQUESTS_MAX }, buffer);
        };
        self.fill(key, message, buffer);
        Ok(key)
    }

    /// Puts a message that is here or with its sender into the buffer of its receive.
    pub(crate) fn fill(&mut self, key: RequestId, message: Message, mut buffer: Buffer) {
        let operation = message.operation();
        let mut status = message.status();
        let peer = status.source;
        match message.body {
            Body::Stored(stored) => {
                let room = buffer.as_mut_slice().unwrap_or_default();
                let payload = stored.bytes(usize::try_from(status.length).unwrap_or(usize::MAX));
                let fits = room.len().min(payload.len());
                room[..fits].copy_from_slice(&payload[..fits]);
                self.drop_stored(&status, stored);
                self.acknowledge(peer, operation);
                self.truncate(&mut status, &buffer);
                self.requests.complete(key, Ok(status), buffer);
            }
            Body::Remote { address, key: remote } => {
                self.freed(peer, Amount::RENDEZVOUS);
                let span = RemoteSpan { address, key: remote, length: status.length };
                self.pull(key, status, span, operation.unwrap_or_default(), buffer);
            }
            Body::Lost => {}
        }
    }

    /// Reads what fits of a matched message out of its sender's memory.
    pub(crate) fn pull(
        &mut self,
        key: RequestId,
        status: Status,
        span: RemoteSpan,
        operation: AppCtx,
        buffer: Buffer,
    ) {
        let length = span.length.min(buffer.len() as u64);
        if length == 0 {
            self.received(key, status, buffer);
            self.acknowledge(status.source, Some(operation));
            return;
        }
        if let Some(request) = self.requests.get_mut(key) {
            request.read(&status, operation);
        }
        self.counters.reads += 1;
        let span = RemoteSpan { length, ..span };
        self.todo.push(Todo::Read { request: key, peer: status.source, span, buffer });
    }

    /// A read has ended.
    pub(crate) fn read_done(&mut self, token: u64, buffer: Buffer, result: Result<(), ReadError>) {
        let key = RequestId::from_token(token);
        let Some((status, operation)) =
            self.requests.get(key).and_then(|request| request.reading())
        else {
            return;
        };
        let peer = status.source;
        match result {
            Ok(()) => {
                self.received(key, status, buffer);
                self.acknowledge(peer, Some(operation));
            }
            Err(ReadError::PeerDown) => {
                let fault = self.down(peer);
                self.requests.complete(key, Err(fault), buffer);
            }
            Err(error) => {
                let errno = if let ReadError::Failed { errno } = error { errno } else { 0 };
                self.abort(peer, operation, errno);
                self.requests.complete(key, Err(Fault::ReadFailed { peer, errno }), buffer);
            }
        }
    }

    /// A receive has its bytes.
    #[inline]
    pub(crate) fn received(&mut self, request: RequestId, mut status: Status, buffer: Buffer) {
        self.truncate(&mut status, &buffer);
        self.requests.complete(request, Ok(status), buffer);
    }

    #[inline]
    pub(crate) fn truncate(&mut self, status: &mut Status, buffer: &Buffer) {
        status.truncated = status.length > buffer.len() as u64;
        self.counters.truncated += u64::from(status.truncated);
    }

    /// Frees what a stored message took.
    pub(crate) fn drop_stored(&mut self, status: &Status, stored: Stored) {
        let cost = Amount::eager(usize::try_from(status.length).unwrap_or(usize::MAX));
        self.counters.unexpected_bytes_now -= cost.bytes;
        self.store.free(stored);
        self.freed(status.source, cost);
    }

    /// A message's credit is free again.
    #[inline]
    pub(crate) fn freed(&mut self, peer: PeerId, cost: Amount) {
        let Core { peers, pool, .. } = self;
        if let Some(p) = peers.get_mut(peer.index()) {
            p.grant.freed(cost, pool);
        }
        self.grant_credit(peer);
    }

    #[inline]
    pub(crate) fn grant_credit(&mut self, peer: PeerId) {
        let Core { peers, pool, .. } = self;
        // Who takes no answers is granted nothing to which more would be due.
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
        // Each grant comes by here, so that the pool never runs short unnoticed.
        if self.pool.is_kept_by_the_dead() {
            self.forget_the_dead();
        }
    }

    /// Tells a sender that waits for it that its message is where it should be.
    #[inline]
    pub(crate) fn acknowledge(&mut self, peer: PeerId, operation: Option<AppCtx>) {
        if let Some(app_ctx) = operation {
            let tag = tagmatch_soft::Tag(0);
            let fin = Tmh { opcode: Opcode::Fin, app_ctx, tag };
            self.todo.push(Todo::Control(peer, fin.emit()));
        }
    }

    pub(crate) fn abort(&mut self, peer: PeerId, app_ctx: AppCtx, errno: i32) {
        let errno = u32::try_from(errno).unwrap_or(0);
        self.todo.push(Todo::Control(peer, Control::Abort { app_ctx, errno }.emit()));
    }

    fn end_operation(
        &mut self,
        peer: PeerId,
        operation: AppCtx,
        kind: Kind,
    ) -> Result<Operation, WireError> {
        let key = self.operations.key_at(operation.index()).filter(|key| {
            let ours = AppCtx::new(key.index, key.generation) == operation;
            ours && self.operations.get(*key).is_some_and(|op| op.status.source == peer)
        });
        key.and_then(|key| self.operations.remove(key))
            .ok_or(WireError::NoSuchOperation { kind, operation })
    }

    /// The fault of operations with a peer that is down.
    pub(crate) fn down(&self, peer: PeerId) -> Fault {
        let state = self.peers.get(peer.index()).map(|p| &p.state);
        let fault = if let Some(&PeerState::Down(fault)) = state { fault } else { PeerFault::Gone };
        Fault::PeerDown { peer, fault }
    }

    /// The record of a peer; made when the device names a peer for the first time.
    #[inline]
    pub(crate) fn peer_mut(&mut self, peer: PeerId) -> &mut Peer {
        if peer.index() >= self.peers.len() {
            self.peers.resize_with(peer.index() + 1, Peer::default);
        }
        &mut self.peers[peer.index()]
    }
}

/// The end of an operation before it has begun.
#[cold]
#[inline(never)]
pub(crate) fn failed(fault: Fault, buffer: Buffer) -> Posted {
    Err(Box::new(Refused { fault, buffer }))
}
