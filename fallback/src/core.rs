//! The protocol as a pure state machine: it takes events and returns things to do, and never calls
//! the device.

mod fragments;
mod waiting;

use tagmatch_device::slab::Key;
use tagmatch_device::{Buffer, BufferParts, Event, Incoming, Limits, PeerId, ReadError, TagList};
use tagmatch_shadow::CancelAnswer;
use tagmatch_soft::{Pattern, SourceId, TagMask};

use crate::config::EngineConfig;
use crate::credit::{Amount, CreditGrant};
use crate::decisions::Decision;
use crate::error::{Fault, PeerFault};
use crate::offload::Offload;
use crate::peers::peer::{self, PeerState};
use crate::receiving::unexpected::{ArrivedMessage, Payload};
use crate::requests::ends::EndList;
use crate::requests::line::RequestOwner;
use crate::requests::request::{Posted, RequestId, Status, refuse};
use crate::requests::table::REQUESTS_MAX;
use crate::slices;
use crate::state::{CutShort, MatchedRendezvous, ProtocolState};
use crate::todo::{Operation, Todo};
use crate::wire::{
    AppCtx, Control, MessageKind, Rendezvous, TMH_BYTES, Tmh, WireError, WireMessage,
};

/// All state of the protocol.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    state: ProtocolState,
    /// The NIC's side, if the device has a list of receives.
    offload: Option<Box<Offload>>,
    /// Whether a NIC's list or an observer exists. Then no message and no posted receive takes the
    /// short way.
    leaves_short_way: bool,
    /// The bits of a tag that name its sender.
    source_bits: TagMask,
}

/// Whether [`Core::eager`] has taken a message in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EagerTaken {
    Yes,
    /// It is another message, and nothing was done.
    No,
    /// Nothing was done: more than a receive that ends may follow from it.
    AsksMore,
}

impl Core {
    pub(crate) fn new(config: &EngineConfig, offload: Option<Box<Offload>>) -> Self {
        let leaves_short_way = offload.is_some();
        let state = ProtocolState::new(config);
        let source_bits = config.source_bits;
        Core { state, offload, leaves_short_way, source_bits }
    }

    #[inline(always)]
    pub(crate) fn state(&self) -> &ProtocolState {
        &self.state
    }

    #[inline(always)]
    pub(crate) fn state_mut(&mut self) -> &mut ProtocolState {
        &mut self.state
    }

    /// The NIC's side, if the device has a list of receives.
    pub(crate) fn offload(&self) -> Option<&Offload> {
        self.offload.as_deref()
    }

    /// Brings the NIC's list up to date.
    pub(crate) fn carry_out(&mut self, list: &mut dyn TagList) {
        if let Some(offload) = &mut self.offload {
            offload.carry_out(&mut self.state, list);
        }
    }

    /// Takes in any event of the device. `ends`: see
    /// [`MatchEngine::take_ends`](crate::MatchEngine::take_ends).
    #[inline(never)]
    pub(crate) fn event(&mut self, event: Event<'_>, ends: &mut impl EndList) {
        match event {
            Event::Message(incoming) => self.message(&incoming, ends),
            Event::ReadDone { token, into, result } => self.read_done(token, into, result),
            Event::AccessDone(end) => self.state.accessed(end),
            Event::PeerUp { peer, limits } => self.peer_up(peer, limits),
            Event::PeerDown { peer, reason } => self.peer_down(peer, reason.into()),
            Event::Tag(event) => {
                if let Some(offload) = &mut self.offload {
                    offload.event(&mut self.state, event);
                }
            }
        }
    }

    /// Takes in a message. `ends`: see [`MatchEngine::take_ends`](crate::MatchEngine::take_ends).
    #[inline(always)]
    pub(crate) fn message(&mut self, incoming: &Incoming<'_>, ends: &mut impl EndList) {
        let mut taken = EagerTaken::AsksMore;
        if !self.leaves_short_way {
            taken = self.eager::<true>(incoming, ends);
        }
        if taken != EagerTaken::Yes {
            // A copy is passed, so that a message that is in registers stays there.
            let copy = *incoming;
            self.other_message(&copy, taken, ends);
        }
    }

    #[cold]
    #[inline(never)]
    fn other_message(
        &mut self,
        incoming: &Incoming<'_>,
        taken: EagerTaken,
        ends: &mut impl EndList,
    ) {
        if taken == EagerTaken::AsksMore
            && self.offload.is_none()
            && self.eager::<false>(incoming, ends) == EagerTaken::Yes
        {
            return;
        }
        if let Err(error) = self.parse_message(incoming) {
            self.state.todo.push(Todo::Break(incoming.peer, PeerFault::Protocol(error)));
        }
    }

    fn parse_message(&mut self, incoming: &Incoming<'_>) -> Result<(), WireError> {
        let Incoming { peer, through_list, bytes, .. } = incoming;
        if matches!(self.state.peer_mut(*peer).state, PeerState::Down(_)) {
            self.dropped(*through_list);
            return Ok(());
        }
        match WireMessage::parse(bytes).inspect_err(|_| self.dropped(*through_list))? {
            WireMessage::Eager(tmh) => self.other_eager(incoming, &tmh),
            WireMessage::Rendezvous(request) => self.rendezvous(*peer, &request, *through_list),
            WireMessage::Fin(operation) => {
                let ended = self.end_operation(*peer, operation, MessageKind::Fin)?;
                self.state.todo.push(Todo::Finish(ended, Ok(())));
                Ok(())
            }
            WireMessage::Control(Control::Credit { messages, bytes }) => {
                let credit = Amount { messages: messages.into(), bytes };
                self.state.peer_mut(*peer).allowance.add(credit);
                self.state.todo.push(Todo::Flush(*peer));
                Ok(())
            }
            WireMessage::Control(Control::Abort { app_ctx, errno }) => {
                let ended = self.end_operation(*peer, app_ctx, MessageKind::Abort)?;
                let errno = i32::try_from(errno).unwrap_or(0);
                let fault = Fault::NotRead { peer: *peer, errno };
                self.state.todo.push(Todo::Finish(ended, Err(fault)));
                Ok(())
            }
            WireMessage::Control(Control::Companion { app_ctx, immediate, has_length }) => {
                let note = |status: &mut Status| status.immediate = immediate;
                self.companion(*peer, app_ctx, !has_length, note)
            }
            WireMessage::Control(Control::Length { app_ctx, length }) => {
                self.companion(*peer, app_ctx, true, |status| status.length = length)
            }
            WireMessage::Rma(header) => self.state.one_sided(*peer, &header, bytes),
            WireMessage::Fragment(fragment) => {
                let takes_fragments = self.offload.is_none();
                fragments::take_in(&mut self.state, takes_fragments, incoming, fragment)
            }
        }
    }

    /// Takes in an eager message that matches a posted receive. `IS_SHORT`: and of which nothing
    /// else follows, neither an acknowledgement nor credit nor a call of an observer, so that none
    /// of it is in the code of the short way.
    #[inline(always)]
    fn eager<const IS_SHORT: bool>(
        &mut self,
        incoming: &Incoming<'_>,
        ends: &mut impl EndList,
    ) -> EagerTaken {
        let state = &mut self.state;
        let Incoming { peer, immediate, ref bytes, .. } = *incoming;
        let tmh = if IS_SHORT {
            let Some(plain) = WireMessage::parse_plain_eager(bytes) else {
                return EagerTaken::AsksMore;
            };
            plain
        } else {
            let Some(tmh) = WireMessage::parse_eager(bytes) else { return EagerTaken::No };
            tmh
        };
        let Some(known) = state.peers.get_mut(peer.index()) else { return EagerTaken::No };
        let length = bytes.len() - TMH_BYTES;
        let cost = Amount::eager(length);
        // A message without credit is refused. A peer that is down has no credit.
        let is_low = !known.grant.stays_high(cost);
        if IS_SHORT && is_low {
            return EagerTaken::AsksMore;
        }
        if is_low && !known.grant.covers(cost) || known.state != PeerState::Up {
            return EagerTaken::No;
        }
        let Some(index) = state.posted.take_match(tmh.tag, SourceId(peer.0)) else {
            return EagerTaken::No;
        };
        if IS_SHORT {
            known.grant.passed_high(cost);
        } else {
            known.grant.passed(cost);
        }
        if let Some(matched) = state.requests.matched(index) {
            let line = &mut *matched.line;
            let tag = tmh.tag;
            let is_long = length > line.buffer.len();
            let length = length as u64;
            let status = Status { source: peer, tag, length, truncated: false, immediate };
            if !IS_SHORT {
                let truncated = is_long && slices::is_too_long(&line.buffer, length);
                let status = Status { truncated, ..status };
                state.observer.tell(|observer| observer.matched(index, &status, false));
            }
            if is_long {
                let request = matched.request();
                state.take_long(request, &{ status }, &{ *bytes });
            } else {
                bytes.copy_to_room(TMH_BYTES, line.buffer.room().unwrap_or_default());
                state.counters.posted += 1;
                match line.owner {
                    RequestOwner::Asks => line.finish(&status),
                    RequestOwner::Queue => {
                        if !matched.end_at_once(&status, ends) {
                            state.requests.end_later(index, &status);
                        }
                    }
                    RequestOwner::Sleeps | RequestOwner::Gone => {
                        line.finish(&status);
                        let request = matched.request();
                        state.requests.tell_owner(request);
                    }
                }
            }
        }
        if !IS_SHORT {
            if tmh.app_ctx.ack_wanted() {
                state.acknowledge(peer, Some(tmh.app_ctx.operation()));
            }
            if is_low {
                state.grant_credit(peer);
            }
        }
        EagerTaken::Yes
    }

    /// Takes in an eager message that matches no posted receive, or that concerns the NIC's list,
    /// or that breaks a rule.
    fn other_eager(&mut self, incoming: &Incoming<'_>, tmh: &Tmh) -> Result<(), WireError> {
        let Incoming { peer, immediate, through_list, ref bytes } = *incoming;
        let length = bytes.len() - TMH_BYTES;
        let cost = Amount::eager(length);
        let state = &mut self.state;
        if !state.peer_mut(peer).grant.arrived(cost) {
            self.dropped(through_list);
            return Err(WireError::Credit { bytes: cost.bytes });
        }
        let length = length as u64;
        let status = Status { source: peer, tag: tmh.tag, length, truncated: false, immediate };
        let arrival = ArrivedMessage { status, ack: tmh.app_ctx, payload: Payload::Here(bytes) };
        if let Some(offload) = &mut self.offload {
            offload.arrived(state, &arrival, through_list);
        } else {
            let message = state.unexpected.store(&arrival);
            state.push_unexpected(message);
            state.grant_credit(peer);
        }
        Ok(())
    }

    fn rendezvous(
        &mut self,
        peer: PeerId,
        request: &Rendezvous,
        through_list: bool,
    ) -> Result<(), WireError> {
        let state = &mut self.state;
        if !state.peer_mut(peer).grant.arrived(Amount::RENDEZVOUS) {
            self.dropped(through_list);
            return Err(WireError::Credit { bytes: 0 });
        }
        let Rendezvous { app_ctx, tag, span, immediate } = *request;
        let status = Status { source: peer, tag, length: span.length, truncated: false, immediate };
        if app_ctx.has_companion() {
            state.await_companion(peer, app_ctx.operation(), None);
        }
        let ack = app_ctx.with_ack();
        let arrival = ArrivedMessage { status, ack, payload: Payload::Remote(span) };
        if let Some(offload) = &mut self.offload {
            offload.arrived(state, &arrival, through_list);
            return Ok(());
        }
        let matched = state.posted.take_match(tag, SourceId(peer.0));
        if let Some(matched) = matched.and_then(|index| state.requests.matched(index)) {
            let request = matched.request();
            let buffer = std::mem::take(&mut matched.line.buffer);
            state.counters.posted += 1;
            state.observer.tell(|observer| observer.matched(request.index(), &status, false));
            state.freed(peer, Amount::RENDEZVOUS);
            let operation = app_ctx.operation();
            state.pull(MatchedRendezvous { request, status, span, operation, buffer });
        } else {
            let message = state.unexpected.store(&arrival);
            state.push_unexpected(message);
            state.grant_credit(peer);
        }
        Ok(())
    }

    /// Drops a message. If the NIC has counted the message as unexpected, software counts it, too.
    fn dropped(&mut self, through_list: bool) {
        if through_list && let Some(offload) = &mut self.offload {
            offload.dropped(&mut self.state);
        }
    }

    /// Takes in a companion. It has nothing new if software has seen the rendezvous request,
    /// because software sees the request with everything beside its RVH.
    fn companion(
        &mut self,
        peer: PeerId,
        operation: AppCtx,
        is_last: bool,
        note: impl FnOnce(&mut Status),
    ) -> Result<(), WireError> {
        let awaited = &mut self.state.peer_mut(peer).awaited;
        let landing = match *awaited {
            Some((expected, landing)) if expected == operation => landing,
            _ => {
                return Err(WireError::NoSuchOperation { kind: MessageKind::Companion, operation });
            }
        };
        if is_last {
            *awaited = None;
        }
        if let (Some(key), Some(offload)) = (landing, &mut self.offload) {
            offload.companion(&mut self.state, key, is_last, note);
        }
        Ok(())
    }

    /// Handles the end of a read.
    pub(crate) fn read_done(
        &mut self,
        token: u64,
        mut buffer: Buffer,
        result: Result<(), ReadError>,
    ) {
        buffer.unpack(if result.is_ok() { usize::MAX } else { 0 });
        let state = &mut self.state;
        let request = RequestId::from_token(token);
        let reading = state.requests.get(request).and_then(|line| line.reading());
        let Some((status, operation)) = reading else { return };
        let peer = status.source;
        match result {
            Ok(()) => {
                state.received(request, status, buffer);
                state.acknowledge(peer, Some(operation));
            }
            Err(ReadError::PeerDown) if state.is_down(peer) => {
                let fault = state.down(peer);
                state.requests.complete(request, Err(fault), buffer);
            }
            Err(ReadError::PeerDown) => state.cut_short.push(CutShort { peer, request, buffer }),
            Err(error) => {
                let errno = if let ReadError::Failed { errno } = error { errno } else { 0 };
                state.abort(peer, operation, errno);
                state.requests.complete(request, Err(Fault::ReadFailed { peer, errno }), buffer);
            }
        }
    }

    /// Removes an operation of this worker that a peer says has ended.
    fn end_operation(
        &mut self,
        peer: PeerId,
        operation: AppCtx,
        kind: MessageKind,
    ) -> Result<Operation, WireError> {
        let operations = &mut self.state.operations;
        let key = operations.key_at(operation.index()).filter(|key| {
            let ours = AppCtx::new(key.index, key.generation) == operation;
            ours && operations.get(*key).is_some_and(|op| op.status.source == peer)
        });
        key.and_then(|key| operations.remove(key))
            .ok_or(WireError::NoSuchOperation { kind, operation })
    }

    fn peer_up(&mut self, id: PeerId, limits: Limits) {
        let state = &mut self.state;
        if state.peer_mut(id).state != PeerState::Connecting {
            return;
        }
        let (grant, first) = CreditGrant::open(&mut state.pool);
        let peer = state.peer_mut(id);
        peer.state = PeerState::Up;
        peer.eager_max = limits.message_max.saturating_sub(TMH_BYTES);
        peer.fragmented_max = limits.fragmented_max;
        peer.grant = grant;
        state.requests.peer_up(id);
        state.decisions.tell(Decision::PeerUp(id));
        state.send_credit(id, first);
        state.todo.push(Todo::Flush(id));
    }

    /// Ends all operations that depend on the peer. Its complete eager messages can still be
    /// received; its rendezvous requests leave the unexpected list.
    fn peer_down(&mut self, id: PeerId, fault: PeerFault) {
        let state = &mut self.state;
        state.peer_mut(id);
        let ProtocolState { peers, pool, operations, .. } = state;
        let peer = &mut peers[id.index()];
        if !matches!(peer.state, PeerState::Down(_)) {
            peer.state = PeerState::Down(fault);
            state.counters.peer_faults += u64::from(fault.is_counted());
        }
        if let (false, Some(fault)) =
            (std::mem::replace(&mut peer.is_down_reported, true), peer.fault())
        {
            // `todo` is a stack: what is pushed first is done after everything that is pushed
            // below.
            state.todo.push(Todo::TellDown(id, fault));
            state.decisions.tell(Decision::PeerDown(id, fault));
            state.departed.push(id);
        }
        peer.grant.close(pool);
        peer.controls = Default::default();
        let of_peer = operations.keys_where(|op| op.status.source == id);
        let is_unread = |key: &&Key| operations.get(**key).is_some_and(Operation::is_unread);
        peer.lose_sends(of_peer.iter().filter(is_unread).count());
        let backlog = std::mem::take(&mut peer.backlog);
        let down = state.down(id);
        for send in backlog {
            let buffer = slices::of_owner(send.message.payload);
            state.requests.complete(send.request, Err(down), buffer);
        }
        for key in of_peer {
            if let Some(operation) = state.operations.remove(key) {
                state.todo.push(Todo::Finish(operation, Err(down)));
            }
        }
        state.rma.peer_down(id, down, &mut state.requests);
        for cut in state.cut_short.extract_if(.., |cut| cut.peer == id) {
            state.requests.complete(cut.request, Err(down), cut.buffer);
        }
        self.end_posted(Some(id), down);
        let state = &mut self.state;
        fragments::lose(state, id, down);
        state.peer_mut(id).awaited = None;
        // Done before `lose_rendezvous`, which assumes that a matched probe holds each request that
        // is not on the list.
        if let Some(offload) = &mut self.offload {
            offload.peer_down(state, id);
        }
        state.lose_rendezvous(id);
        if state.peer_mut(id).grant.is_held() && !state.dead.contains(&id) {
            state.dead.push_back(id);
        }
    }

    /// Ends all posted receives.
    pub(crate) fn close_posted(&mut self) {
        if let Some(offload) = &mut self.offload {
            offload.close();
        }
        self.end_posted(None, Fault::Closed);
        let peers: Vec<_> = self.state.peers.iter().map(|peer| peer.id).collect();
        for peer in peers {
            fragments::lose(&mut self.state, peer, Fault::Closed);
        }
    }

    /// Ends the posted receives that name this source, or all of them. A receive in the NIC's list
    /// is deleted there: it ends with the answer, or with the message that the NIC has matched
    /// before.
    fn end_posted(&mut self, source: Option<PeerId>, fault: Fault) {
        let named = source.map(|peer| SourceId(peer.0));
        let posted = self.state.posted.iter_in_order();
        let posted = posted.filter(|(_, pattern, _)| named.is_none() || pattern.source() == named);
        let posted: Vec<_> = posted.map(|(handle, _, index)| (handle, index)).collect();
        for (handle, index) in posted {
            if self.cancel_offloaded(index) != CancelAnswer::Software {
                continue;
            }
            let state = &mut self.state;
            if state.posted.cancel(handle).is_ok()
                && let Some(request) =
                    state.requests.matched(index).map(|matched| matched.request())
            {
                state.observer.tell(|observer| observer.withdrawn(index));
                state.requests.fail(request, fault);
            }
        }
    }

    /// Cancels the receive of this line in the NIC's list, if it is there, and returns what
    /// follows.
    fn cancel_offloaded(&mut self, index: u32) -> CancelAnswer {
        match &mut self.offload {
            Some(offload) => offload.cancel(&mut self.state, index),
            None => CancelAnswer::Software,
        }
    }

    /// See [`MatchEngine::cancel`](crate::MatchEngine::cancel).
    pub(crate) fn cancel(&mut self, request: RequestId) {
        let Some(line) = self.state.requests.get(request) else { return };
        let outcome = match line.posted() {
            Some(handle) => (self.cancel_offloaded(request.index()), Some(handle)),
            None => (CancelAnswer::TooLate, None),
        };
        let state = &mut self.state;
        match outcome {
            (CancelAnswer::Software, Some(handle)) => {
                if state.posted.cancel(handle).is_ok() {
                    state.counters.cancelled += 1;
                    state.observer.tell(|observer| observer.withdrawn(request.index()));
                    state.requests.fail(request, Fault::Cancelled);
                }
            }
            (CancelAnswer::Asked, _) => {}
            (_, handle) => {
                state.counters.cancelled_late += 1;
                if handle.is_some() {
                    state.observer.tell(|observer| observer.cancelled_late(request.index()));
                }
            }
        }
    }

    /// Posts a receive, or gives it the oldest waiting message. `is_sole`: see
    /// [`MatchEngine::receive_with`]. With a context, its end comes in the completion queue.
    ///
    /// [`MatchEngine::receive_with`]: crate::MatchEngine::receive_with
    #[inline(always)]
    pub(crate) fn receive(
        &mut self,
        pattern: &Pattern,
        buffer: BufferParts,
        is_sole: bool,
        context: Option<u64>,
    ) -> Posted {
        if !buffer.is_writable() {
            return refuse(Fault::ReadOnlyBuffer, buffer.into_buffer());
        }
        let state = &mut self.state;
        let Some(vacant) = state.requests.vacant() else {
            return refuse(Fault::TooMany { limit: REQUESTS_MAX }, buffer.into_buffer());
        };
        // Here and below a copy of the pattern is used, so that a pattern made in registers stays
        // there.
        if state.unexpected.has_listed()
            && let Some(message) = state.unexpected.take_index(&{ *pattern })
        {
            let buffer = buffer.into_buffer();
            if self.leaves_short_way {
                self.found_observed(message, &{ *pattern }, buffer.total_len(), is_sole);
            }
            return self.receive_unexpected(message, buffer, context);
        }
        let peers = &state.peers;
        let source = pattern.source().map(|source| PeerId(source.0));
        let lives = |id: PeerId| {
            let known = peers.get(id.index());
            known.is_some_and(|p| p.id == id && !matches!(p.state, PeerState::Down(_)))
        };
        let is_allowed =
            || source.is_none_or(|id| lives(id) || peer::fault_of(peers, id).is_none());
        // If an equal receive waits, its peer is not down, except that a NIC still has to give back
        // receives of a peer that is down.
        let handle = if self.leaves_short_way && !is_allowed() {
            None
        } else {
            state.posted.post_if(*pattern, vacant.index(), is_allowed)
        };
        let Some(handle) = handle else {
            let fault = source.and_then(|id| peer::fault_of(peers, id));
            return refuse(fault.unwrap_or(Fault::Closed), buffer.into_buffer());
        };
        let request = vacant.post(handle, buffer, context);
        if self.leaves_short_way {
            self.posted_observed(request, &{ *pattern }, is_sole);
        }
        Ok(request)
    }
}
