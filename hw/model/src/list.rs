//! The list as the NIC sees it: entries in the order of their adds, and the two counts.

use std::hash::{Hash, Hasher};

use super::Handle;
use super::knobs::Wake;
use super::random::Random;

/// An entry that was taken up and not matched or deleted since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) handle: Handle,
    pub(super) recv_wr_id: u64,
    pub(super) tag: u64,
    pub(super) mask: u64,
    /// Bytes in its buffer.
    pub(super) length: u64,
    is_active: bool,
}

impl Entry {
    pub(super) fn new(handle: Handle, recv_wr_id: u64, tag: u64, mask: u64, length: u64) -> Self {
        Entry { handle, recv_wr_id, tag, mask, length, is_active: false }
    }
}

#[derive(Clone, Debug)]
pub(super) struct List {
    entries: Vec<Entry>,
    /// Inactive ones among them.
    inactive: usize,
    /// Unexpected messages that the NIC has counted (`hw_phase_cnt`).
    counted: u16,
    /// The count that it was told last (`sw_phase_cnt`).
    told: u16,
    wake: Wake,
}

impl List {
    pub(super) fn new(first_count: u16, wake: Wake) -> Self {
        List { entries: Vec::new(), inactive: 0, counted: first_count, told: first_count, wake }
    }

    /// How far the NIC's count is ahead of the one that it was told.
    pub(super) fn distance(&self) -> u16 {
        self.counted.wrapping_sub(self.told)
    }

    pub(super) fn told(&self) -> u16 {
        self.told
    }

    pub(super) fn counted(&self) -> u16 {
        self.counted
    }

    /// See [`Nic::hash_state`](super::Nic::hash_state).
    pub(super) fn hash_state(&self, state: &mut impl Hasher) {
        (self.distance(), self.entries.len()).hash(state);
        for Entry { handle, recv_wr_id, tag, mask, length, is_active } in &self.entries {
            (handle.slot(), recv_wr_id, tag, mask, length, is_active).hash(state);
        }
    }

    /// An unexpected message.
    pub(super) fn count(&mut self) {
        self.counted = self.counted.wrapping_add(1);
    }

    pub(super) fn set_wake(&mut self, wake: Wake) {
        self.wake = wake;
    }

    /// Whether an operation with this count may wake inactive entries.
    pub(super) fn may_wake(&self, count: u16) -> bool {
        self.inactive > 0 && self.counted == count
    }

    /// An operation brings a count. If it agrees, entries that missed their phase may be woken, all or
    /// none: were only some of them, a later receive could overtake an earlier one that overlaps it.
    pub(super) fn tell(&mut self, count: u16, random: &mut Random) {
        self.told = count;
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

    /// Appends; the entry is active if the counts agree now.
    pub(super) fn add(&mut self, entry: Entry) {
        let is_active = self.distance() == 0;
        self.inactive += usize::from(!is_active);
        self.entries.push(Entry { is_active, ..entry });
    }

    /// Removes; `false` if it isn't there (any more).
    pub(super) fn remove(&mut self, handle: Handle) -> bool {
        match self.entries.iter().position(|entry| entry.handle == handle) {
            Some(at) => {
                self.remove_at(at);
                true
            }
            None => false,
        }
    }

    /// Takes out the first active entry that a tag matches: the entry's tag is not masked, as
    /// `ibv_post_srq_ops(3)` has it.
    pub(super) fn take_match(&mut self, tag: u64) -> Option<Entry> {
        let matches = |entry: &Entry| entry.is_active && tag & entry.mask == entry.tag;
        let at = self.entries.iter().position(matches)?;
        Some(self.remove_at(at))
    }

    fn remove_at(&mut self, at: usize) -> Entry {
        let entry = self.entries.remove(at);
        self.inactive -= usize::from(!entry.is_active);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(handle: u32, tag: u64, mask: u64) -> Entry {
        Entry::new(Handle(handle), 0, tag, mask, 64)
    }

    #[test]
    fn the_first_that_matches_is_taken() {
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
    fn entries_out_of_phase_sleep_and_wake_by_the_knob() {
        for (wake, expected) in [(Wake::Always, true), (Wake::Never, false)] {
            let random = &mut Random::new(1);
            let mut list = List::new(u16::MAX, wake);
            list.count();
            list.add(entry(1, 5, 5));
            assert_eq!((list.distance(), list.counted()), (1, 0));
            assert!(list.take_match(5).is_none());
            list.tell(0, random);
            list.add(entry(2, 7, 7));
            assert_eq!(list.take_match(5).is_some(), expected);
            assert!(list.take_match(7).is_some(), "the counts agreed when it was added");
        }
    }
}
