//! The doorbell: how a sender says that a ring has a message, when the reader doesn't poll that
//! ring.
//!
//! Each worker has one page with a bit for each ring, and a summary bit for each word of such bits.
//! A poll looks at the summary alone, so silent peers cost nothing, however many there are. Any
//! peer can write anything into the page. A set bit only means that the ring is to be looked at;
//! each ring is also looked at now and then without its bit.

#[cfg(not(all(loom, test)))]
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

#[cfg(all(loom, test))]
pub(crate) use super::doorbell_model::Doorbell;
use super::padded::Padded;
use super::sync::{AtomicU32, AtomicU64};
use tagmatch_os::memory::Mapping;

/// How many rings a doorbell has bits for.
pub(crate) const BITS: usize = WORDS * 64;
/// Length of the page.
pub(crate) const LENGTH_BYTES: usize = 4096;

const WORDS: usize = 64;

/// One ring's bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorbellBit(u16);

impl DoorbellBit {
    /// The bit of this number, if there is one.
    pub fn new(number: u32) -> Option<Self> {
        let number = u16::try_from(number).ok()?;
        (usize::from(number) < BITS).then_some(DoorbellBit(number))
    }

    /// The number of the bit.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The contents of a doorbell page.
#[repr(C)]
pub(crate) struct Page {
    /// Bit `w` is set after a bit of `words[w]` was. `SeqCst`, because of `sleeping`.
    pub(crate) summary: Padded<AtomicU64>,
    /// 1 while the owner sleeps. The owner stores 1 and then loads `summary`; a sender sets its bit
    /// in `summary` and then loads this. All four are `SeqCst`, so one of the two sees the other.
    /// The sender that exchanges it for 0 wakes the owner, so one wake is sent for one sleep.
    pub(crate) sleeping: Padded<AtomicU32>,
    /// One bit for each ring. It is set with `Release` after the message was stored, and taken with
    /// `Acquire`.
    pub(crate) words: Padded<[AtomicU64; WORDS]>,
}

#[cfg(not(all(loom, test)))]
const _: () = assert!(size_of::<Page>() <= LENGTH_BYTES);

/// A mapped doorbell page, of this worker or of a peer.
#[cfg(not(all(loom, test)))]
pub(crate) struct Doorbell {
    _mapping: Mapping,
    page: NonNull<Page>,
}

// SAFETY: all methods are atomic operations, and the mapping belongs to the process.
#[cfg(not(all(loom, test)))]
unsafe impl Send for Doorbell {}
// SAFETY: as above.
#[cfg(not(all(loom, test)))]
unsafe impl Sync for Doorbell {}

#[cfg(not(all(loom, test)))]
impl Doorbell {
    /// Takes the memory of a doorbell; `None` if its length is wrong.
    pub(crate) fn new(mapping: Mapping) -> Option<Self> {
        let page = NonNull::new(mapping.start())?.cast::<Page>();
        let fits = mapping.length() == LENGTH_BYTES && page.is_aligned();
        fits.then_some(Doorbell { _mapping: mapping, page })
    }

    #[inline]
    fn page(&self) -> &Page {
        // SAFETY: `new` has checked length and alignment, the mapping lives as long as `self`, and
        // the page is made of atomics.
        unsafe { self.page.as_ref() }
    }
}

impl Doorbell {
    /// Sets a bit. Returns whether the owner sleeps and the caller has to wake it.
    pub(crate) fn ring(&self, bit: DoorbellBit) -> bool {
        self.ring_quietly(bit);
        self.take_sleeper()
    }

    /// Sets a bit. The owner, if it sleeps, finds it when something else wakes it.
    pub(crate) fn ring_quietly(&self, bit: DoorbellBit) {
        let word = bit.index() / 64;
        let mask = 1 << (bit.index() % 64);
        self.page().words.0[word].fetch_or(mask, Release);
        self.page().summary.0.fetch_or(1 << word, SeqCst);
    }

    /// Returns whether the owner sleeps and the caller has to wake it.
    pub(crate) fn take_sleeper(&self) -> bool {
        let sleeping = &self.page().sleeping.0;
        // The exchange gives the wake to one caller, and orders nothing.
        sleeping.load(SeqCst) != 0 && sleeping.swap(0, Relaxed) != 0
    }

    /// Whether any bit may be set.
    #[inline]
    pub(crate) fn is_rung(&self) -> bool {
        self.page().summary.0.load(Relaxed) != 0
    }

    /// [`Doorbell::is_rung`] for an owner that has announced its sleep.
    pub(crate) fn is_rung_before_sleep(&self) -> bool {
        self.page().summary.0.load(SeqCst) != 0
    }

    /// Says that the owner sleeps. The owner calls this before it asks to be woken for room, and
    /// before its last look at the rings.
    pub(crate) fn announce_sleep(&self) -> SleepAnnounced {
        self.page().sleeping.0.store(1, SeqCst);
        SleepAnnounced(())
    }

    /// Says that the owner is awake. A sender that sees that late sends a needless wake.
    pub(crate) fn end_sleep(&self) {
        self.page().sleeping.0.store(0, Relaxed);
    }

    /// Moves the set bits to `pending`.
    pub(crate) fn collect(&self, pending: &mut PendingRings) {
        // The words are looked at after the summary, as they were set before.
        let mut summary = self.page().summary.0.swap(0, Acquire);
        while summary != 0 {
            let word = summary.trailing_zeros() as usize;
            summary &= summary - 1;
            pending.add(word, self.page().words.0[word].swap(0, Acquire));
        }
    }
}

/// Proof that the owner of a doorbell has announced its sleep. A worker that asks for a wake before
/// that may be answered while it still seems awake, and then sleep on.
pub(crate) struct SleepAnnounced(());

/// The rings to look at.
pub(crate) struct PendingRings {
    summary: u64,
    words: [u64; WORDS],
    /// The bit that was found last. The search for the next one starts behind it.
    last: u16,
}

impl PendingRings {
    pub(crate) fn new() -> Self {
        PendingRings { summary: 0, words: [0; WORDS], last: 0 }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.summary == 0
    }

    fn add(&mut self, word: usize, bits: u64) {
        if bits != 0 {
            self.words[word] |= bits;
            self.summary |= 1 << word;
        }
    }

    pub(crate) fn insert(&mut self, bit: DoorbellBit) {
        self.add(bit.index() / 64, 1 << (bit.index() % 64));
    }

    pub(crate) fn remove(&mut self, bit: DoorbellBit) {
        let word = bit.index() / 64;
        self.words[word] &= !(1 << (bit.index() % 64));
        if self.words[word] == 0 {
            self.summary &= !(1 << word);
        }
    }

    /// The next bit, in turn, after the one that was returned last. It stays set.
    pub(crate) fn next(&mut self) -> Option<DoorbellBit> {
        if self.summary == 0 {
            return None;
        }
        let start = (usize::from(self.last) + 1) % BITS;
        let word = start / 64;
        let bit = start % 64;
        let after = self.words[word] & (u64::MAX << bit);
        let found = if after != 0 {
            word * 64 + after.trailing_zeros() as usize
        } else {
            // Later words first, then from the beginning up to this one.
            let later = self.summary & (u64::MAX << word) & !(1 << word);
            let pick = if later != 0 { later } else { self.summary };
            let word = pick.trailing_zeros() as usize;
            word * 64 + self.words[word].trailing_zeros() as usize
        };
        self.last = u16::try_from(found).ok()?;
        DoorbellBit::new(u32::from(self.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn bits_arrive_and_one_caller_wakes() {
        let doorbell = Doorbell::new(Mapping::private(LENGTH_BYTES).unwrap()).unwrap();
        let bit = DoorbellBit::new(4095).unwrap();
        assert!(!doorbell.is_rung() && !doorbell.ring(bit) && doorbell.is_rung());
        let _announced = doorbell.announce_sleep();
        assert!(doorbell.ring(bit) && !doorbell.ring(bit));
        let mut pending = PendingRings::new();
        doorbell.collect(&mut pending);
        assert_eq!(pending.next(), Some(bit));
        pending.remove(bit);
        assert!(pending.is_empty() && pending.next().is_none() && !doorbell.is_rung());
        assert!(DoorbellBit::new(4096).is_none() && DoorbellBit::new(u32::MAX).is_none());
    }

    proptest! {
        #[test]
        fn goes_round_all_pending_bits(bits in prop::collection::btree_set(0u32..4096, 1..200)) {
            let mut pending = PendingRings::new();
            for bit in &bits {
                pending.insert(DoorbellBit::new(*bit).unwrap());
            }
            let mut indices = BTreeSet::new();
            for _ in 0..bits.len() {
                indices.insert(u32::try_from(pending.next().unwrap().index()).unwrap());
            }
            prop_assert_eq!(&indices, &bits);
            for bit in &bits {
                pending.remove(DoorbellBit::new(*bit).unwrap());
            }
            prop_assert!(pending.is_empty());
        }
    }
}
