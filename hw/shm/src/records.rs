//! Where the records of regions are: in memory of the device, if there is any, so that peers read
//! them without a system call.

use std::collections::BTreeSet;
use std::ptr::NonNull;

use tagmatch_device::Buffer;

use super::arena::Arena;
use super::region_names;
use super::region_words::{RecordWords, RegionRecord};

/// Bytes that records are made of at a time.
const PAGE_BYTES: usize = 4096;
const RECORDS: usize = PAGE_BYTES / RecordWords::BYTES;

/// Memory of records. It is kept until this is dropped.
enum RecordPage {
    OfDevice { _memory: Buffer },
    OfProcess { _memory: Box<[RegionRecord; RECORDS]> },
}

/// The records of this worker.
pub(crate) struct Records {
    arena: Option<Arena>,
    pages: Vec<RecordPage>,
    free: Vec<NonNull<RegionRecord>>,
    /// The lines of the table of names that are taken. Peers may write the table, so it isn't
    /// asked.
    lines: BTreeSet<usize>,
}

// SAFETY: the pointers are to memory that `pages` owns, and records are atomics.
unsafe impl Send for Records {}

/// A record that says where a region is. Others reuse its place once it was given back.
pub(crate) struct PublishedRecord {
    place: NonNull<RegionRecord>,
    /// Whether peers may change the region's bytes. Peers may write the record itself, so it isn't
    /// asked.
    pub(crate) is_writable: bool,
    /// The line of a region that has a name.
    line: Option<usize>,
}

impl PublishedRecord {
    /// Whether it is of a region that has a name.
    pub(crate) fn is_named(&self) -> bool {
        self.line.is_some()
    }
}

// SAFETY: as for `Records`.
unsafe impl Send for PublishedRecord {}

impl Records {
    pub(crate) fn new(arena: Option<Arena>) -> Self {
        Records { arena, pages: Vec::new(), free: Vec::new(), lines: BTreeSet::new() }
    }

    /// Publishes a record. `None`: there is no memory.
    pub(crate) fn publish(&mut self, words: RecordWords) -> Option<PublishedRecord> {
        if self.free.is_empty() {
            self.grow();
        }
        let is_writable = words.rights & RecordWords::CHANGING != 0;
        let record = PublishedRecord { place: self.free.pop()?, is_writable, line: None };
        self.at(&record).publish(words);
        Some(record)
    }

    /// Publishes the record of a region that peers find by its key, and whose first byte has the
    /// number `base` there. `None`: there is no memory of the device, or no line is free.
    pub(crate) fn publish_named(
        &mut self,
        key: u64,
        base: u64,
        words: RecordWords,
    ) -> Option<PublishedRecord> {
        let arena = self.arena.as_ref()?;
        let line = region_names::lines_of(key).find(|line| !self.lines.contains(line))?;
        let named = arena.named(line);
        named.publish(key, base, words);
        self.lines.insert(line);
        let is_writable = words.rights & RecordWords::CHANGING != 0;
        let place = NonNull::from(&named.record);
        Some(PublishedRecord { place, is_writable, line: Some(line) })
    }

    /// Erases a record.
    pub(crate) fn erase(&self, record: &PublishedRecord) {
        self.at(record).erase();
    }

    /// Takes back the place of an erased record.
    pub(crate) fn give_back(&mut self, record: &PublishedRecord) {
        match &record.line {
            Some(line) => {
                self.lines.remove(line);
            }
            None => self.free.push(record.place),
        }
    }

    /// The record at its place, of these records.
    fn at<'a>(&'a self, record: &'a PublishedRecord) -> &'a RegionRecord {
        // SAFETY: a place in a page of `self`, which owns the page as long as it lives, or in the
        // table of its arena. Records are atomics.
        unsafe { record.place.as_ref() }
    }

    fn grow(&mut self) {
        let memory = self.arena.as_ref().and_then(|arena| arena.allocate(PAGE_BYTES));
        let (page, first) = match memory {
            Some(mut memory) => {
                let Some(bytes) = memory.as_mut_slice() else { return };
                let first = NonNull::from(bytes).cast::<RegionRecord>();
                (RecordPage::OfDevice { _memory: memory }, first)
            }
            None => {
                let page = Box::new(std::array::from_fn(|_| RegionRecord::default()));
                let first = NonNull::from(&*page).cast::<RegionRecord>();
                (RecordPage::OfProcess { _memory: page }, first)
            }
        };
        self.pages.push(page);
        for index in (0..RECORDS).rev() {
            // SAFETY: inside the page. Pages of the device are aligned to `PAGE_BYTES`.
            let place = unsafe { first.add(index) };
            // SAFETY: as above. Any bytes are a record, and no peer knows of this one.
            unsafe { place.as_ref() }.erase();
            self.free.push(place);
        }
    }

    /// What peers find at the place of a record.
    pub(crate) fn address(record: &PublishedRecord) -> u64 {
        record.place.as_ptr().expose_provenance() as u64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn places_of_records_are_used_again_and_are_in_memory_of_the_device_if_there_is_any() {
        let arena = Arena::new(Arena::BYTES_MIN, tagmatch_os::memory::MemoryUse::Write).unwrap();
        let from = arena.address();
        let of_device = from..from + arena.length() as u64;
        for (arena, is_mapped) in [(Some(arena), true), (None, false)] {
            let mut records = Records::new(arena);
            let words = |key| RecordWords { address: 1, length: 2, rights: 1, key };
            let all: Vec<_> = (1..=300).map(|key| records.publish(words(key)).unwrap()).collect();
            let mut places: Vec<_> = all.iter().map(Records::address).collect();
            places.sort_unstable();
            assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= RecordWords::BYTES as u64));
            assert!(places.iter().all(|place| of_device.contains(place) == is_mapped));
            assert_eq!(records.at(&all[6]).read(), words(7));
            records.erase(&all[6]);
            records.give_back(&all[6]);
            let again = records.publish(words(301)).unwrap();
            assert_eq!(Records::address(&again), Records::address(&all[6]));
            assert_eq!(records.at(&again).read(), words(301));
        }
    }
}
