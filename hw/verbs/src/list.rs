//! The NIC's list of posted receives. Posts operations to the tag-matching queue and turns its
//! completions into events.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use tagmatch_device::slab::Slab;
use tagmatch_device::{
    Buffer, OrBug, PeerId, TagAdd, TagCaps, TagEvent, TagHandle, TagList, TagRefused,
};
use tagmatch_rdma_core_sys as sys;

use super::object::{Pd, Srq};
use super::region::{Pool, Region, retire};
use super::wr_id::{ADDED, DELETED, ENTRY, SYNCED};

/// Unexpected messages after which the NIC must be told the count again: half of what its counter
/// can distinguish.
const SYNC_EVERY: u16 = 1 << 13;
/// Most entries of a list, even if the NIC allows more.
const SLOTS_MAX: u32 = 1 << 14;

/// The size of a list that the device allows. `None` if it has no tag matching for reliable
/// connections.
pub(super) fn fit(caps: &sys::ibv_tm_caps) -> Option<sys::ibv_tm_cap> {
    let is_usable = caps.flags & sys::IBV_TM_CAP_RC != 0 && caps.max_num_tags > 0;
    let slots = caps.max_num_tags.min(SLOTS_MAX);
    let mut list = sys::ibv_tm_cap::zeroed();
    list.max_num_tags = slots;
    // As UCX does: an add and a delete for each entry, and two more operations.
    list.max_ops = (2 * slots + 2).min(caps.max_ops);
    (is_usable && list.max_ops > 0).then_some(list)
}

/// Most completions of a list that can wait at a time, beside those of messages.
pub(super) fn completions(list: &sys::ibv_tm_cap) -> u32 {
    list.max_ops.saturating_add(2 * list.max_num_tags)
}

/// An entry, from its addition until its last completion.
struct ListedReceive {
    /// The caller's number for it.
    name: u32,
    /// The NIC's handle for it.
    handle: u32,
    // Drop order: the region is unregistered before the buffer is freed.
    region: Option<Region>,
    buffer: Option<Buffer>,
    /// The sender of the message that it matched.
    matched: Option<PeerId>,
    /// The message that it matched is longer than its buffer.
    is_incomplete: bool,
    awaits_added: bool,
    awaits_deleted: bool,
    /// Only completions of its own operations can still come.
    is_finished: bool,
}

/// Software's side of the list.
pub(super) struct List {
    // Drop order: the queue is destroyed before the entries' memory. The NIC writes none of it once
    // the queue and the queue pairs on it are destroyed.
    srq: Arc<Srq>,
    entries: Slab<ListedReceive>,
    events: Vec<TagEvent>,
    caps: TagCaps,
    /// The numbers of the operations that the NIC has not answered, in their order.
    unanswered: VecDeque<u64>,
    is_broken: bool,
    /// The device, or the queue of the list, is lost: no queue pair receives any more, so that no
    /// memory is written.
    is_lost: bool,
    /// Registered memory for entries.
    pool: Pool,
    pd: Arc<Pd>,
}

impl List {
    pub(super) fn new(srq: Arc<Srq>, pd: Arc<Pd>, list: &sys::ibv_tm_cap, read_max: u64) -> Self {
        let slots = list.max_num_tags;
        let caps = TagCaps {
            slots,
            operations: list.max_ops,
            read_max,
            sync_every: SYNC_EVERY,
            first_count: 0,
        };
        List {
            srq,
            entries: Slab::default(),
            events: Vec::new(),
            caps,
            unanswered: VecDeque::new(),
            is_broken: false,
            is_lost: false,
            // The caller keeps the buffers, so the pool needn't keep unused ones.
            pool: Pool::new(pd.clone(), 0),
            pd,
        }
    }

    fn entry(&mut self, slot: u64) -> Option<&mut ListedReceive> {
        let key = self.entries.key_at(u32::try_from(slot).ok()?)?;
        self.entries.get_mut(key)
    }

    /// Frees the slot of an entry for which no completion will come any more.
    fn sweep(&mut self, slot: u64) {
        let Some(key) = u32::try_from(slot).ok().and_then(|slot| self.entries.key_at(slot)) else {
            return;
        };
        let is_over = |entry: &ListedReceive| {
            entry.is_finished && !entry.awaits_added && !entry.awaits_deleted
        };
        if self.entries.get(key).is_some_and(is_over) {
            self.entries.remove(key);
        }
    }

    /// Handles the completion of an operation.
    pub(super) fn on_operation_completion(&mut self, wr_id: u64, status: sys::ibv_wc_status) {
        if self.is_lost {
            // It was answered when the list was lost.
            return;
        }
        let slot = wr_id & u64::from(u32::MAX);
        // The NIC answers in order.
        while self.unanswered.pop_front().is_some_and(|other| other != wr_id) {}
        if wr_id & SYNCED != 0 {
            self.events.push(TagEvent::Synced);
        } else if let Some(entry) = self.entry(slot) {
            let name = entry.name;
            if wr_id & ADDED != 0 {
                entry.awaits_added = false;
                self.events.push(TagEvent::Added { entry: name });
            } else if wr_id & DELETED != 0 {
                entry.awaits_deleted = false;
                if status == sys::IBV_WC_SUCCESS {
                    entry.region = None;
                    entry.is_finished = true;
                    let buffer = entry.buffer.take();
                    self.events.push(TagEvent::Deleted { entry: name, buffer });
                } else {
                    self.events.push(TagEvent::DeleteLost { entry: name });
                }
            }
        }
        // IBV_WC_TM_ERR says that a delete came too late for its entry. Any other failure breaks
        // the list.
        self.is_broken |= status != sys::IBV_WC_SUCCESS && status != sys::IBV_WC_TM_ERR;
        self.sweep(slot);
    }

    /// Handles a completion of an entry that has matched a message.
    pub(super) fn on_match_completion(
        &mut self,
        wc: &sys::ibv_wc,
        tm: sys::ibv_wc_tm_info,
        peer: PeerId,
    ) {
        let slot = wc.wr_id & u64::from(u32::MAX);
        if self.is_lost && self.entry(slot).is_none() {
            return;
        }
        let Ok(entry) = self.entry(slot).or_bug("a completion names an entry") else {
            self.is_broken = true;
            return;
        };
        let name = entry.name;
        let is_match = wc.wc_flags & sys::IBV_WC_TM_MATCH != 0;
        let has_data = wc.wc_flags & sys::IBV_WC_TM_DATA_VALID != 0;
        let is_first = is_match && entry.matched.is_none();
        entry.is_incomplete |= wc.status == sys::IBV_WC_TM_RNDV_INCOMPLETE;
        if is_first {
            entry.matched = Some(peer);
        }
        let is_incomplete = entry.is_incomplete;
        let landed = (has_data && !entry.is_finished).then(|| {
            entry.region = None;
            entry.is_finished = true;
            entry.buffer.take()
        });
        if is_first {
            let tag = tm.tag;
            let app_ctx = tm.priv_;
            self.events.push(TagEvent::Matched { entry: name, peer, tag, app_ctx });
        }
        if let Some(Some(buffer)) = landed {
            let immediate =
                (wc.wc_flags & sys::IBV_WC_WITH_IMM != 0).then(|| u32::from_be(wc.imm_data));
            self.events.push(if is_incomplete {
                TagEvent::Incomplete { entry: name, buffer }
            } else {
                TagEvent::Landed { entry: name, length: wc.byte_len, immediate, buffer }
            });
        }
        self.sweep(slot);
    }

    /// The senders of the messages that the NIC has matched, and whose data it has not reported.
    pub(super) fn senders(&self) -> impl Iterator<Item = PeerId> {
        let landing = self.entries.iter().filter(|entry| !entry.is_finished);
        landing.filter_map(|entry| entry.matched)
    }

    /// Whether the NIC has matched a message of a peer, and not reported its data.
    pub(super) fn is_landing(&self, peer: PeerId) -> bool {
        self.entries.iter().any(|entry| entry.matched == Some(peer) && !entry.is_finished)
    }

    /// Fails the entries whose matched message a peer was still sending. Its queue pair is
    /// destroyed, so the data will never come.
    pub(super) fn fail_peer(&mut self, peer: PeerId) {
        let is_lost = |entry: &ListedReceive| entry.matched == Some(peer) && !entry.is_finished;
        for key in self.entries.keys_where(is_lost) {
            let Some(entry) = self.entries.get_mut(key) else { continue };
            entry.is_finished = true;
            entry.region = None;
            let name = entry.name;
            if let Some(buffer) = entry.buffer.take() {
                self.events.push(TagEvent::Failed { entry: name, buffer });
            }
            self.sweep(key.index.into());
        }
    }

    /// The device or a queue is lost (`IBV_EVENT_DEVICE_FATAL`, `IBV_EVENT_CQ_ERR`,
    /// `IBV_EVENT_SRQ_ERR`), and all queue pairs are in error: this side answers what the NIC has
    /// not, and every later delete. Messages that the NIC has matched fail with their senders.
    pub(super) fn lose(&mut self) {
        if std::mem::replace(&mut self.is_lost, true) {
            return;
        }
        self.is_broken = true;
        for wr_id in std::mem::take(&mut self.unanswered) {
            let slot = wr_id & u64::from(u32::MAX);
            if wr_id & SYNCED != 0 {
                self.events.push(TagEvent::Synced);
            } else if wr_id & DELETED != 0 {
                self.end_deleted(slot);
            } else if let Some(entry) = self.entry(slot) {
                entry.awaits_added = false;
                let name = entry.name;
                self.events.push(TagEvent::Added { entry: name });
            }
            self.sweep(slot);
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Answers the delete of an entry in the place of a NIC that is lost.
    fn end_deleted(&mut self, slot: u64) {
        let Some(entry) = self.entry(slot) else { return };
        entry.awaits_deleted = false;
        let name = entry.name;
        if entry.matched.is_some() {
            return self.events.push(TagEvent::DeleteLost { entry: name });
        }
        entry.region = None;
        entry.is_finished = true;
        let buffer = entry.buffer.take();
        self.events.push(TagEvent::Deleted { entry: name, buffer });
    }

    /// Takes the events that were produced since the last call.
    pub(super) fn take_events(&mut self) -> impl Iterator<Item = TagEvent> {
        self.events.drain(..)
    }

    fn post(&mut self, operation: &mut sys::ibv_ops_wr) -> Result<(), TagRefused> {
        // SAFETY: the buffer of an addition is registered. Its entry keeps it until the NIC has
        // completed it, or the queue and its queue pairs are destroyed.
        unsafe { self.srq.post_operation(operation) }.map_err(|error| refusal(&error))?;
        if operation.flags & sys::IBV_OPS_SIGNALED != 0 {
            self.unanswered.push_back(operation.wr_id);
        }
        Ok(())
    }
}

fn refusal(error: &io::Error) -> TagRefused {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => TagRefused::QueueFull,
        Some(libc::EINVAL) => TagRefused::NoSuchEntry,
        _ => TagRefused::Broken,
    }
}

fn operation(kind: sys::ibv_ops_wr_opcode, wr_id: u64, count: u16) -> sys::ibv_ops_wr {
    let mut operation = sys::ibv_ops_wr::zeroed();
    operation.wr_id = wr_id;
    operation.opcode = kind;
    operation.flags = sys::IBV_OPS_SIGNALED | sys::IBV_OPS_TM_SYNC;
    operation.tm.unexpected_cnt = count.into();
    operation
}

impl TagList for List {
    fn caps(&self) -> TagCaps {
        self.caps
    }

    fn add(&mut self, add: TagAdd) -> Result<TagHandle, (Buffer, TagRefused)> {
        let TagAdd { entry: name, tag, mask, buffer, count } = add;
        if self.is_broken {
            return Err((buffer, TagRefused::Broken));
        }
        let Some(key) = self.entries.vacant(self.caps.slots) else {
            return Err((buffer, TagRefused::ListFull));
        };
        let slot = key.index;
        let length = buffer.len();
        let is_fit = buffer.is_writable() && u32::try_from(length).is_ok();
        let region = is_fit.then(|| {
            let access = sys::IBV_ACCESS_LOCAL_WRITE;
            // SAFETY: the entry keeps the buffer, and nobody accesses it, until the region is
            // dropped.
            unsafe { Region::new(&self.pd, &buffer, length, access) }.ok()
        });
        let Some(region) = region.flatten() else { return Err((buffer, TagRefused::Buffer)) };
        let mut part = sys::ibv_sge {
            addr: buffer.as_ptr().expose_provenance() as u64,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            lkey: region.lkey,
        };
        let mut operation = operation(sys::IBV_WR_TAG_ADD, ADDED | u64::from(slot), count);
        operation.tm.add.recv_wr_id = ENTRY | u64::from(slot);
        operation.tm.add.sg_list = &raw mut part;
        operation.tm.add.num_sge = 1;
        operation.tm.add.tag = tag;
        operation.tm.add.mask = mask;
        if let Err(refused) = self.post(&mut operation) {
            return Err((buffer, refused));
        }
        let entry = ListedReceive {
            name,
            handle: operation.tm.handle,
            region: Some(region),
            buffer: Some(buffer),
            matched: None,
            is_incomplete: false,
            awaits_added: true,
            awaits_deleted: false,
            is_finished: false,
        };
        self.entries.fill(key, entry);
        Ok(TagHandle(slot))
    }

    fn delete(&mut self, handle: TagHandle, answer: bool, count: u16) -> Result<(), TagRefused> {
        let is_broken = self.is_broken;
        let is_lost = self.is_lost;
        let slot = u64::from(handle.0);
        let entry = self.entry(slot).filter(|entry| !entry.awaits_deleted);
        let entry = entry.ok_or(TagRefused::NoSuchEntry)?;
        if is_lost {
            entry.is_finished |= !answer;
            if answer {
                self.end_deleted(slot);
            }
            self.sweep(slot);
            return Ok(());
        }
        if is_broken {
            return Err(TagRefused::Broken);
        }
        let mut operation = operation(sys::IBV_WR_TAG_DEL, DELETED | slot, count);
        operation.tm.handle = entry.handle;
        if !answer {
            operation.flags &= !sys::IBV_OPS_SIGNALED;
        }
        self.post(&mut operation)?;
        if let Some(entry) = self.entry(slot) {
            entry.awaits_deleted = answer;
            entry.is_finished |= !answer;
        }
        self.sweep(slot);
        Ok(())
    }

    fn sync(&mut self, count: u16) -> Result<(), TagRefused> {
        if self.is_broken {
            return Err(TagRefused::Broken);
        }
        self.post(&mut operation(sys::IBV_WR_TAG_SYNC, SYNCED, count))
    }

    fn entry_buffer(&mut self, length: usize) -> Option<Buffer> {
        self.pool.allocate(length).ok().or_else(|| Buffer::try_zeroed(length))
    }

    fn reclaim(&mut self, handle: TagHandle) -> Option<Buffer> {
        let entry = self.entry(handle.0.into()).filter(|entry| entry.matched.is_none())?;
        // A NIC that breaks its rules must not be able to write into the buffer that is returned. A
        // buffer that was registered for this entry is unregistered. Memory of a pool is
        // unregistered and freed, and other memory of the list's pool is returned in its place.
        // Registered memory of the caller's own is returned as it is: the caller wants the message
        // there.
        drop(entry.region.take());
        let buffer = entry.buffer.take()?;
        if !retire(&buffer) {
            return Some(buffer);
        }
        let length = buffer.len();
        drop(buffer);
        self.entry_buffer(length)
    }
}
