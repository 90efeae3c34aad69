//! What the NIC reports of its list.

use tagmatch_device::tm::{RVH_BYTES, Rvh, TMH_BYTES};
use tagmatch_device::{Buffer, PeerId, RemoteSpan, TagEvent};
use tagmatch_shadow::{Deleted, Removal, Shadow, ShadowError, Why};
use tagmatch_soft::Tag;

use super::{Data, Entry, Landing};
use crate::core::{Core, Todo};
use crate::credit::Amount;
use crate::error::Fault;
use crate::peer::PeerState;
use crate::request::{RequestId, Status};
use crate::slab::Key;
use crate::wire::{AppCtx, WireError};

impl Core {
    /// Takes in an event of the NIC's list.
    pub(crate) fn tag_event(&mut self, event: TagEvent) {
        match event {
            TagEvent::Added { entry } => self.nic_shadow(|shadow| shadow.added(entry)),
            TagEvent::Synced => self.nic_shadow(Shadow::synced),
            TagEvent::Matched { entry, peer, tag, app_ctx } => {
                self.nic_matched(entry, peer, Tag(tag), AppCtx(app_ctx))
            }
            TagEvent::Landed { entry, length, immediate, buffer } => {
                let length = length.into();
                self.nic_landed(entry, buffer, length, |landing| {
                    landing.status.length = length;
                    landing.status.immediate = landing.status.immediate.or(immediate);
                    landing.data = Data::Here;
                })
            }
            TagEvent::Incomplete { entry, buffer } => {
                let rvh: Option<&[u8; RVH_BYTES]> =
                    buffer.get(TMH_BYTES..).and_then(|rest| rest.first_chunk());
                let Rvh { va, rkey, len } = Rvh::parse(rvh.unwrap_or(&[0; RVH_BYTES]));
                self.nic_landed(entry, buffer, 0, |landing| {
                    landing.status.length = landing.status.length.max(len.into());
                    landing.data = Data::Remote { va, rkey };
                })
            }
            TagEvent::Failed { entry, buffer } => self.nic_failed(entry, buffer),
            TagEvent::Deleted { entry, buffer } => self.nic_deleted(entry, buffer),
            TagEvent::DeleteLost { entry } => self.nic_lost(entry),
        };
        self.nic_due();
    }

    /// Tells the shadow of an event; one that can't be is counted, and nothing comes of it.
    fn nic_shadow<T>(
        &mut self,
        event: impl FnOnce(&mut Shadow) -> Result<T, ShadowError>,
    ) -> Option<T> {
        let outcome = event(&mut self.nic.as_mut()?.shadow);
        self.counters.list_faults += u64::from(outcome.is_err());
        outcome.ok()
    }

    fn nic_matched(&mut self, slot: u32, peer: PeerId, tag: Tag, app_ctx: AppCtx) -> Option<()> {
        let index = self.nic_shadow(|shadow| shadow.matched(slot))?;
        self.leave_posted(slot);
        let status = Status { source: peer, tag, length: 0, truncated: false, immediate: None };
        let lacks_companion = app_ctx.has_companion();
        if let Some(nic) = &mut self.nic
            && let Some(Some(entry)) = nic.entries.get_mut(slot as usize)
        {
            let Entry { request, named, .. } = *entry;
            if let Some(line) = self.requests.get_mut(request) {
                line.read(&status, app_ctx.operation());
            }
            let data = Data::Due;
            let landing = Landing { request, named, status, app_ctx, lacks_companion, data };
            entry.landing = nic.landings.insert(landing, u32::MAX).ok();
            if lacks_companion {
                let landing = entry.landing;
                self.await_companion(peer, app_ctx.operation(), landing);
            }
        }
        self.search_on(index);
        Some(())
    }

    /// A receive in the NIC has its message: nobody else finds it.
    pub(super) fn leave_posted(&mut self, slot: u32) {
        let request = self.entry(slot).and_then(|entry| self.requests.get_mut(entry.request));
        if let Some(handle) = request.and_then(|request| request.posted()) {
            let _ = self.posted.cancel(handle);
        }
    }

    fn nic_landed(
        &mut self,
        slot: u32,
        buffer: Buffer,
        length: u64,
        note: impl FnOnce(&mut Landing),
    ) -> Option<()> {
        self.nic_shadow(|shadow| shadow.landed(slot))?;
        let landing = self.landing_of(slot);
        self.nic_gives_back(slot, buffer, length);
        if let Some(key) = landing
            && let Some(landing) = self.nic.as_mut().and_then(|nic| nic.landings.get_mut(key))
        {
            note(landing);
            self.conclude(key);
        }
        Some(())
    }

    fn entry(&self, slot: u32) -> Option<Entry> {
        *self.nic.as_ref()?.entries.get(slot as usize)?
    }

    fn landing_of(&self, slot: u32) -> Option<Key> {
        self.entry(slot)?.landing
    }

    /// Ends a receive that the NIC has matched, once everything about it is known.
    pub(super) fn conclude(&mut self, key: Key) {
        let Some(nic) = &mut self.nic else { return };
        let is_known = |landing: &Landing| !landing.lacks_companion && landing.data != Data::Due;
        if !nic.landings.get(key).is_some_and(is_known) {
            return;
        }
        let Some(landing) = nic.landings.remove(key) else { return };
        let Landing { request, status, app_ctx, data, .. } = landing;
        let peer = status.source;
        let cost = if app_ctx.is_rendezvous() {
            Amount::RENDEZVOUS
        } else {
            Amount::of_eager(status.length)
        };
        if self.peer_mut(peer).grant.arrived(cost) {
            self.freed(peer, cost);
        } else {
            self.todo.push(Todo::Break(peer, WireError::Credit { bytes: cost.bytes }));
        }
        if let Some(fault) = landing.wrong_sender() {
            return self.drop_landing(&landing, fault);
        }
        let Some(line) = self.requests.get_mut(request) else { return };
        let buffer = std::mem::take(&mut line.buffer);
        self.counters.hardware += 1;
        match data {
            Data::Remote { va, rkey } => {
                let span = RemoteSpan { address: va, key: rkey, length: status.length };
                self.pull(request, status, span, app_ctx.operation(), buffer);
            }
            Data::Here | Data::Due => {
                let wants_fin = app_ctx.ack_wanted() && !app_ctx.is_rendezvous();
                self.received(request, status, buffer);
                self.acknowledge(peer, wants_fin.then(|| app_ctx.operation()));
            }
        }
    }

    /// Ends a receive whose message is not of the sender that it names. Of a rendezvous that the NIC has read
    /// the sender has its FIN; any other sender that waits is told that its message was not taken.
    #[cold]
    fn drop_landing(&mut self, landing: &Landing, fault: Fault) {
        let Landing { request, status, app_ctx, data, .. } = *landing;
        let waits = if app_ctx.is_rendezvous() { data != Data::Here } else { app_ctx.ack_wanted() };
        if waits {
            self.abort(status.source, app_ctx.operation(), 0);
        }
        self.requests.fail(request, fault);
    }

    fn nic_failed(&mut self, slot: u32, buffer: Buffer) -> Option<()> {
        self.nic_shadow(|shadow| shadow.landed(slot))?;
        let key = self.landing_of(slot);
        self.nic_gives_back(slot, buffer, 0);
        if let Some(key) = key {
            self.fail_landing(key);
        }
        Some(())
    }

    pub(super) fn fail_landing(&mut self, key: Key) {
        if let Some(landing) = self.nic.as_mut().and_then(|nic| nic.landings.remove(key)) {
            let down = self.down(landing.status.source);
            self.requests.fail(landing.request, landing.wrong_sender().unwrap_or(down));
        }
    }

    fn nic_deleted(&mut self, slot: u32, buffer: Option<Buffer>) -> Option<()> {
        let deleted = self.nic_shadow(|shadow| shadow.deleted(slot))?;
        if deleted == Deleted::Ignored {
            return Some(());
        }
        if !matches!(deleted, Deleted::Again { .. }) {
            self.leave_posted(slot);
        }
        let named = self.entry(slot).and_then(|entry| entry.named);
        let key = buffer.and_then(|buffer| self.nic_gives_back(slot, buffer, 0));
        match (deleted, key) {
            (Deleted::Cancelled { id }, Some(key)) => {
                let fault = self.fault_of_deleted(named);
                self.counters.cancelled += u64::from(fault == Fault::Cancelled);
                self.requests.fail(key, fault);
                self.search_on(id);
            }
            (Deleted::ForMessage { id }, Some(key)) => {
                self.deliver_first_waiting(id, key);
            }
            _ => {}
        }
        Some(())
    }

    /// Why a receive was asked back from the NIC: the worker closes, the only sender that it has died, or its
    /// owner cancelled it.
    fn fault_of_deleted(&self, named: Option<PeerId>) -> Fault {
        let is_down = |peer: &PeerId| {
            let peer = self.peers.get(peer.index());
            peer.is_some_and(|peer| matches!(peer.state, PeerState::Down(_)))
        };
        match named.filter(is_down) {
            _ if self.is_closing => Fault::Closed,
            Some(peer) => self.down(peer),
            None => Fault::Cancelled,
        }
    }

    fn deliver_first_waiting(&mut self, index: u32, key: RequestId) {
        let waiting = self.nic.as_mut().and_then(|nic| nic.waiting.get_mut(&index));
        let first = waiting.and_then(|waiting| waiting.pop_front());
        if let Some(first) = first {
            let source = self.source_of(first);
            if !self.is_lost(&first) {
                self.counters.not_offloaded.count(Why::Source);
            }
            self.deliver_kept(key, first.message);
            self.searched(first.through_list);
            source.into_iter().for_each(|source| self.open_lane(source));
        }
        self.search_on(index);
    }

    fn nic_lost(&mut self, slot: u32) -> Option<()> {
        let lost = self.nic_shadow(|shadow| shadow.lost(slot))?;
        self.counters.cancelled_late += u64::from(lost.was == Some(Removal::Cancel));
        if let Some(index) = lost.id {
            self.leave_posted(slot);
            self.search_on(index);
        }
        Some(())
    }
}
