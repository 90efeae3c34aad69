//! Which parts of a run of bytes are free.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The free ranges of a run of bytes. Neighbours are joined, so there are at most as many as ranges
/// in use, and one. Taking and putting back take a time that grows with the logarithm of that.
pub(crate) struct FreeRanges {
    /// The length of each range, by its start.
    by_start: BTreeMap<usize, usize>,
    /// Length and start of each range.
    by_length: BTreeSet<(usize, usize)>,
}

impl FreeRanges {
    /// All bytes of a range are free.
    pub(crate) fn new(range: Range<usize>) -> Self {
        let mut free = FreeRanges { by_start: BTreeMap::new(), by_length: BTreeSet::new() };
        free.insert(range.start, range.len());
        free
    }

    /// Takes `length` bytes, at least 1, and returns their start; `None` if no range is long
    /// enough. The shortest range that fits is used, the first of several. So bytes that were
    /// never used, which take no memory yet, are used last.
    pub(crate) fn take(&mut self, length: usize) -> Option<usize> {
        let &(found, start) = self.by_length.range((length, 0)..).next()?;
        self.remove(start, found);
        self.insert(start + length, found - length);
        Some(start)
    }

    /// Puts back bytes that [`FreeRanges::take`] returned.
    pub(crate) fn put(&mut self, start: usize, length: usize) {
        let mut end = start + length;
        let mut start = start;
        if let Some((&before, &bytes)) = self.by_start.range(..start).next_back()
            && before + bytes == start
        {
            self.remove(before, bytes);
            start = before;
        }
        if let Some(&bytes) = self.by_start.get(&end) {
            self.remove(end, bytes);
            end += bytes;
        }
        self.insert(start, end - start);
    }

    /// Whether all bytes of a range are free, and no others.
    pub(crate) fn is_all(&self, range: Range<usize>) -> bool {
        self.by_start.iter().eq([(&range.start, &range.len())])
            && self.by_length.iter().eq([&(range.len(), range.start)])
    }

    fn insert(&mut self, start: usize, length: usize) {
        if length > 0 {
            self.by_start.insert(start, length);
            self.by_length.insert((length, start));
        }
    }

    fn remove(&mut self, start: usize, length: usize) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn used_bytes_are_used_again_before_others() {
        let mut free = FreeRanges::new(100..1000);
        assert_eq!([50, 20, 30].map(|length| free.take(length)), [Some(100), Some(150), Some(170)]);
        free.put(150, 20);
        assert_eq!(free.take(10), Some(150));
        assert_eq!(free.take(11), Some(200));
        assert_eq!((free.take(790), free.take(789)), (None, Some(211)));
    }

    proptest! {
        #[test]
        fn no_byte_is_given_out_twice_and_all_come_back(
            steps in prop::collection::vec((1usize..200, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut free = FreeRanges::new(0..1000);
            let mut taken = Vec::<(usize, usize)>::new();
            for (length, index) in steps {
                if let Some(start) = free.take(length) {
                    prop_assert!(start + length <= 1000);
                    let is_apart =
                        |&(other, bytes)| start + length <= other || other + bytes <= start;
                    prop_assert!(taken.iter().all(is_apart));
                    taken.push((start, length));
                } else {
                    let (start, bytes) = taken.swap_remove(index.index(taken.len()));
                    free.put(start, bytes);
                }
            }
            for (start, bytes) in taken {
                free.put(start, bytes);
            }
            prop_assert_eq!(free.by_length.len(), 1);
            prop_assert_eq!(free.take(1000), Some(0));
        }
    }
}
