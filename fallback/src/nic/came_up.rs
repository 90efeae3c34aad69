//! Messages that came up: searched for in software, with a say of the shadow.

use tagmatch_device::tm::TMH_BYTES;
use tagmatch_device::{Buffer, PeerId};
use tagmatch_shadow::{Take, Why};
use tagmatch_soft::{SourceId, Tag};

use super::{Kept, Payload, Reclaim};
use crate::core::{Core, MESSAGES_MAX};
use crate::credit::Amount;
use crate::message::{Body, Message};
use crate::request::{RequestId, Status};
use crate::slab::Key;
use crate::wire::AppCtx;

/// Who gets a message that came up.
enum Place {
    /// Nobody asked for it yet.
    Nobody,
    /// This receive, now.
    Receive(RequestId),
    /// This receive, once its buffer is reclaimed.
    Reclaim { index: u32, slot: u32, handle: u32, why: Why },
    /// The receive with this index, if the NIC did not match it.
    Wait(u32),
    /// It waits behind an earlier message of its sender.
    Behind,
}

impl Core {
    /// A message with a tag has come up, within its sender's credit.
    pub(crate) fn came_up(
        &mut self,
        status: Status,
        ack: AppCtx,
        payload: Payload<'_>,
        through_list: bool,
    ) {
        let peer = status.source;
        if let Some(nic) = &mut self.nic {
            nic.shadow.source_seen(status.tag, through_list);
            if through_list {
                nic.shadow.came_up();
            } else {
                nic.shadow.other_device();
            }
        }
        match self.place(status.tag, peer, through_list) {
            Place::Receive(key) => {
                self.deliver_here(key, status, ack, payload);
                self.searched(through_list);
            }
            Place::Nobody => {
                let message = self.keep(status, ack, payload);
                self.unexpected(message);
                self.searched(through_list);
                self.grant_credit(peer);
            }
            place => {
                let message = self.keep(status, ack, payload);
                if let Ok(message) = self.messages.insert(message, MESSAGES_MAX) {
                    self.hold(place, Kept { message, through_list }, peer);
                }
            }
        }
        self.nic_due();
    }

    /// A message is not taken in. If the NIC has counted it, software must as well.
    pub(crate) fn dropped(&mut self, through_list: bool) {
        if let Some(nic) = self.nic.as_mut().filter(|_| through_list) {
            nic.shadow.came_up();
            nic.shadow.searched();
            self.nic_due();
        }
    }

    /// A message has its place: if the NIC has counted it, software does now.
    pub(super) fn searched(&mut self, through_list: bool) {
        if let Some(nic) = self.nic.as_mut().filter(|_| through_list) {
            nic.shadow.searched();
        }
    }

    pub(super) fn source_of(&self, kept: Kept) -> Option<PeerId> {
        self.messages.get(kept.message).map(|message| message.source)
    }

    /// Who gets a message: the first posted receive that matches it, as far as that is known.
    fn place(&mut self, tag: Tag, peer: PeerId, through_list: bool) -> Place {
        let Some(nic) = &mut self.nic else { return Place::Nobody };
        if nic.lanes.contains_key(&peer) {
            return Place::Behind;
        }
        let first = self.posted.first_match(tag, SourceId(peer.0));
        let Some(handle) = first else { return Place::Nobody };
        let Some((_, index)) = self.posted.get(handle) else { return Place::Nobody };
        let place = match nic.shadow.take(index, through_list) {
            Take::Wait => return Place::Wait(index),
            Take::Software(why) => {
                self.counters.not_offloaded.count(why);
                self.requests.matched(index).map(|(key, _)| Place::Receive(key))
            }
            Take::Reclaim { slot, handle, why } => {
                Some(Place::Reclaim { index, slot, handle, why })
            }
        };
        let _ = self.posted.cancel(handle);
        place.unwrap_or(Place::Nobody)
    }

    /// Keeps a message here, within its credit.
    fn keep(&mut self, status: Status, ack: AppCtx, payload: Payload<'_>) -> Message {
        let body = match payload {
            Payload::Here(bytes) => {
                self.counters.unexpected_bytes_now += Amount::of_eager(status.length).bytes;
                Body::Stored(self.store.put(bytes, TMH_BYTES))
            }
            Payload::Remote(span) => Body::Remote { address: span.address, key: span.key },
        };
        Message::new(&status, ack, body)
    }

    /// Has a message wait for what the NIC says, or for one that does.
    fn hold(&mut self, place: Place, kept: Kept, peer: PeerId) {
        let Some(nic) = &mut self.nic else { return };
        match place {
            Place::Reclaim { index, slot, handle, why } => {
                nic.reclaims.push_back(Reclaim { handle, slot, why, message: kept.message });
                self.searched(kept.through_list);
                // Others may wait for a delete that was not sent yet.
                self.search_on(index);
            }
            Place::Wait(index) => {
                nic.waiting.entry(index).or_default().push_back(kept);
                nic.lanes.entry(peer).or_default();
            }
            _ => nic.lanes.entry(peer).or_default().push_back(kept),
        }
    }

    /// Puts a message that has just come up into a receive's buffer.
    pub(super) fn deliver_here(
        &mut self,
        key: RequestId,
        mut status: Status,
        ack: AppCtx,
        payload: Payload<'_>,
    ) {
        let peer = status.source;
        let Some(request) = self.requests.get_mut(key) else { return };
        let mut buffer = std::mem::take(&mut request.buffer);
        self.counters.posted += 1;
        match payload {
            Payload::Here(bytes) => {
                bytes.copy_to(TMH_BYTES, buffer.as_mut_slice().unwrap_or_default());
                self.truncate(&mut status, &buffer);
                self.requests.complete(key, Ok(status), buffer);
                self.acknowledge(peer, ack.ack_wanted().then(|| ack.operation()));
                self.freed(peer, Amount::of_eager(status.length));
            }
            Payload::Remote(span) => {
                self.freed(peer, Amount::RENDEZVOUS);
                self.pull(key, status, span, ack.operation(), buffer);
            }
        }
    }

    pub(super) fn is_lost(&self, kept: &Kept) -> bool {
        matches!(self.messages.get(kept.message), Some(m) if matches!(m.body, Body::Lost))
    }

    /// Puts a message that has waited into a receive's buffer.
    pub(super) fn deliver_kept(&mut self, key: RequestId, message: Key) {
        let Some(message) = self.messages.remove(message) else { return };
        if matches!(message.body, Body::Lost) {
            return self.requests.fail(key, self.down(message.source));
        }
        let Some(request) = self.requests.get_mut(key) else { return };
        let buffer = std::mem::take(&mut request.buffer);
        self.counters.posted += 1;
        self.fill(key, message, buffer);
    }

    /// The next buffer that is to be asked back from the NIC.
    pub(crate) fn next_reclaim(&mut self) -> Option<Reclaim> {
        self.nic.as_mut()?.reclaims.pop_front()
    }

    /// The NIC gave a buffer back, or has broken its rules: then its match stands.
    pub(crate) fn reclaimed(&mut self, reclaim: Reclaim, buffer: Option<Buffer>) {
        match buffer {
            Some(buffer) => {
                if let Some(key) = self.nic_gives_back(reclaim.slot, buffer, 0) {
                    self.counters.not_offloaded.count(reclaim.why);
                    self.deliver_kept(key, reclaim.message);
                }
            }
            None => {
                self.counters.list_faults += 1;
                self.resume(Kept { message: reclaim.message, through_list: false });
            }
        }
    }

    /// Searches again for a message that has waited. `false`: it waits on.
    fn resume(&mut self, kept: Kept) -> bool {
        let Some(message) = self.messages.get(kept.message) else { return true };
        let Message { tag, source, .. } = *message;
        if self.is_lost(&kept) {
            self.messages.remove(kept.message);
            self.searched(kept.through_list);
            return true;
        }
        let lane = self.nic.as_mut().and_then(|nic| nic.lanes.remove(&source));
        let place = self.place(tag, source, kept.through_list);
        if let (Some(nic), Some(lane)) = (&mut self.nic, lane) {
            nic.lanes.insert(source, lane);
        }
        match place {
            Place::Receive(request) => self.deliver_kept(request, kept.message),
            Place::Nobody | Place::Behind => {
                self.unexpected.push(tag, SourceId(source.0), kept.message.index);
            }
            Place::Reclaim { .. } => {
                self.hold(place, kept, source);
                return true;
            }
            Place::Wait(_) => {
                self.hold(place, kept, source);
                return false;
            }
        }
        self.searched(kept.through_list);
        true
    }

    /// Lets the messages behind one that has found its place follow it.
    pub(super) fn open_lane(&mut self, peer: PeerId) {
        while let Some(nic) = &mut self.nic {
            let Some(lane) = nic.lanes.get_mut(&peer) else { return };
            let Some(kept) = lane.pop_front() else {
                nic.lanes.remove(&peer);
                return;
            };
            if !self.resume(kept) {
                return;
            }
        }
    }

    /// A receive that messages wait for is not for them: they search on, in their order.
    pub(super) fn search_on(&mut self, index: u32) {
        let waiting = self.nic.as_mut().and_then(|nic| nic.waiting.remove(&index));
        for kept in waiting.into_iter().flatten() {
            let source = self.source_of(kept);
            if self.resume(kept) {
                source.into_iter().for_each(|source| self.open_lane(source));
            }
        }
        self.nic_due();
    }

    /// Rendezvous requests of a dead peer that wait in its lane can't be answered. One that waits for a
    /// delete stays: if that finds its entry, the NIC may have passed the receive by for younger ones, and
    /// nobody else can have it.
    pub(crate) fn nic_lose_rendezvous(&mut self, id: PeerId) {
        let Some(lane) = self.nic.as_mut().and_then(|nic| nic.lanes.get_mut(&id)) else { return };
        let messages = &self.messages;
        let is_lost = |kept: &Kept| matches!(messages.get(kept.message), Some(m) if matches!(m.body, Body::Remote { .. }));
        let lost: Vec<Kept> = lane.iter().filter(|kept| is_lost(kept)).copied().collect();
        lane.retain(|kept| !is_lost(kept));
        for kept in lost {
            self.messages.remove(kept.message);
            self.counters.lost_rendezvous += 1;
            self.freed(id, Amount::RENDEZVOUS);
            self.searched(kept.through_list);
        }
        self.nic_due();
    }
}
