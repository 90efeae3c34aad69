//! Entries by index, with a generation each, so that an old handle is an error and nothing else.

use crate::link::NIL;
use thiserror::Error;

/// The handle's entry is gone: it was matched, cancelled or removed, or belongs to another list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("stale handle: its entry was already matched, cancelled or removed")]
pub struct StaleHandle;

/// Where an entry is, and which of the entries that were ever there it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RawHandle {
    pub(crate) index: u32,
    generation: u32,
}

/// Names a receive in a [`PostedList`](crate::PostedList), until it is matched or cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PostedHandle(pub(crate) RawHandle);

impl PostedHandle {
    /// The handle as a number, to be kept where there is no room for more.
    #[inline]
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.0.index) | u64::from(self.0.generation) << 32
    }

    /// The handle that [`PostedHandle::to_bits`] gave. Of any other number: a handle that is stale, or
    /// that of another receive.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "takes the two halves apart")]
    pub fn from_bits(bits: u64) -> Self {
        PostedHandle(RawHandle { index: bits as u32, generation: (bits >> 32) as u32 })
    }
}

/// Names a message in an [`UnexpectedList`](crate::UnexpectedList), until it is taken or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnexpectedHandle(pub(crate) RawHandle);

/// One slot. `extra` belongs to the entry, and holds the chain of free slots when there is none:
/// it sits beside the generation so that neither costs a word of padding.
#[derive(Clone, Debug)]
struct Slot<E> {
    /// Odd while an entry is here.
    generation: u32,
    extra: u32,
    entry: E,
}

/// The slots of one list.
///
/// A slot whose generation has gone once round is never used again: two billion uses of one slot
/// cost its few bytes, and no handle ever comes to mean another entry.
#[derive(Clone, Debug)]
pub(crate) struct Slab<E> {
    slots: Vec<Slot<E>>,
    /// The chain of slots that nobody holds.
    free: u32,
}

/// The most entries of one list: an entry's number has to differ from [`NIL`], and tables of keys have to
/// hold as many.
const MAX_SLOTS: usize = 1 << 30;
/// Beyond this many slots a slab grows by a quarter rather than doubling: memory that is never used counts
/// for every entry.
const DOUBLING_MAX: usize = 1 << 12;

impl<E: Copy> Slab<E> {
    pub(crate) const SLOT_BYTES: usize = size_of::<Slot<E>>();

    pub(crate) const fn new() -> Self {
        Slab { slots: Vec::new(), free: NIL }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slots.capacity() * Self::SLOT_BYTES
    }

    /// Adds an entry in a free slot.
    ///
    /// Takes the entry as a closure, so that it is made in place: an entry that is also handed to
    /// the slow path is made on the stack, and reading it back from there takes longer than all
    /// else that happens here.
    #[inline]
    pub(crate) fn insert(&mut self, extra: u32, entry: impl Fn(u32) -> E) -> RawHandle {
        if let Some(slot) = self.slots.get_mut(self.free as usize) {
            let index = self.free;
            self.free = slot.extra;
            let generation = slot.generation + 1;
            *slot = Slot { generation, extra, entry: entry(index) };
            return RawHandle { index, generation };
        }
        let entry = entry(self.next_slot());
        self.push_occupied(extra, entry)
    }

    /// The number of the slot that is added next.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "push checks it")]
    fn next_slot(&self) -> u32 {
        self.slots.len() as u32
    }

    #[cold]
    #[inline(never)]
    fn push_occupied(&mut self, extra: u32, entry: E) -> RawHandle {
        let index = self.push(entry);
        self.slots[index as usize].extra = extra;
        self.occupy(index)
    }

    /// A slot for somebody to hold, whose entry comes and goes by [`occupy`](Self::occupy) and
    /// [`vacate`](Self::vacate).
    #[cold]
    #[inline(never)]
    pub(crate) fn hold(&mut self, entry: E) -> u32 {
        match self.slots.get_mut(self.free as usize) {
            Some(slot) => {
                slot.entry = entry;
                std::mem::replace(&mut self.free, slot.extra)
            }
            None => self.push(entry),
        }
    }

    /// A new slot, which is on no chain and vacant.
    #[cold]
    #[inline(never)]
    fn push(&mut self, entry: E) -> u32 {
        let index = self.next_slot();
        let len = self.slots.len();
        assert!(len < MAX_SLOTS, "a list holds at most {MAX_SLOTS} entries");
        if len == self.slots.capacity() && len >= DOUBLING_MAX {
            self.slots.reserve_exact(len / 4);
        }
        self.slots.push(Slot { generation: 0, extra: NIL, entry });
        index
    }

    /// From now on there is an entry in a vacant slot: the one that is set there.
    #[inline]
    pub(crate) fn occupy(&mut self, index: u32) -> RawHandle {
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.generation & 1 == 0, "slot {index} is in use");
        slot.generation += 1;
        RawHandle { index, generation: slot.generation }
    }

    /// Takes the entry out of a slot, which goes on no chain. `false` if it must never be used again.
    #[inline]
    #[must_use]
    pub(crate) fn vacate(&mut self, index: u32) -> bool {
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.generation & 1 == 1, "slot {index} is free already");
        slot.generation = slot.generation.wrapping_add(1);
        slot.generation != 0
    }

    /// Frees the slot of a live entry.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) -> E {
        if self.vacate(index) {
            self.slots[index as usize].extra = self.free;
            self.free = index;
        }
        self.slots[index as usize].entry
    }

    /// The index behind a handle, if its entry is still there.
    #[inline]
    pub(crate) fn resolve(&self, handle: RawHandle) -> Option<u32> {
        let slot = self.slots.get(handle.index as usize)?;
        // An even one is nobody's, whatever number it was made from.
        let is_live = slot.generation == handle.generation && handle.generation & 1 == 1;
        is_live.then_some(handle.index)
    }

    #[inline]
    pub(crate) fn handle(&self, index: u32) -> RawHandle {
        RawHandle { index, generation: self.slots[index as usize].generation }
    }

    #[inline]
    pub(crate) fn entry(&self, index: u32) -> &E {
        &self.slots[index as usize].entry
    }

    #[inline]
    pub(crate) fn entry_mut(&mut self, index: u32) -> &mut E {
        &mut self.slots[index as usize].entry
    }

    #[inline]
    pub(crate) fn extra(&self, index: u32) -> u32 {
        self.slots[index as usize].extra
    }

    #[inline]
    pub(crate) fn set_extra(&mut self, index: u32, extra: u32) {
        self.slots[index as usize].extra = extra;
    }

    /// Indices of all live entries, in no order; looks at every slot ever used.
    #[expect(clippy::cast_possible_truncation, reason = "at most MAX_SLOTS")]
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> {
        let live = |(_, slot): &(usize, &Slot<E>)| slot.generation & 1 == 1;
        self.slots.iter().enumerate().filter(live).map(|(index, _)| index as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_handles_are_stale_and_slots_are_used_again() {
        let mut slab = Slab::new();
        let first = slab.insert(1, |_| 'a');
        assert_eq!(slab.remove(first.index), 'a');
        assert_eq!(slab.resolve(first), None);
        let second = slab.insert(2, |_| 'b');
        assert_eq!(second.index, first.index);
        assert_eq!(slab.resolve(first), None);
        assert_eq!(slab.resolve(second), Some(second.index));
        assert_eq!(slab.extra(second.index), 2);
    }

    #[test]
    fn no_number_names_an_empty_slot() {
        let mut slab = Slab::new();
        let handle = slab.insert(1, |_| 'a');
        slab.remove(handle.index);
        for generation in 0..4 {
            let bits = u64::from(handle.index) | generation << 32;
            assert_eq!(slab.resolve(PostedHandle::from_bits(bits).0), None);
        }
    }

    #[test]
    fn handles_of_another_list_are_errors() {
        let (mut long, mut short) = (Slab::new(), Slab::new());
        let handles: Vec<_> = (0..3).map(|n| long.insert(0, move |_| n)).collect();
        let only = short.insert(0, |_| 0);
        short.remove(only.index);
        assert!(handles.iter().all(|&handle| short.resolve(handle).is_none()));
    }

    #[test]
    fn a_slot_whose_generations_are_spent_is_left_alone() {
        let mut slab = Slab::new();
        let old = slab.insert(0, |_| 'a');
        slab.slots[0].generation = u32::MAX;
        slab.remove(old.index);
        let new = slab.insert(0, |_| 'b');
        assert_ne!(new.index, old.index);
        assert_eq!(slab.resolve(old), None);
        assert_eq!(slab.indices().collect::<Vec<_>>(), [new.index]);
    }

    #[test]
    fn a_held_slot_is_nobody_elses() {
        let mut slab = Slab::new();
        let freed = slab.insert(0, |_| 'a');
        slab.remove(freed.index);
        let held = slab.hold('b');
        assert_eq!(held, freed.index);
        assert_eq!(slab.indices().count(), 0);
        let first = slab.occupy(held);
        assert_eq!(slab.resolve(freed), None);
        assert_ne!(slab.insert(0, |_| 'c').index, held);
        assert!(slab.vacate(held));
        assert_eq!(slab.resolve(first), None);
        assert_ne!(slab.insert(0, |_| 'd').index, held);
        slab.slots[held as usize].generation = u32::MAX - 1;
        assert_eq!(slab.occupy(held).generation, u32::MAX);
        assert!(!slab.vacate(held));
    }

    #[test]
    fn a_large_slab_has_little_slack() {
        let mut slab = Slab::new();
        for number in 0..100_000 {
            slab.insert(0, |_| number);
            let most = slab.slots.len().max(DOUBLING_MAX) * 5 / 4;
            assert!(slab.slots.capacity() <= most + 1);
        }
    }
}
