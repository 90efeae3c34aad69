//! Entries by index, each with a generation, so that an old handle gives an error and never another
//! entry.

use thiserror::Error;

use crate::link::NIL;

/// The entry of the handle is gone: it was matched, cancelled or removed, or the handle belongs to
/// another list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("stale handle: its entry was already matched, cancelled or removed")]
pub struct StaleHandle;

/// The slot of an entry, and the generation that tells it from earlier entries of that slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RawHandle {
    pub(crate) index: u32,
    generation: u32,
}

/// Identifies a receive in a [`PostedList`](crate::PostedList), until it is matched or cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PostedHandle(pub(crate) RawHandle);

impl PostedHandle {
    /// The handle as a number, for places that can only store a number.
    #[inline]
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.0.index) | u64::from(self.0.generation) << 32
    }

    /// The handle from which [`PostedHandle::to_bits`] made this number. Any other number gives a
    /// stale handle, or the handle of another receive.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "takes the two halves apart")]
    pub fn from_bits(bits: u64) -> Self {
        PostedHandle(RawHandle { index: bits as u32, generation: (bits >> 32) as u32 })
    }
}

/// Identifies a message in an [`UnexpectedList`](crate::UnexpectedList), until it is taken or
/// removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnexpectedHandle(pub(crate) RawHandle);

/// A slot. `extra` belongs to the entry; in a free slot it is the next one in the chain of free
/// slots. It is next to the generation so that neither needs padding.
#[derive(Clone, Debug)]
struct Slot<E> {
    /// Odd while the slot has an entry.
    generation: u32,
    extra: u32,
    entry: E,
}

/// The slots of one list.
///
/// A slot is never used again once its generation would wrap, after two billion uses. This wastes
/// its few bytes, but no handle ever refers to a later entry.
#[derive(Clone, Debug)]
pub(crate) struct Slab<E> {
    slots: Vec<Slot<E>>,
    /// The first slot of the chain of free slots.
    free: u32,
}

/// The most entries of one list: the number of an entry must differ from [`NIL`], and a table must
/// hold a key for each.
const MAX_SLOTS: usize = 1 << 30;
/// The number of slots from which a slab grows by a quarter instead of doubling, since unused
/// memory counts towards the bytes per entry.
const DOUBLING_MAX: usize = 1 << 12;

impl<E: Copy> Slab<E> {
    pub(crate) const SLOT_BYTES: usize = size_of::<Slot<E>>();

    pub(crate) const fn new() -> Self {
        Slab { slots: Vec::new(), free: NIL }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slots.capacity() * Self::SLOT_BYTES
    }

    /// Adds an entry to a free slot.
    ///
    /// The entry is a closure's result, so that it is built in place. An entry that is also passed
    /// to the slow path would be built on the stack, and reading it back from there would take
    /// longer than the rest of this function.
    #[inline(always)]
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
        self.occupy(index, |_| {})
    }

    /// Reserves a slot for the caller. [`occupy`](Self::occupy) and [`vacate`](Self::vacate) then
    /// mark whether it has an entry.
    #[cold]
    #[inline(never)]
    pub(crate) fn reserve(&mut self, entry: E) -> u32 {
        match self.slots.get_mut(self.free as usize) {
            Some(slot) => {
                slot.entry = entry;
                std::mem::replace(&mut self.free, slot.extra)
            }
            None => self.push(entry),
        }
    }

    /// Adds a slot, which is vacant and not in the chain of free slots.
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

    /// Marks a vacant slot as used by its entry, which the caller changes first.
    #[inline]
    pub(crate) fn occupy(&mut self, index: u32, change: impl FnOnce(&mut E)) -> RawHandle {
        let slot = &mut self.slots[index as usize];
        change(&mut slot.entry);
        debug_assert!(slot.generation & 1 == 0, "slot {index} is in use");
        slot.generation += 1;
        RawHandle { index, generation: slot.generation }
    }

    /// Marks a slot as vacant, without adding it to the chain of free slots. `false` if it must
    /// never be used again.
    #[inline]
    #[must_use]
    pub(crate) fn vacate(&mut self, index: u32) -> bool {
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.generation & 1 == 1, "slot {index} is free already");
        slot.generation = slot.generation.wrapping_add(1);
        slot.generation != 0
    }

    /// Frees the slot of a live entry.
    #[inline(always)]
    pub(crate) fn remove(&mut self, index: u32) -> E {
        if self.vacate(index) {
            self.slots[index as usize].extra = self.free;
            self.free = index;
        }
        self.slots[index as usize].entry
    }

    /// The index of a handle's entry, if it is still there.
    #[inline]
    pub(crate) fn resolve(&self, handle: RawHandle) -> Option<u32> {
        let slot = self.slots.get(handle.index as usize)?;
        // A vacant slot has an even generation, so a handle with an even generation never has an
        // entry.
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

    /// The indices of all entries, in no order. Reads every slot that was ever used.
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
        let mut long = Slab::new();
        let mut short = Slab::new();
        let handles: Vec<_> = (0..3).map(|n| long.insert(0, move |_| n)).collect();
        let only = short.insert(0, |_| 0);
        short.remove(only.index);
        assert!(handles.iter().all(|&handle| short.resolve(handle).is_none()));
    }

    #[test]
    fn a_slot_is_not_used_again_once_its_generation_would_wrap() {
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
    fn a_reserved_slot_is_not_given_to_others() {
        let mut slab = Slab::new();
        let freed = slab.insert(0, |_| 'a');
        slab.remove(freed.index);
        let reserved = slab.reserve('b');
        assert_eq!(reserved, freed.index);
        assert_eq!(slab.indices().count(), 0);
        let first = slab.occupy(reserved, |_| {});
        assert_eq!(slab.resolve(freed), None);
        assert_ne!(slab.insert(0, |_| 'c').index, reserved);
        assert!(slab.vacate(reserved));
        assert_eq!(slab.resolve(first), None);
        assert_ne!(slab.insert(0, |_| 'd').index, reserved);
        slab.slots[reserved as usize].generation = u32::MAX - 1;
        assert_eq!(slab.occupy(reserved, |_| {}).generation, u32::MAX);
        assert!(!slab.vacate(reserved));
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
