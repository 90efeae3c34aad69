//! The NIC's side as the protocol's core calls it.

use std::hash::Hasher;

use tagmatch_device::slab::Key;
use tagmatch_device::tm::{RVH_BYTES, Rvh, TMH_BYTES};
use tagmatch_device::{Buffer, PeerId, TagEvent};
use tagmatch_shadow::{CancelAnswer, Deleted, Removal, Shadow, ShadowError, Take, Why};
use tagmatch_soft::{Pattern, SourceId, Tag};

use super::landings::{Landing, MatchedData};
use super::waiting::WaitingMessage;
use super::{Offload, Reclaim};
use crate::error::Fault;
use crate::receiving::unexpected::{ArrivedMessage, UnexpectedMessage};
use crate::requests::request::{RequestId, Status};
use crate::state::ProtocolState;
use crate::todo::Todo;
use crate::wire::AppCtx;

/// What becomes of a message.
enum MessagePlace {
    /// No receive was posted for it yet.
    Unexpected,
    /// This receive gets it, now.
    Receive(RequestId),
    /// This receive gets it, once its buffer is reclaimed.
    Reclaim { index: u32, slot: u32, handle: u32, why: Why },
    /// The receive with this index gets it, unless the NIC has matched that receive already.
    Wait(u32),
    /// It waits behind an earlier message of its sender.
    Behind,
}

/// What the core calls.
impl Offload {
    /// A receive is on the posted list. `is_sole`: only the sender that it names sends messages
    /// with its tag.
    pub(crate) fn posted(
        &mut self,
        state: &mut ProtocolState,
        request: RequestId,
        pattern: &Pattern,
        is_sole: bool,
    ) {
        let index = request.index();
        // The NIC is asked for the tag alone, so the shadow sees the receive without its source.
        // Messages to oneself never pass the list.
        let oneself = SourceId(PeerId::ONESELF.0);
        let is_sole = is_sole && pattern.source() != Some(oneself);
        let asked = if is_sole { Pattern::new(pattern.tag(), pattern.mask()) } else { *pattern };
        let length = state.requests.get(request).and_then(|line| line.buffer.run_len());
        match length {
            Some(length) => self.shadow.post(index, &asked, length as u64, true),
            None => self.shadow.post_in_software(index, &asked, Why::Slices),
        }
        self.due(state);
    }

    /// Whether the NIC's list has a posted receive.
    pub(crate) fn has_entry(&self, index: u32) -> bool {
        self.shadow.has_entry(index)
    }

    /// What a cancel of a posted receive means.
    pub(crate) fn cancel(&mut self, state: &mut ProtocolState, index: u32) -> CancelAnswer {
        let answer = self.shadow.cancel(index);
        self.due(state);
        answer
    }

    /// A message with a tag has come to software, within its sender's credit.
    pub(crate) fn arrived(
        &mut self,
        state: &mut ProtocolState,
        arrival: &ArrivedMessage<'_>,
        through_list: bool,
    ) {
        let status = arrival.status;
        let peer = status.source;
        self.shadow.source_seen(status.tag, through_list);
        if through_list {
            self.shadow.unexpected_reported();
        } else {
            self.shadow.other_device();
        }
        let place = if self.waiting.holds_up(peer) {
            MessagePlace::Behind
        } else {
            self.place(state, status.tag, peer, through_list)
        };
        tell_match(state, &place, &status);
        if let MessagePlace::Receive(request) = place {
            state.deliver_here(request, arrival);
            self.searched(through_list);
        } else {
            let message = state.unexpected.store(arrival);
            if let MessagePlace::Unexpected = place {
                state.push_unexpected(message);
                self.searched(through_list);
                state.grant_credit(peer);
            } else if let Some(message) = state.unexpected.hold(message) {
                self.hold(state, place, WaitingMessage { message, through_list }, peer);
            }
        }
        self.due(state);
    }

    /// A message is not taken in. The NIC has counted it, so software must as well.
    pub(crate) fn dropped(&mut self, state: &mut ProtocolState) {
        self.shadow.unexpected_reported();
        self.shadow.searched();
        self.due(state);
    }

    /// The companion of a rendezvous request that the NIC has matched has come.
    pub(crate) fn companion(
        &mut self,
        state: &mut ProtocolState,
        landing: Key,
        is_last: bool,
        note: impl FnOnce(&mut Status),
    ) {
        self.landings.learn(state, landing, |landing| {
            note(&mut landing.status);
            landing.lacks_companion &= !is_last;
        });
    }

    /// A peer is down. Of its messages that wait behind another one, rendezvous requests can't be
    /// answered. One that waits for a delete stays: if that finds its entry, the NIC may have
    /// passed the receive by for younger ones, and nobody else can have it.
    pub(crate) fn peer_down(&mut self, state: &mut ProtocolState, peer: PeerId) {
        self.landings.lose_companions(state, peer);
        let unexpected = &state.unexpected;
        let is_remote = |waiting: &WaitingMessage| {
            unexpected.get(waiting.message).is_some_and(UnexpectedMessage::is_remote)
        };
        for lost in self.waiting.remove_behind(peer, is_remote) {
            state.unexpected.remove(lost.message);
            state.lost_rendezvous(peer);
            self.searched(lost.through_list);
        }
        self.due(state);
    }

    /// The peers that receives in the NIC name, and those that it has matched. The sender of a
    /// matched message is in its receive's request, that of a message that waits in the message.
    pub(crate) fn named(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.entries.named().chain(self.landings.named())
    }

    /// The worker closes: receives that come back from the NIC end with [`Fault::Closed`].
    pub(crate) fn close(&mut self) {
        self.is_closing = true;
    }

    /// Takes in an event of the NIC's list.
    pub(crate) fn event(&mut self, state: &mut ProtocolState, event: TagEvent) {
        // `tell_shadow` counts an event that the list's rules don't allow, and nothing comes of it.
        let _ = match event {
            TagEvent::Added { entry } => self.tell_shadow(state, |shadow| shadow.added(entry)),
            TagEvent::Synced => self.tell_shadow(state, Shadow::synced),
            TagEvent::Matched { entry, peer, tag, app_ctx } => {
                let tag = Tag(tag);
                let status =
                    Status { source: peer, tag, length: 0, truncated: false, immediate: None };
                self.matched(state, entry, status, AppCtx(app_ctx))
            }
            TagEvent::Landed { entry, length, immediate, buffer } => {
                let length = length.into();
                let note = |landing: &mut Landing| {
                    landing.status.length = length;
                    landing.status.immediate = landing.status.immediate.or(immediate);
                    landing.data = MatchedData::Here { written: length };
                };
                let landing = self.landed(state, entry, buffer, length);
                landing.map(|landing| self.landings.learn(state, landing, note))
            }
            TagEvent::Incomplete { entry, buffer } => {
                let headers = buffer.first_bytes(TMH_BYTES + RVH_BYTES);
                let rvh: Option<&[u8; RVH_BYTES]> =
                    headers.get(TMH_BYTES..).and_then(|rest| rest.first_chunk());
                let Rvh { va, rkey, len } = Rvh::parse(rvh.unwrap_or(&[0; RVH_BYTES]));
                let note = |landing: &mut Landing| {
                    landing.status.length = landing.status.length.max(len.into());
                    landing.data = MatchedData::Remote { va, rkey };
                };
                let landing = self.landed(state, entry, buffer, 0);
                landing.map(|landing| self.landings.learn(state, landing, note))
            }
            TagEvent::Failed { entry, buffer } => {
                let landing = self.landed(state, entry, buffer, 0);
                landing.map(|landing| self.landings.fail(state, landing))
            }
            TagEvent::Deleted { entry, buffer } => self.deleted(state, entry, buffer),
            TagEvent::DeleteLost { entry } => self.delete_lost(state, entry),
        };
        self.due(state);
    }

    /// The number of messages that wait for the NIC: to say what it has matched, or to give a
    /// buffer back.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len() + self.reclaims.len()
    }

    /// See [`Engine::past_list`](crate::Engine::past_list).
    pub(crate) fn past_list(&self) -> u64 {
        self.shadow.counters().past_list
    }

    /// See [`Engine::hash_state`](crate::Engine::hash_state).
    pub(crate) fn hash_state<H: Hasher>(
        &self,
        state: &ProtocolState,
        hasher: &mut H,
        name: impl Fn(u32) -> usize,
    ) {
        self.shadow.hash_state(hasher, name);
        self.entries
            .hash_state(hasher, |landing, hasher| self.landings.hash_state(landing, hasher));
        let message = |key, hasher: &mut H| state.unexpected.hash_message(Some(key), hasher);
        self.waiting.hash_state(hasher, message);
    }
}

/// How a message that came to software finds its receive.
impl Offload {
    /// Asks for the NIC's list to be brought up to date before anything else happens.
    fn due(&mut self, state: &mut ProtocolState) {
        if !std::mem::replace(&mut self.is_due, true) {
            state.todo.push(Todo::Offload);
        }
    }

    /// A message has its place: if the NIC has counted it, software does now.
    fn searched(&mut self, through_list: bool) {
        if through_list {
            self.shadow.searched();
        }
    }

    /// What becomes of a message: the first posted receive that matches it gets it, as far as that
    /// is known.
    fn place(
        &mut self,
        state: &mut ProtocolState,
        tag: Tag,
        peer: PeerId,
        through_list: bool,
    ) -> MessagePlace {
        let Some(handle) = state.posted.first_match(tag, SourceId(peer.0)) else {
            return MessagePlace::Unexpected;
        };
        let Some((_, index)) = state.posted.get(handle) else { return MessagePlace::Unexpected };
        let place = match self.shadow.take(index, through_list) {
            Take::Wait => return MessagePlace::Wait(index),
            Take::Software(why) => {
                state.not_offloaded(why);
                state
                    .requests
                    .matched(index)
                    .map(|matched| MessagePlace::Receive(matched.request()))
            }
            Take::Reclaim { slot, handle, why } => {
                Some(MessagePlace::Reclaim { index, slot, handle, why })
            }
        };
        let _ = state.posted.cancel(handle);
        place.unwrap_or(MessagePlace::Unexpected)
    }

    /// Has a message wait for what the NIC says, or behind one that does.
    fn hold(
        &mut self,
        state: &mut ProtocolState,
        place: MessagePlace,
        waiting: WaitingMessage,
        peer: PeerId,
    ) {
        match place {
            MessagePlace::Reclaim { index, slot, handle, why } => {
                let message = waiting.message;
                self.reclaims.push_back(Reclaim { handle, slot, why, message });
                self.searched(waiting.through_list);
                // Others may wait for a delete that was not sent yet.
                self.search_on(state, index);
            }
            MessagePlace::Wait(index) => self.waiting.wait_for(index, peer, waiting),
            _ => self.waiting.wait_behind(peer, waiting),
        }
    }

    /// The NIC gave a buffer back, or has broken its rules: then the receive fails, its buffer
    /// stays with the device, and the message is for the next receive.
    pub(super) fn reclaimed(
        &mut self,
        state: &mut ProtocolState,
        reclaim: Reclaim,
        buffer: Option<Buffer>,
    ) {
        match buffer {
            Some(buffer) => {
                if let Some(request) = self.entries.give_back(state, reclaim.slot, buffer, 0) {
                    state.not_offloaded(reclaim.why);
                    state.deliver_waiting(request, reclaim.message);
                }
            }
            None => {
                state.counters.list_faults += 1;
                // The match that an observer was told of doesn't stand.
                state.observer.0 = None;
                if let Some(request) = self.entries.forget(reclaim.slot) {
                    state.requests.fail(request, Fault::DeviceFailed { status: 0 });
                }
                let message = reclaim.message;
                self.resume(state, WaitingMessage { message, through_list: false });
            }
        }
    }

    /// Searches again for a message that has waited. `false`: it waits on.
    fn resume(&mut self, state: &mut ProtocolState, waiting: WaitingMessage) -> bool {
        let WaitingMessage { message: key, through_list } = waiting;
        let Some(message) = state.unexpected.get(key) else { return true };
        let UnexpectedMessage { tag, source, .. } = *message;
        let status = message.status();
        if message.is_lost() {
            state.unexpected.remove(key);
            self.searched(through_list);
            return true;
        }
        let place = self.place(state, tag, source, through_list);
        tell_match(state, &place, &status);
        match place {
            MessagePlace::Receive(request) => state.deliver_waiting(request, key),
            MessagePlace::Unexpected | MessagePlace::Behind => state.list_unexpected(key),
            place @ MessagePlace::Reclaim { .. } => {
                self.hold(state, place, waiting, source);
                return true;
            }
            place @ MessagePlace::Wait(_) => {
                self.hold(state, place, waiting, source);
                return false;
            }
        }
        self.searched(through_list);
        true
    }

    /// A message of this sender has found its place: those behind it search on.
    fn release(&mut self, state: &mut ProtocolState, peer: PeerId) {
        while let Some(next) = self.waiting.next_behind(peer) {
            if !self.resume(state, next) {
                return;
            }
        }
    }

    /// A receive that messages wait for is not for them: they search on, in their order.
    fn search_on(&mut self, state: &mut ProtocolState, index: u32) {
        for waiting in self.waiting.take_all(index) {
            let source = state.unexpected.get(waiting.message).map(|message| message.source);
            if self.resume(state, waiting)
                && let Some(source) = source
            {
                self.release(state, source);
            }
        }
        self.due(state);
    }
}

/// What the NIC reports.
impl Offload {
    /// Tells the shadow of an event; one that can't be is counted, and nothing comes of it.
    fn tell_shadow<T>(
        &mut self,
        state: &mut ProtocolState,
        event: impl FnOnce(&mut Shadow) -> Result<T, ShadowError>,
    ) -> Option<T> {
        let outcome = event(&mut self.shadow);
        state.counters.list_faults += u64::from(outcome.is_err());
        outcome.ok()
    }

    fn matched(
        &mut self,
        state: &mut ProtocolState,
        slot: u32,
        status: Status,
        app_ctx: AppCtx,
    ) -> Option<()> {
        let index = self.tell_shadow(state, |shadow| shadow.matched(slot))?;
        if state.observer.is_on() {
            tell_gone_before(state, index, &status);
            state.observer.tell(|observer| observer.matched(index, &status, true));
        }
        self.leave_posted(state, slot);
        let lacks_companion = app_ctx.has_companion();
        if let Some(entry) = self.entries.get(slot) {
            let request = entry.request;
            let named = entry.named;
            let data = MatchedData::Due;
            state.requests.read(request, &status, app_ctx.operation());
            let landing = Landing { request, named, status, app_ctx, lacks_companion, data };
            let landing = self.landings.insert(landing);
            self.entries.set_landing(slot, landing);
            if lacks_companion {
                state.await_companion(status.source, app_ctx.operation(), landing);
            }
        }
        self.search_on(state, index);
        Some(())
    }

    /// A receive in the NIC has its message, or is cancelled: no message finds it any more.
    fn leave_posted(&mut self, state: &mut ProtocolState, slot: u32) {
        let line = self.entries.get(slot).and_then(|entry| state.requests.get(entry.request));
        if let Some(handle) = line.and_then(|line| line.posted()) {
            let _ = state.posted.cancel(handle);
        }
    }

    /// The data of a match, of which the buffer holds `length` bytes, is there or will never be.
    fn landed(
        &mut self,
        state: &mut ProtocolState,
        slot: u32,
        buffer: Buffer,
        length: u64,
    ) -> Option<Key> {
        self.tell_shadow(state, |shadow| shadow.landed(slot))?;
        let landing = self.entries.get(slot).and_then(|entry| entry.landing);
        self.entries.give_back(state, slot, buffer, length);
        landing
    }

    fn deleted(
        &mut self,
        state: &mut ProtocolState,
        slot: u32,
        buffer: Option<Buffer>,
    ) -> Option<()> {
        let deleted = self.tell_shadow(state, |shadow| shadow.deleted(slot))?;
        if deleted == Deleted::Ignored {
            return None;
        }
        if !matches!(deleted, Deleted::Again { .. }) {
            self.leave_posted(state, slot);
        }
        let named = self.entries.get(slot).and_then(|entry| entry.named);
        let request = self.entries.give_back(state, slot, buffer?, 0)?;
        match deleted {
            Deleted::Cancelled { id } => {
                let fault = self.fault_of_deleted(state, named);
                state.counters.cancelled += u64::from(fault == Fault::Cancelled);
                state.observer.tell(|observer| observer.withdrawn(id));
                state.requests.fail(request, fault);
                self.search_on(state, id);
            }
            Deleted::ForMessage { id } => self.deliver_first_waiting(state, id, request),
            _ => {}
        }
        Some(())
    }

    /// Why a receive was asked back from the NIC: the worker closes, the only sender that it has
    /// died, or its owner cancelled it.
    fn fault_of_deleted(&self, state: &ProtocolState, named: Option<PeerId>) -> Fault {
        match named.filter(|&peer| state.is_down(peer)) {
            _ if self.is_closing => Fault::Closed,
            Some(peer) => state.down(peer),
            None => Fault::Cancelled,
        }
    }

    fn deliver_first_waiting(&mut self, state: &mut ProtocolState, index: u32, request: RequestId) {
        if let Some(WaitingMessage { message, through_list }) = self.waiting.take_first(index) {
            let found = state.unexpected.get(message);
            let source = found.map(|m| m.source);
            let is_lost = found.is_some_and(|m| m.is_lost());
            let status = found.filter(|_| !is_lost).map(UnexpectedMessage::status);
            match status {
                Some(status) => {
                    state.not_offloaded(Why::Source);
                    state.observer.tell(|observer| observer.matched(index, &status, false));
                }
                None => state.observer.tell(|observer| observer.withdrawn(index)),
            }
            state.deliver_waiting(request, message);
            self.searched(through_list);
            if let Some(source) = source {
                self.release(state, source);
            }
        }
        self.search_on(state, index);
    }

    /// A delete came too late: the match stands.
    fn delete_lost(&mut self, state: &mut ProtocolState, slot: u32) -> Option<()> {
        let lost = self.tell_shadow(state, |shadow| shadow.lost(slot))?;
        let is_late_cancel = lost.was == Some(Removal::Cancel);
        state.counters.cancelled_late += u64::from(is_late_cancel);
        let index = lost.id?;
        state.observer.tell(|observer| observer.taken(index, true));
        if is_late_cancel {
            state.observer.tell(|observer| observer.cancelled_late(index));
        }
        self.leave_posted(state, slot);
        self.search_on(state, index);
        Some(())
    }
}

/// Tells the observer of a message that has its receive.
fn tell_match(state: &mut ProtocolState, place: &MessagePlace, status: &Status) {
    let receive = match place {
        MessagePlace::Receive(request) => request.index(),
        MessagePlace::Reclaim { index, .. } => *index,
        MessagePlace::Unexpected | MessagePlace::Wait(_) | MessagePlace::Behind => return,
    };
    state.observer.tell(|observer| observer.matched(receive, status, false));
}

/// Tells the observer of posted receives that the NIC must have deleted before it gave a message to
/// a later one, though it has not said so yet.
fn tell_gone_before(state: &mut ProtocolState, index: u32, status: &Status) {
    let tag = status.tag;
    let source = SourceId(status.source.0);
    let own = state.requests.matched(index).and_then(|matched| matched.line.posted());
    if own.is_none_or(|own| state.posted.get(own).is_none())
        || state.posted.first_match(tag, source) == own
    {
        return;
    }
    let before = state.posted.iter_in_order().take_while(|(.., other)| *other != index);
    for (_, _, other) in before.filter(|(_, pattern, _)| pattern.matches(tag, source)) {
        state.observer.tell(|observer| observer.taken(other, false));
    }
}
