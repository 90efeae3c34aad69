//! The words by which the owner of a region knows that no peer writes into it.
//!
//! 1. The owner keeps a [`RegionRecord`] in its memory: where the region is, what peers may do, and
//!    its key, last. To close the region, the owner erases the key, fences (`SeqCst`), and looks at
//!    the [`WritingWord`] of each connection until the peer has cleared it.
//! 2. A peer that writes sets its word, fences (`SeqCst`), and reads the record. Only if the key is
//!    there does the peer write, and it clears the word afterwards, with `Release`.
//!
//! One of both sides sees the other's store: the peer finds no key and doesn't write, or the owner
//! finds the word set and waits. Once the owner finds it cleared, with `Acquire`, the peer's write
//! is over, and its next look at the record finds no key.
//!
//! A peer that reads sets no word. It reads the record after the bytes, as it reads a
//! [`nonce`](super::nonce): if the key was there, the owner had not let go of the bytes. The key
//! is read last, so the words before it were those of the same region.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use super::sync::{AtomicU64, fence};

/// Whether a peer is writing into a region of the owner: a word of the ring that the owner reads.
#[derive(Default)]
pub(crate) struct WritingWord(AtomicU64);

/// A peer may write until this is dropped, if the record has its key.
pub(crate) struct WriteClaim<'a>(&'a WritingWord);

impl WritingWord {
    /// Sets the word. The record is read afterwards.
    pub(crate) fn begin(&self) -> WriteClaim<'_> {
        self.0.store(1, Relaxed);
        fence(SeqCst);
        WriteClaim(self)
    }

    /// Whether the peer may be writing. The owner has erased the record before.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Acquire) != 0
    }
}

impl Drop for WriteClaim<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Release);
    }
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordWords {
    /// The first byte of the region in its owner's memory.
    pub(crate) address: u64,
    pub(crate) length: u64,
    /// Any of [`RecordWords::READS`] and [`RecordWords::WRITES`].
    pub(crate) rights: u64,
    /// 0 if the region was closed.
    pub(crate) key: u64,
}

impl RecordWords {
    /// Bytes of a record.
    pub(crate) const BYTES: usize = 32;
    /// Peers may read the region.
    pub(crate) const READS: u64 = 1;
    /// Peers may write the region.
    pub(crate) const WRITES: u64 = 2;

    /// The words that were read out of a peer's memory.
    pub(crate) fn of_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let word =
            |at: usize| u64::from_ne_bytes(tagmatch_device::bytes::array_at::<8>(bytes, 8 * at));
        RecordWords { address: word(0), length: word(1), rights: word(2), key: word(3) }
    }
}

/// A record of the owner, at a place that doesn't change.
pub(crate) struct RegionRecord(Box<[AtomicU64; 4]>);

impl RegionRecord {
    pub(crate) fn new(words: RecordWords) -> Self {
        let RecordWords { address, length, rights, key } = words;
        RegionRecord(Box::new([address, length, rights, key].map(AtomicU64::new)))
    }

    /// Where peers read it.
    pub(crate) fn place(&self) -> u64 {
        (&raw const *self.0).expose_provenance() as u64
    }

    /// Whether peers may write the region.
    pub(crate) fn is_writable(&self) -> bool {
        self.0[2].load(Relaxed) & RecordWords::WRITES != 0
    }

    /// Erases the key. The words of peers are looked at afterwards.
    pub(crate) fn erase(&self) {
        self.0[3].store(0, Relaxed);
        fence(SeqCst);
    }

    /// What a peer's kernel finds in place of the key.
    #[cfg(all(loom, test))]
    pub(crate) fn key(&self) -> u64 {
        self.0[3].load(Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_erased_has_no_key_and_a_claim_ends_with_its_value() {
        let words = RecordWords { address: 1, length: 2, rights: RecordWords::WRITES, key: 4 };
        let record = RegionRecord::new(words);
        let found = || {
            let bytes: Vec<u8> =
                record.0.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
            RecordWords::of_bytes(&bytes.try_into().unwrap())
        };
        assert_eq!(found(), words);
        assert!(record.is_writable());
        record.erase();
        assert_eq!(found(), RecordWords { key: 0, ..words });
        let word = WritingWord::default();
        let claim = word.begin();
        assert!(word.is_set());
        drop(claim);
        assert!(!word.is_set());
    }
}
