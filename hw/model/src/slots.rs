//! The driver's table of slots: which are in use, and which completions each still waits for.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// The NIC's name for an entry: the slot in the lower 16 bits, and above them how often that slot
/// was used.
///
/// Verbs hands out the slot alone, and mlx5 does not check it, so that a stale handle deletes an
/// unrelated entry. The model is stricter: a stale handle is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u32);

impl Handle {
    /// The slot, which is less than `max_num_tags`.
    pub fn slot(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

#[derive(Clone, Debug)]
struct EntrySlot {
    handle: Handle,
    /// Completions that the host must poll before the slot is free: one for the end of the entry (a
    /// match with its data, or a delete), and one for each signalled operation. mlx5 calls this
    /// `expect_cqe`.
    owed: u8,
    is_deleting: bool,
    is_matched: bool,
}

/// The slots. They are reused in the order in which they became free, as in mlx5.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    slots: Vec<EntrySlot>,
    free: VecDeque<usize>,
}

impl Slots {
    pub(crate) fn new(count: u32) -> Self {
        let slot = |index| EntrySlot {
            handle: Handle(index),
            owed: 0,
            is_deleting: false,
            is_matched: false,
        };
        Slots { slots: (0..count).map(slot).collect(), free: (0..count as usize).collect() }
    }

    /// Takes a free slot for an entry. `signalled`: whether the add has a completion.
    pub(crate) fn take(&mut self, signalled: bool) -> Option<Handle> {
        let slot = &mut self.slots[self.free.pop_front()?];
        slot.handle.0 = slot.handle.0.wrapping_add(1 << 16);
        slot.owed = 1 + u8::from(signalled);
        slot.is_deleting = false;
        slot.is_matched = false;
        Some(slot.handle)
    }

    pub(crate) fn is_taken(&self, handle: Handle) -> bool {
        self.slots.get(handle.slot()).is_some_and(|slot| slot.handle == handle && slot.owed > 0)
    }

    pub(crate) fn is_deleting(&self, handle: Handle) -> bool {
        self.is_taken(handle) && self.slots[handle.slot()].is_deleting
    }

    /// Records that the NIC has matched the entry.
    pub(crate) fn set_matched(&mut self, handle: Handle) {
        if self.is_taken(handle) {
            self.slots[handle.slot()].is_matched = true;
        }
    }

    /// Whether the entry was matched, or has ended.
    pub(crate) fn is_matched(&self, handle: Handle) -> bool {
        !self.is_taken(handle) || self.slots[handle.slot()].is_matched
    }

    /// Records that a delete was posted. If it is unsignalled, the driver treats the entry as ended
    /// at once.
    pub(crate) fn delete(&mut self, handle: Handle, signalled: bool) {
        self.slots[handle.slot()].is_deleting = true;
        if signalled {
            self.slots[handle.slot()].owed += 1;
        } else {
            self.settle(handle, 1);
        }
    }

    /// Counts completions of the entry as polled. The slot is free after the last one.
    pub(crate) fn settle(&mut self, handle: Handle, count: u8) {
        if !self.is_taken(handle) {
            return;
        }
        let slot = &mut self.slots[handle.slot()];
        slot.owed = slot.owed.saturating_sub(count);
        if slot.owed == 0 {
            self.free.push_back(handle.slot());
        }
    }

    /// The number of entries for which a delete was posted.
    pub(crate) fn deleting(&self) -> usize {
        self.slots.iter().filter(|slot| slot.owed > 0 && slot.is_deleting).count()
    }

    /// See [`Nic::hash_state`](crate::Nic::hash_state).
    pub(crate) fn hash_state(&self, state: &mut impl Hasher) {
        for slot in &self.slots {
            slot.owed.hash(state);
            if slot.owed > 0 {
                (slot.is_deleting, slot.is_matched).hash(state);
            }
        }
        self.free.hash(state);
    }

    /// The errors in the table, one line each. A slot is free if no completion of it is owed.
    pub(crate) fn audit(&self) -> Vec<String> {
        let mut free: Vec<usize> = self.free.iter().copied().collect();
        free.sort_unstable();
        let owed = self.slots.iter().enumerate().filter(|(_, slot)| slot.owed == 0);
        let is_right = owed.map(|(at, _)| at).eq(free.iter().copied());
        let wrong = (!is_right).then(|| format!("slots {free:?} are free, {:?}", self.slots));
        wrong.into_iter().collect()
    }

    /// The number of slots in use.
    pub(crate) fn taken(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
