//! The words by which the owner of a region knows that no peer writes into it.
//!
//! 1. The owner keeps a [`RegionRecord`] in its memory: where the region is, what peers may do, and
//!    its key, last. To close the region, the owner erases the key, fences (`SeqCst`), puts a
//!    barrier on its peers (membarrier(2)) if they rely on that, looks at the [`WritingWord`] of
//!    each connection, and waits until each odd number has changed.
//! 2. A peer that writes makes the number of its word odd, fences (`SeqCst`, or lightly if it
//!    relies on the owner's barrier), and reads the record. Only if the key is there does the peer
//!    write. Afterwards it makes the number even. Each write has another number, and all are stored
//!    with `Release`.
//!
//! One of both sides sees the other's store: the peer finds no key and doesn't write, or the owner
//! finds the odd number and waits. Once the owner finds another one, with `Acquire`, that write is
//! over, and what the peer begins later finds no key.
//!
//! A peer that reads sets no word. It reads the record after the bytes, as it reads a
//! [`nonce`](super::nonce): if the key was there, the owner had not let go of the bytes. The key
//! is read last, so the words before it were those of the same region.
//!
//! Records lie in memory of the owner's device ([`records`](super::records)), which peers map: they
//! look at a record without a system call.

use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release, SeqCst};

use super::sync::{AtomicU64, fence, light_fence};

/// The words for regions in the header of the ring that the owner reads. The peer has mapped them.
#[derive(Default)]
#[repr(C)]
pub(crate) struct RegionWords {
    pub(crate) writing: WritingWord,
    /// Stored by the owner: its records have their keys combined with it ([`sealed`]). So bytes
    /// that somebody else has sent to the owner are no record, wherever a token says that they
    /// are. 0: the owner hasn't stored it yet, or has ended the connection.
    pub(crate) seal: AtomicU64,
}

impl RegionWords {
    /// The owner ends the connection: what the peer begins later finds no seal. The word of the
    /// peer is looked at afterwards.
    pub(crate) fn end(&self) {
        self.seal.store(0, Relaxed);
        fence(SeqCst);
    }
}

/// A key as it stands in a record.
pub(crate) fn sealed(key: u64, seal: u64) -> u64 {
    key ^ seal
}

/// Whether a peer is writing into a region of the owner: the number of its write, which is odd
/// while it writes. The peer stores it.
#[derive(Default)]
#[repr(transparent)]
pub(crate) struct WritingWord(AtomicU64);

/// A peer may write until this is dropped, if the record has its key.
pub(crate) struct WriteClaim<'a> {
    word: &'a WritingWord,
    number: u64,
}

impl WritingWord {
    /// Says that a write begins. The record is read afterwards. `fenced`: the owner can't put a
    /// barrier on this process, or the kernel reads the record.
    #[inline]
    pub(crate) fn begin(&self, fenced: bool) -> WriteClaim<'_> {
        let number = self.0.load(Relaxed) | 1;
        // An owner that waits for the write before may see this number instead of that one's end.
        self.0.store(number, Release);
        if fenced {
            fence(SeqCst);
        } else {
            light_fence();
        }
        WriteClaim { word: self, number }
    }

    /// The number of the write that the peer may be in. The owner has erased the record before.
    pub(crate) fn under_way(&self) -> Option<u64> {
        let number = self.0.load(Acquire);
        (number & 1 == 1).then_some(number)
    }

    /// Whether the write with this number is over.
    pub(crate) fn is_over(&self, number: u64) -> bool {
        self.0.load(Acquire) != number
    }
}

impl Drop for WriteClaim<'_> {
    fn drop(&mut self) {
        self.word.0.store(self.number.wrapping_add(1), Release);
    }
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordWords {
    /// The first byte of the region in its owner's memory.
    pub(crate) address: u64,
    pub(crate) length: u64,
    /// Any of [`RecordWords::READS`], [`RecordWords::WRITES`] and [`RecordWords::CHANGES`].
    pub(crate) rights: u64,
    /// The region's key, [`sealed`]; 0 if the region was closed.
    pub(crate) key: u64,
}

impl RecordWords {
    /// Bytes of a record.
    pub(crate) const BYTES: usize = 32;
    /// Peers may read the region.
    pub(crate) const READS: u64 = 1;
    /// Peers may write the region.
    pub(crate) const WRITES: u64 = 2;
    /// Peers may change elements of the region by atomic operations.
    pub(crate) const CHANGES: u64 = 4;
    /// The rights by which a peer changes bytes.
    pub(crate) const CHANGING: u64 = Self::WRITES | Self::CHANGES;

    /// The words that were read out of a peer's memory.
    pub(crate) fn of_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let word =
            |at: usize| u64::from_ne_bytes(tagmatch_device::bytes::array_at::<8>(bytes, 8 * at));
        RecordWords { address: word(0), length: word(1), rights: word(2), key: word(3) }
    }
}

/// A record of the owner: address, length, rights and key. The place of one that was erased may
/// become that of another region's. The key is erased first and read last, and a peer learns a key
/// after all words were stored: so words that are read before the right key are its region's.
#[derive(Default)]
#[repr(transparent)]
pub(crate) struct RegionRecord([AtomicU64; 4]);

impl RegionRecord {
    /// Says where a region is. A peer that finds the key finds all that was stored before it.
    pub(crate) fn publish(&self, words: RecordWords) {
        let RecordWords { address, length, rights, key } = words;
        for (at, word) in [address, length, rights].into_iter().enumerate() {
            self.0[at].store(word, Relaxed);
        }
        self.0[3].store(key, Release);
    }

    /// The key alone.
    pub(crate) fn key(&self, order: Ordering) -> u64 {
        self.0[3].load(order)
    }

    /// What a peer finds that has mapped the record. The key is read last, behind the bytes of a
    /// get as well.
    pub(crate) fn read(&self) -> RecordWords {
        let [address, length, rights] = [0, 1, 2].map(|at| self.0[at].load(Relaxed));
        fence(Acquire);
        RecordWords { address, length, rights, key: self.0[3].load(Relaxed) }
    }

    /// Erases the key. The words of peers are looked at afterwards.
    pub(crate) fn erase(&self) {
        self.0[3].store(0, Relaxed);
        fence(SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_erased_has_no_key_and_a_claim_ends_with_its_value() {
        let words = RecordWords { address: 1, length: 2, rights: RecordWords::WRITES, key: 4 };
        let record = RegionRecord::default();
        record.publish(words);
        let found = || {
            let bytes: Vec<u8> =
                record.0.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
            RecordWords::of_bytes(&bytes.try_into().unwrap())
        };
        assert_eq!((found(), record.read()), (words, words));
        record.erase();
        assert_eq!(found(), RecordWords { key: 0, ..words });
        let word = WritingWord::default();
        assert_eq!(word.under_way(), None);
        for number in [1, 3] {
            let claim = word.begin(true);
            assert_eq!(word.under_way(), Some(number));
            assert!(!word.is_over(number));
            drop(claim);
            assert!(word.is_over(number) && word.under_way().is_none());
        }
        // The next write is another one.
        let _claim = word.begin(true);
        assert!(word.is_over(3) && !word.is_over(5));
    }
}
