//! The model checker's programs on regions that peers access by themselves.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use loom::cell::UnsafeCell;
use loom::thread;

use super::model::{check, check_with};
use crate::region_names::NamedRecord;
use crate::region_words::{RecordWords, RegionRecord, RegionWords, WriteClaim, WritingWord};
use crate::sync::AtomicU64;

const KEY: u64 = 7;

/// A region of one byte, and the words of its owner and of a peer.
struct Region {
    record: RegionRecord,
    pair: RegionWords,
    memory: UnsafeCell<u8>,
}

impl Region {
    fn new() -> Self {
        let rights = RecordWords::WRITES;
        let record = RegionRecord::default();
        record.publish(RecordWords { address: 0, length: 1, rights, key: KEY });
        let pair = RegionWords::default();
        pair.seal.store(1, Relaxed);
        Region { record, pair, memory: UnsafeCell::new(0) }
    }

    /// loom reports it if another thread writes at the same time.
    fn write(&self) {
        // SAFETY: loom checks that nothing else accesses the byte.
        self.memory.with_mut(|byte| unsafe { *byte += 1 });
    }

    fn claim(&self, fenced: bool) -> WriteClaim<'_> {
        self.pair.writing.begin(fenced)
    }

    fn wait_for_the_write(&self) {
        let word: &WritingWord = &self.pair.writing;
        if let Some(number) = word.under_way() {
            while !word.is_over(number) {
                thread::yield_now();
            }
        }
    }
}

#[test]
fn nobody_writes_a_region_once_its_owner_has_closed_it() {
    for fenced in [false, true] {
        check_with(!fenced, 3, move || {
            let region = Arc::new(Region::new());
            let there = region.clone();
            let peer = thread::spawn(move || {
                for _ in 0..2 {
                    let claim = there.claim(fenced);
                    if there.record.read().key == KEY {
                        there.write();
                    }
                    drop(claim);
                }
            });
            region.record.erase();
            region.wait_for_the_write();
            region.write();
            peer.join().unwrap();
        });
    }
}

#[test]
fn nobody_begins_to_write_a_region_once_its_owner_has_ended_the_connection() {
    for fenced in [false, true] {
        check_with(!fenced, 3, move || {
            let region = Arc::new(Region::new());
            let there = region.clone();
            let peer = thread::spawn(move || {
                let claim = there.claim(fenced);
                if there.pair.seal.load(Acquire) != 0 && there.record.read().key == KEY {
                    there.write();
                }
                drop(claim);
            });
            region.pair.end();
            region.wait_for_the_write();
            // The region is closed without another look at this peer.
            region.write();
            peer.join().unwrap();
        });
    }
}

#[test]
fn a_mapped_get_that_succeeds_has_no_byte_of_a_later_region() {
    check(3, || {
        let words = |key| RecordWords { address: 0, length: 1, rights: 1, key };
        let record = Arc::new(RegionRecord::default());
        record.publish(words(1));
        let byte = Arc::new(AtomicU64::new(1));
        let owners_record = record.clone();
        let owners_byte = byte.clone();
        let owner = thread::spawn(move || {
            owners_record.erase();
            owners_byte.store(2, Relaxed);
            owners_record.publish(words(2));
        });
        let seen = byte.load(Relaxed);
        assert!(record.read().key != 1 || seen == 1);
        owner.join().unwrap();
    });
}

#[test]
fn a_key_that_is_looked_up_has_the_base_and_the_place_of_its_region() {
    check(3, || {
        let words = |serial| RecordWords { address: serial, length: 1, rights: 1, key: serial };
        let line = Arc::new(NamedRecord::default());
        line.publish(KEY, 10, words(1));
        let owners_line = line.clone();
        let owner = thread::spawn(move || {
            owners_line.record.erase();
            owners_line.publish(KEY, 20, words(2));
        });
        if let Some((base, found)) = line.find(KEY) {
            assert_eq!((base, found.address), (10 * found.key, found.key));
        }
        owner.join().unwrap();
    });
}
