//! The NIC's list of posted receives: operations go to the tag-matching queue, its completions become
//! events.

use std::io;
use std::sync::Arc;

use tagmatch_device::{Buffer, PeerId, TagAdd, TagCaps, TagEvent, TagHandle, TagList, TagRefused};
use tagmatch_rdma_core_sys as sys;

use super::object::{Pd, Srq};
use super::region::Region;
use super::wr_id::{ADDED, DELETED, ENTRY, SYNCED};

/// Unexpected messages after which the NIC is told a count again. Half of what it can tell apart.
const SYNC_EVERY: u16 = 1 << 13;
/// Entries of a list, however many a NIC may have.
const SLOTS_MAX: u32 = 1 << 14;

/// What a list can be made with; `None` if the device has none for reliable connections.
pub(super) fn fit(caps: &sys::ibv_tm_caps) -> Option<sys::ibv_tm_cap> {
    let is_usable = caps.flags & sys::IBV_TM_CAP_RC != 0 && caps.max_num_tags > 0;
    let slots = caps.max_num_tags.min(SLOTS_MAX);
    let mut list = sys::ibv_tm_cap::zeroed();
    list.max_num_tags = slots;
    // As UCX does it: an add and a delete of each entry, and two.
    list.max_ops = (2 * slots + 2).min(caps.max_ops);
    (is_usable && list.max_ops > 0).then_some(list)
}

/// Completions that a list may bring at a time, beside those of messages.
pub(super) fn completions(list: &sys::ibv_tm_cap) -> u32 {
    list.max_ops.saturating_add(2 * list.max_num_tags)
}

/// An entry, from its addition until its last completion.
struct Entry {
    /// The caller's name for it.
    name: u32,
    /// The device's.
    handle: u32,
    // Before the buffer: it is unregistered first.
    region: Option<Region>,
    buffer: Option<Buffer>,
    /// Who has sent what it matched.
    matched: Option<PeerId>,
    /// What it matched is longer than its buffer.
    is_incomplete: bool,
    awaits_added: bool,
    awaits_deleted: bool,
    /// Nothing more comes of it but answers.
    is_finished: bool,
}

/// The list, as software drives it.
pub(super) struct List {
    // The memory after the queue: the NIC writes none of it once that, and the queue pairs on it, are gone.
    srq: Arc<Srq>,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    events: Vec<TagEvent>,
    caps: TagCaps,
    is_broken: bool,
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
            entries: (0..slots).map(|_| None).collect(),
            free: (0..slots).rev().collect(),
            events: Vec::new(),
            caps,
            is_broken: false,
            pd,
        }
    }

    fn entry(&mut self, slot: u64) -> Option<&mut Entry> {
        self.entries.get_mut(usize::try_from(slot).ok()?)?.as_mut()
    }

    /// Forgets an entry of which nothing more comes.
    fn sweep(&mut self, slot: u64) {
        let Ok(at) = usize::try_from(slot) else { return };
        let is_over =
            self.entries.get(at).and_then(Option::as_ref).is_some_and(|entry| {
                entry.is_finished && !entry.awaits_added && !entry.awaits_deleted
            });
        if is_over && let Ok(slot) = u32::try_from(slot) {
            self.entries[at] = None;
            self.free.push(slot);
        }
    }

    /// An operation has ended: which, and how.
    pub(super) fn on_operation_completion(&mut self, wr_id: u64, status: sys::ibv_wc_status) {
        let slot = wr_id & u64::from(u32::MAX);
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
        // A delete that came too late is an answer; any other failure is the end of the list.
        self.is_broken |= status != sys::IBV_WC_SUCCESS && status != sys::IBV_WC_TM_ERR;
        self.sweep(slot);
    }

    /// A completion of a matched entry.
    pub(super) fn on_match_completion(
        &mut self,
        wc: &sys::ibv_wc,
        tm: sys::ibv_wc_tm_info,
        peer: PeerId,
    ) {
        let slot = wc.wr_id & u64::from(u32::MAX);
        let Some(entry) = self.entry(slot) else { return };
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
            let (tag, app_ctx) = (tm.tag, tm.priv_);
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

    /// The queue pair of a peer is gone: what it was sending will never come.
    pub(super) fn fail_peer(&mut self, peer: PeerId) {
        for slot in 0..self.caps.slots {
            let Some(entry) = self.entry(slot.into()) else { continue };
            if entry.matched == Some(peer) && !entry.is_finished {
                entry.is_finished = true;
                entry.region = None;
                let name = entry.name;
                if let Some(buffer) = entry.buffer.take() {
                    self.events.push(TagEvent::Failed { entry: name, buffer });
                }
                self.sweep(slot.into());
            }
        }
    }

    /// Takes the events of what the list was told since the last call.
    pub(super) fn take_events(&mut self) -> impl Iterator<Item = TagEvent> {
        self.events.drain(..)
    }

    fn post(&self, operation: &mut sys::ibv_ops_wr) -> Result<(), TagRefused> {
        // SAFETY: the buffer of an addition is registered; its entry keeps it until the NIC has done with
        // it, or queue and pairs are gone.
        unsafe { self.srq.post_operation(operation) }.map_err(|error| refusal(&error))
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
        let TagAdd { entry: name, tag, mask, mut buffer, count } = add;
        if self.is_broken {
            return Err((buffer, TagRefused::Broken));
        }
        let Some(slot) = self.free.pop() else {
            return Err((buffer, TagRefused::ListFull));
        };
        let length = buffer.len();
        let is_fit = buffer.is_writable() && u32::try_from(length).is_ok();
        let region = is_fit.then(|| {
            let access = sys::IBV_ACCESS_LOCAL_WRITE;
            // SAFETY: the entry keeps the buffer, and nobody looks at it, until the region is gone.
            unsafe { Region::new(&self.pd, &mut buffer, length, access) }.ok()
        });
        let region = region.flatten();
        let Some(region) = region else {
            self.free.push(slot);
            return Err((buffer, TagRefused::Buffer));
        };
        let mut part = sys::ibv_sge {
            addr: buffer.as_ptr().expose_provenance() as u64,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            lkey: region.lkey(),
        };
        let mut operation = operation(sys::IBV_WR_TAG_ADD, ADDED | u64::from(slot), count);
        operation.tm.add.recv_wr_id = ENTRY | u64::from(slot);
        operation.tm.add.sg_list = &raw mut part;
        operation.tm.add.num_sge = 1;
        operation.tm.add.tag = tag;
        operation.tm.add.mask = mask;
        if let Err(refused) = self.post(&mut operation) {
            self.free.push(slot);
            return Err((buffer, refused));
        }
        self.entries[slot as usize] = Some(Entry {
            name,
            handle: operation.tm.handle,
            region: Some(region),
            buffer: Some(buffer),
            matched: None,
            is_incomplete: false,
            awaits_added: true,
            awaits_deleted: false,
            is_finished: false,
        });
        Ok(TagHandle(slot))
    }

    fn delete(&mut self, handle: TagHandle, answer: bool, count: u16) -> Result<(), TagRefused> {
        let is_broken = self.is_broken;
        let slot = u64::from(handle.0);
        let entry = self.entry(slot).filter(|entry| !entry.awaits_deleted);
        let entry = entry.ok_or(TagRefused::NoSuchEntry)?;
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

    fn reclaim(&mut self, handle: TagHandle) -> Option<Buffer> {
        let entry = self.entry(handle.0.into()).filter(|entry| entry.matched.is_none())?;
        // A NIC that breaks its rules must not be able to write what is given back: it is unregistered, or,
        // where its memory stays registered, left to the NIC for good and another one given in its place.
        match (entry.region.take(), entry.buffer.take()) {
            (Some(Region::Pooled { .. }), Some(buffer)) => {
                let another = Buffer::zeroed(buffer.len());
                std::mem::forget(buffer);
                Some(another)
            }
            (_, buffer) => buffer,
        }
    }
}
