//! The driver's table of entries: which slots are taken, and what completions each still waits for.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// The NIC's name for an entry: its slot in the lower 16 bits, above them how often that was used.
///
/// Verbs hands out the slot alone and mlx5 does not check it, so that a stale handle deletes somebody
/// else's entry. The model is stricter: a stale handle is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u32);

impl Handle {
    /// The slot, less than `max_num_tags`.
    pub fn slot(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

#[derive(Clone, Debug)]
struct Slot {
    handle: Handle,
    /// Completions that are still to be taken before the slot is free: the entry's end (a match with its
    /// data, or a delete), and one of each operation with an answer. mlx5 calls it `expect_cqe`.
    owed: u8,
    is_deleting: bool,
    is_matched: bool,
}

/// Slots are reused in the order in which they became free, as in mlx5.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: VecDeque<usize>,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        let slot =
            |index| Slot { handle: Handle(index), owed: 0, is_deleting: false, is_matched: false };
        Slots { slots: (0..count).map(slot).collect(), free: (0..count as usize).collect() }
    }

    /// Takes a free slot for an entry, whose add is answered or not.
    pub(super) fn take(&mut self, is_answered: bool) -> Option<Handle> {
        let slot = &mut self.slots[self.free.pop_front()?];
        slot.handle.0 = slot.handle.0.wrapping_add(1 << 16);
        slot.owed = 1 + u8::from(is_answered);
        slot.is_deleting = false;
        slot.is_matched = false;
        Some(slot.handle)
    }

    pub(super) fn is_taken(&self, handle: Handle) -> bool {
        self.slots.get(handle.slot()).is_some_and(|slot| slot.handle == handle && slot.owed > 0)
    }

    pub(super) fn is_deleting(&self, handle: Handle) -> bool {
        self.is_taken(handle) && self.slots[handle.slot()].is_deleting
    }

    /// The NIC has matched the entry.
    pub(super) fn set_matched(&mut self, handle: Handle) {
        if self.is_taken(handle) {
            self.slots[handle.slot()].is_matched = true;
        }
    }

    /// Whether the entry was matched, or has ended.
    pub(super) fn is_matched(&self, handle: Handle) -> bool {
        !self.is_taken(handle) || self.slots[handle.slot()].is_matched
    }

    /// A delete was posted. Without an answer, the driver counts the entry as ended at once.
    pub(super) fn delete(&mut self, handle: Handle, is_answered: bool) {
        self.slots[handle.slot()].is_deleting = true;
        if is_answered {
            self.slots[handle.slot()].owed += 1;
        } else {
            self.settle(handle, 1);
        }
    }

    /// So many of what the entry was owed have come.
    pub(super) fn settle(&mut self, handle: Handle, count: u8) {
        if !self.is_taken(handle) {
            return;
        }
        let slot = &mut self.slots[handle.slot()];
        slot.owed = slot.owed.saturating_sub(count);
        if slot.owed == 0 {
            self.free.push_back(handle.slot());
        }
    }

    /// How many are being deleted.
    pub(super) fn deleting(&self) -> usize {
        self.slots.iter().filter(|slot| slot.owed > 0 && slot.is_deleting).count()
    }

    /// See [`Nic::hash_state`](super::Nic::hash_state).
    pub(super) fn hash_state(&self, state: &mut impl Hasher) {
        for slot in &self.slots {
            slot.owed.hash(state);
            if slot.owed > 0 {
                (slot.is_deleting, slot.is_matched).hash(state);
            }
        }
        self.free.hash(state);
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
