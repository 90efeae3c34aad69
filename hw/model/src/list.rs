//! The NIC's list: entries in the order of their adds, and the two counts of unexpected messages.

use std::hash::{Hash, Hasher};

use crate::Handle;
use crate::knob_values::Wake;
use crate::random::Random;

/// An entry that was added and has not been matched or deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelEntry {
    pub(crate) handle: Handle,
    pub(crate) recv_wr_id: u64,
    pub(crate) tag: u64,
    pub(crate) mask: u64,
    /// Bytes in its buffer.
    pub(crate) length: u64,
    is_active: bool,
}

impl ModelEntry {
    pub(crate) fn new(handle: Handle, recv_wr_id: u64, tag: u64, mask: u64, length: u64) -> Self {
        ModelEntry { handle, recv_wr_id, tag, mask, length, is_active: false }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct List {
    entries: Vec<ModelEntry>,
    /// The number of inactive entries.
    inactive: usize,
    /// Unexpected messages counted by the NIC, modulo 2^16 (`hw_phase_cnt`).
    counted: u16,
    /// The last count that software sent (`sw_phase_cnt`).
    software_count: u16,
    wake: Wake,
}

impl List {
    pub(crate) fn new(first_count: u16, wake: Wake) -> Self {
        List {
            entries: Vec::new(),
            inactive: 0,
            counted: first_count,
            software_count: first_count,
            wake,
        }
    }

    /// How far the NIC's count is ahead of the last count from software.
    pub(crate) fn distance(&self) -> u16 {
        self.counted.wrapping_sub(self.software_count)
    }

    pub(crate) fn software_count(&self) -> u16 {
        self.software_count
    }

    pub(crate) fn counted(&self) -> u16 {
        self.counted
    }

    /// See [`Nic::hash_state`](crate::Nic::hash_state).
    pub(crate) fn hash_state(&self, state: &mut impl Hasher) {
        (self.distance(), self.entries.len()).hash(state);
        for ModelEntry { handle, recv_wr_id, tag, mask, length, is_active } in &self.entries {
            (handle.slot(), recv_wr_id, tag, mask, length, is_active).hash(state);
        }
    }

    /// Counts an unexpected message.
    pub(crate) fn count(&mut self) {
        self.counted = self.counted.wrapping_add(1);
    }

    pub(crate) fn set_wake(&mut self, wake: Wake) {
        self.wake = wake;
    }

    /// Whether an operation with this count may wake inactive entries.
    pub(crate) fn may_wake(&self, count: u16) -> bool {
        self.inactive > 0 && self.counted == count
    }

    /// Stores software's count. If it equals the NIC's, inactive entries may become active: all of
    /// them or none. If only some became active, a later receive could overtake an earlier one that
    /// overlaps it.
    pub(crate) fn set_software_count(&mut self, count: u16, random: &mut Random) {
        self.software_count = count;
        if self.distance() != 0 || self.inactive == 0 {
            return;
        }
        let wakes = match self.wake {
            Wake::Always => true,
            Wake::Never => false,
            Wake::Sometimes => random.below(2) == 0,
        };
        if wakes {
            self.entries.iter_mut().for_each(|entry| entry.is_active = true);
            self.inactive = 0;
        }
    }

    /// Appends an entry, which is active if the counts agree now.
    pub(crate) fn add(&mut self, entry: ModelEntry) {
        let is_active = self.distance() == 0;
        self.inactive += usize::from(!is_active);
        self.entries.push(ModelEntry { is_active, ..entry });
    }

    /// Removes the entry with this slot, if there is one.
    pub(crate) fn take_slot(&mut self, slot: usize) -> Option<Handle> {
        let at = self.entries.iter().position(|entry| entry.handle.slot() == slot)?;
        Some(self.remove_at(at).handle)
    }

    /// Removes an entry; `false` if it is no longer in the list.
    pub(crate) fn remove(&mut self, handle: Handle) -> bool {
        let at = self.entries.iter().position(|entry| entry.handle == handle);
        at.map(|at| self.remove_at(at)).is_some()
    }

    /// Takes out the first active entry that matches a tag. The entry's own tag is not masked, as
    /// in `ibv_post_srq_ops(3)`.
    pub(crate) fn take_match(&mut self, tag: u64) -> Option<ModelEntry> {
        let at = self.first_match(tag)?;
        Some(self.remove_at(at))
    }

    /// Whether an active entry matches a tag.
    pub(crate) fn matches(&self, tag: u64) -> bool {
        self.first_match(tag).is_some()
    }

    /// Whether an entry would match a tag if it had not missed its phase.
    pub(crate) fn matches_inactive(&self, tag: u64) -> bool {
        self.entries.iter().any(|entry| !entry.is_active && tag & entry.mask == entry.tag)
    }

    fn first_match(&self, tag: u64) -> Option<usize> {
        let matches = |entry: &ModelEntry| entry.is_active && tag & entry.mask == entry.tag;
        self.entries.iter().position(matches)
    }

    fn remove_at(&mut self, at: usize) -> ModelEntry {
        let entry = self.entries.remove(at);
        self.inactive -= usize::from(!entry.is_active);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(handle: u32, tag: u64, mask: u64) -> ModelEntry {
        ModelEntry::new(Handle(handle), 0, tag, mask, 64)
    }

    #[test]
    fn the_first_entry_that_matches_is_taken() {
        let mut list = List::new(0, Wake::Never);
        list.add(entry(1, 0x12, 0xff));
        list.add(entry(2, 0x10, 0xf0));
        list.add(entry(3, 0, 0));
        assert_eq!(list.take_match(0x112).unwrap().handle, Handle(1));
        assert_eq!(list.take_match(0x112).unwrap().handle, Handle(2));
        assert!(list.remove(Handle(3)) && !list.remove(Handle(3)));
        assert!(list.take_match(0x112).is_none());
    }

    #[test]
    fn a_tag_outside_its_mask_matches_nothing() {
        let mut list = List::new(0, Wake::Never);
        list.add(entry(1, 0x12, 0xf0));
        assert!(list.take_match(0x12).is_none());
    }

    #[test]
    fn inactive_entries_become_active_if_the_knob_says_so() {
        for (wake, expected) in [(Wake::Always, true), (Wake::Never, false)] {
            let random = &mut Random::new(1);
            let mut list = List::new(u16::MAX, wake);
            list.count();
            list.add(entry(1, 5, 5));
            assert_eq!((list.distance(), list.counted()), (1, 0));
            assert!(list.take_match(5).is_none());
            list.set_software_count(0, random);
            list.add(entry(2, 7, 7));
            assert_eq!(list.take_match(5).is_some(), expected);
            assert!(list.take_match(7).is_some(), "the counts agreed when it was added");
        }
    }
}
