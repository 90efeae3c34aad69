//! A table that grows without moving what is in it.
//!
//! A vector that grows gives its old memory back to the allocator, which often can't return it to
//! the system. Where several vectors grow at the same time, such holes are a tenth of the process,
//! or half of it. Chunks never move, so they leave no holes, and they fit into the holes that
//! vectors leave.

use std::iter;
use std::ops::{Index, IndexMut};

/// Entries in the first part, which is one vector. Most tables have no more entries, and so find
/// one by one comparison.
const FIRST: usize = 1 << 10;
/// Entries of a chunk.
const CHUNK: usize = 1 << 7;

/// Entries by number, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Chunks<T> {
    first: Vec<T>,
    /// The entries after the first [`FIRST`]. Those of the last chunk that were not added yet are
    /// the default.
    rest: Vec<Box<[T; CHUNK]>>,
    len: usize,
}

/// Which chunk an entry is in; beyond all chunks if it is among the first.
#[inline(always)]
fn chunk(index: usize) -> usize {
    (index / CHUNK).wrapping_sub(FIRST / CHUNK)
}

impl<T: Default> Chunks<T> {
    /// Number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an entry after the last one.
    #[cold]
    #[inline(never)]
    pub fn push(&mut self, entry: T) {
        if self.len < FIRST {
            self.first.push(entry);
        } else {
            if self.len.is_multiple_of(CHUNK) {
                let chunk: Vec<T> = iter::repeat_with(T::default).take(CHUNK).collect();
                self.rest.extend(<Box<[T; CHUNK]>>::try_from(chunk));
            }
            let index = self.len;
            self[index] = entry;
        }
        self.len += 1;
    }

    /// An entry. Beyond the last entry: `None`, or the default if the last chunk has room there.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<&T> {
        match self.first.get(index) {
            None => Some(&self.rest.get(chunk(index))?[index % CHUNK]),
            entry => entry,
        }
    }

    /// As [`Chunks::get`], to change the entry.
    #[inline(always)]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        match self.first.get_mut(index) {
            None => Some(&mut self.rest.get_mut(chunk(index))?[index % CHUNK]),
            entry => entry,
        }
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.rest.iter().flat_map(|chunk| &**chunk)).take(self.len)
    }
}

impl<T: Default> Index<usize> for Chunks<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, index: usize) -> &T {
        match self.first.get(index) {
            None => &self.rest[chunk(index)][index % CHUNK],
            Some(entry) => entry,
        }
    }
}

impl<T: Default> IndexMut<usize> for Chunks<T> {
    #[inline(always)]
    fn index_mut(&mut self, index: usize) -> &mut T {
        match self.first.get_mut(index) {
            None => &mut self.rest[chunk(index)][index % CHUNK],
            Some(entry) => entry,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_numbers_and_places() {
        const MANY: usize = FIRST + 2 * CHUNK + 1;
        let mut chunks = Chunks::default();
        let mut places: Vec<*const usize> = Vec::new();
        for number in 0..MANY {
            assert_eq!((chunks.len(), chunks.is_empty()), (number, number == 0));
            chunks.push(number);
            if number >= FIRST {
                places.push(&raw const chunks[number]);
            }
        }
        for (number, entry) in chunks.iter().enumerate() {
            assert_eq!((*entry, chunks[number], chunks.get(number)), (number, number, Some(entry)));
        }
        assert!(
            (FIRST..MANY).zip(places).all(|(number, place)| &raw const chunks[number] == place)
        );
        for number in 0..MANY {
            chunks[number] += 1;
            *chunks.get_mut(number).unwrap() += 1;
        }
        assert!(chunks.iter().copied().eq(2..MANY + 2));
    }

    #[test]
    fn beyond_the_last_there_is_nothing() {
        let mut chunks = Chunks::default();
        for number in 0..FIRST + 1 {
            assert_eq!(chunks.get(number).copied().unwrap_or_default(), 0);
            assert_eq!(chunks.get_mut(number).copied().unwrap_or_default(), 0);
            assert!(chunks.get(usize::MAX).is_none() && chunks.get(FIRST + CHUNK).is_none());
            chunks.push(number + 1);
        }
    }
}
