//! Where peers find the regions that their owner has given keys of its own choice.
//!
//! Such a region has no token that says where it is. Its record lies in a table at a fixed place of
//! the device's memory, which peers have mapped, in one of a few lines that the key chooses. A
//! region for which all these lines are taken is used by messages alone.
//!
//! An owner may use a key again. So the record of each such region has a serial number in the place
//! of the key, and the line has the key beside it. A peer that looks a key up learns the serial
//! number and the record's place, and goes on as with a token that says both: the record is looked
//! at again with each access. What the lookup has found is a hint that a wrong owner, or a peer
//! that writes into the table, can make wrong.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::region_words::{RecordWords, RegionRecord};
use super::sync::AtomicU64;

/// Lines of the table, a power of two.
pub(crate) const LINES: usize = 2048;
/// Bytes of the table.
pub(crate) const TABLE_BYTES: usize = LINES * size_of::<NamedRecord>();
/// Lines in which a key can be.
const LINES_OF_KEY: usize = 8;

/// The lines in which a region with this key can be.
pub(crate) fn lines_of(key: u64) -> impl Iterator<Item = usize> {
    // Multiplying by the golden ratio spreads keys that follow each other.
    let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let first = usize::try_from(hash).unwrap_or_default();
    (first..first + LINES_OF_KEY).map(|line| line % LINES)
}

/// A line of the table. Any bytes are one.
#[derive(Default)]
#[repr(C)]
pub(crate) struct NamedRecord {
    key: AtomicU64,
    /// The number that peers have for the first byte.
    base: AtomicU64,
    pub(crate) record: RegionRecord,
}

impl NamedRecord {
    /// Bytes of a line before its record.
    pub(crate) const RECORD_AT: usize = 16;

    /// Fills a line whose record was erased, or that was never used.
    pub(crate) fn publish(&self, key: u64, base: u64, words: RecordWords) {
        self.key.store(key, Relaxed);
        self.base.store(base, Relaxed);
        self.record.publish(words);
    }

    /// Base and record of the region with this key, if it is in this line.
    pub(crate) fn find(&self, key: u64) -> Option<(u64, RecordWords)> {
        let serial = self.record.key(Acquire);
        if serial == 0 || self.key.load(Relaxed) != key {
            return None;
        }
        let base = self.base.load(Relaxed);
        // The record is read last, so key and base are those of the region with this serial number.
        let words = self.record.read();
        (words.key == serial).then_some((base, words))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_lines_of_its_own_that_lie_in_the_table() {
        for key in [0, 1, 77, 1 << 40, u64::MAX] {
            let mut lines: Vec<_> = lines_of(key).collect();
            assert!(lines.iter().all(|line| *line < LINES));
            lines.sort_unstable();
            lines.dedup();
            assert_eq!(lines.len(), LINES_OF_KEY);
        }
        assert_eq!(std::mem::offset_of!(NamedRecord, record), NamedRecord::RECORD_AT);
    }

    #[test]
    fn a_line_has_the_region_with_its_key_until_that_is_closed() {
        let line = NamedRecord::default();
        assert_eq!(line.find(0), None);
        let words = RecordWords { address: 1, length: 2, rights: 3, key: 4 };
        line.publish(0, 9, words);
        assert_eq!((line.find(0), line.find(1)), (Some((9, words)), None));
        line.record.erase();
        assert_eq!(line.find(0), None);
    }
}
