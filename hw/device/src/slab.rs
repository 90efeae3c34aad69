//! A table whose slots have generations: the key of an entry that is gone finds nothing, never
//! another entry.

use crate::chunks::Chunks;

/// Names an entry of a [`Slab`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The slot.
    pub index: u32,
    /// How many entries the slot has had before.
    pub generation: u32,
}

#[derive(Clone, Debug)]
struct Slot<T> {
    generation: u32,
    entry: Option<T>,
}

/// Entries that keep their slot, with O(1) insertion and removal. Free slots are used again, last
/// freed first, under a new generation.
#[derive(Clone, Debug)]
pub struct Slab<T> {
    slots: Chunks<Slot<T>>,
    free: Vec<u32>,
}

impl Key {
    /// The key as one word, as tokens and names of requests have it.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        (self.index as u64) << 32 | self.generation as u64
    }

    /// The key that [`Key::to_bits`] made a word of.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "takes the two halves apart")]
    pub const fn from_bits(bits: u64) -> Self {
        Key { index: (bits >> 32) as u32, generation: bits as u32 }
    }

    /// The key in 32 bits, for a slab of at most [`Key::SHORT_MAX`] slots: the index, and the
    /// lowest 12 bits of the generation.
    pub const fn to_short(self) -> u32 {
        self.index | self.generation << Self::SHORT_MAX.ilog2()
    }

    /// Most slots of a slab with short keys.
    pub const SHORT_MAX: u32 = 1 << 20;
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Slot { generation: 0, entry: None }
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { slots: Chunks::default(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Bytes that an entry takes.
    pub const SLOT_BYTES: usize = size_of::<Slot<T>>();

    /// Adds an entry.
    ///
    /// # Errors
    /// Gives the entry back if all `limit` slots are taken.
    #[inline]
    pub fn insert(&mut self, entry: T, limit: u32) -> Result<Key, T> {
        let Some(key) = self.vacant(limit) else { return Err(entry) };
        self.fill(key, entry);
        Ok(key)
    }

    /// The key that the next entry will have; `None` if all `limit` slots are taken.
    #[inline]
    pub fn vacant(&self, limit: u32) -> Option<Key> {
        if let Some(&index) = self.free.last() {
            return Some(Key { index, generation: self.slots[index as usize].generation });
        }
        let index = u32::try_from(self.slots.len()).ok().filter(|&index| index < limit)?;
        Some(Key { index, generation: 0 })
    }

    /// Adds an entry under the key that [`Slab::vacant`] gave last.
    #[inline]
    pub fn fill(&mut self, key: Key, entry: T) {
        let entry = Some(entry);
        match self.free.pop() {
            Some(index) => self.slots[index as usize].entry = entry,
            None => self.slots.push(Slot { generation: key.generation, entry }),
        }
    }

    /// The entry of a key.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.entry.as_mut() } else { None }
    }

    /// The entry of a key.
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.entry.as_ref() } else { None }
    }

    /// Removes the entry of a key.
    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let entry = slot.entry.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(entry)
    }

    /// All entries, by their slots.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.entry.as_ref())
    }

    /// The key of the entry at `index`, if there is one.
    pub fn key_at(&self, index: u32) -> Option<Key> {
        let slot = self.slots.get(index as usize)?;
        slot.entry.as_ref().map(|_| Key { index, generation: slot.generation })
    }

    /// The key of the first entry at `index` or behind it.
    pub fn next_key(&self, index: u32) -> Option<Key> {
        let end = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        (index..end).find_map(|index| self.key_at(index))
    }

    /// The key of the entry whose [short key](Key::to_short) this is.
    pub fn key_of_short(&self, short: u32) -> Option<Key> {
        self.key_at(short & (Key::SHORT_MAX - 1)).filter(|key| key.to_short() == short)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All entries.
    pub fn into_entries(mut self) -> impl Iterator<Item = T> {
        self.keys_where(|_| true).into_iter().filter_map(move |key| self.remove(key))
    }

    /// Keys of all entries that `wanted` picks. Linear: for the rare death of a peer.
    pub fn keys_where(&self, mut wanted: impl FnMut(&T) -> bool) -> Vec<Key> {
        let picks = |(index, slot): (usize, &Slot<T>)| {
            slot.entry.as_ref().filter(|entry| wanted(entry))?;
            let index = u32::try_from(index).ok()?;
            Some(Key { index, generation: slot.generation })
        };
        self.slots.iter().enumerate().filter_map(picks).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_keys_find_nothing() {
        let mut slab = Slab::default();
        let a = slab.insert('a', 2).unwrap();
        let b = slab.insert('b', 2).unwrap();
        assert_eq!(slab.insert('c', 2), Err('c'));
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!((slab.remove(a), slab.get(a)), (None, None));
        let c = slab.insert('c', 2).unwrap();
        assert_eq!((c.index, slab.get_mut(a)), (a.index, None));
        assert_eq!((slab.get(b), slab.get(c), slab.len()), (Some(&'b'), Some(&'c'), 2));
        assert_eq!(slab.keys_where(|&e| e == 'c'), [c]);
        assert_eq!(slab.key_at(c.index), Some(c));
        assert_eq!(slab.key_of_short(c.to_short()), Some(c));
        assert_eq!((slab.key_of_short(a.to_short()), slab.key_of_short(u32::MAX)), (None, None));
    }

    #[test]
    fn a_key_is_one_word_and_back() {
        let word = Key { index: 0x8182_8384, generation: 0x9192_9394 }.to_bits();
        assert_eq!(word, 0x8182_8384_9192_9394);
        assert_eq!(Key::from_bits(word), Key { index: 0x8182_8384, generation: 0x9192_9394 });
        assert_eq!(Key { index: 0xf_fffe, generation: 0x1001 }.to_short(), 0x001f_fffe);
    }

    #[test]
    fn what_is_in_the_table_is_counted_shown_and_given_out() {
        let mut slab = Slab::default();
        assert!(slab.is_empty());
        let keys: Vec<Key> = (0..5).map(|entry| slab.insert(entry, 5).unwrap()).collect();
        assert_eq!((slab.remove(keys[3]), slab.remove(keys[1])), (Some(3), Some(1)));
        *slab.get_mut(keys[4]).unwrap() += 10;
        assert!(slab.len() == 3 && !slab.is_empty());
        assert!(slab.iter().eq(&[0, 2, 14]));
        assert_eq!((slab.key_at(1), slab.key_at(2), slab.key_at(5)), (None, Some(keys[2]), None));
        let next = [0, 1, 2, 3, 5].map(|index| slab.next_key(index));
        let behind = |at: usize| Some(keys[at]);
        assert_eq!(next, [behind(0), behind(2), behind(2), behind(4), None]);
        assert!(slab.into_entries().eq([0, 2, 14]));
    }

    #[test]
    fn a_slot_that_is_free_again_has_another_generation_ever_after() {
        let mut slab = Slab::default();
        for generation in 0..5 {
            assert_eq!(slab.vacant(1), Some(Key { index: 0, generation }));
            let key = slab.insert(generation, 1).unwrap();
            assert_eq!((key.generation, slab.vacant(1)), (generation, None));
            assert_eq!(slab.remove(key), Some(generation));
        }
    }
}
