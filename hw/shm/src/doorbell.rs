//! The bell: how a sender says that a ring which nobody is looking at has a message.
//!
//! Each worker has one page with a bit per ring, and a summary bit per word of those. Polling looks
//! at the summary alone, so that peers who are silent cost nothing, however many there are. Any
//! peer can write anything into the page: a set bit only means "look there", and rings are also
//! looked at in turn without one.

#[cfg(not(all(loom, test)))]
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use super::ring::memory::Padded;
#[cfg(all(loom, test))]
use super::sync::Wakes;
use super::sync::{AtomicU32, AtomicU64};
use tagmatch_os::memory::Mapping;

/// How many rings a bell has bits for.
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

    /// Its number.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

#[repr(C)]
struct Page {
    /// Bit `w` is set after bits of `words[w]` were. `SeqCst` against `sleeping`.
    summary: Padded<AtomicU64>,
    /// 1 while the owner sleeps. The owner stores it and then loads `summary`, a sender sets its
    /// bit in `summary` and then loads this, all `SeqCst`: one of them sees the other. Whoever
    /// swaps it to 0 wakes the owner, so that one wake is sent for one sleep.
    sleeping: Padded<AtomicU32>,
    /// One bit per ring. Set with `Release` after the message was stored, taken with `Acquire`.
    words: Padded<[AtomicU64; WORDS]>,
}

#[cfg(not(all(loom, test)))]
const _: () = assert!(size_of::<Page>() <= LENGTH_BYTES);

/// A mapped bell page: one's own or a peer's.
#[cfg(not(all(loom, test)))]
pub(crate) struct Doorbell {
    _mapping: Mapping,
    page: NonNull<Page>,
}

// SAFETY: gives out nothing but atomic operations; the mapping belongs to the process.
#[cfg(not(all(loom, test)))]
unsafe impl Send for Doorbell {}
// SAFETY: as above.
#[cfg(not(all(loom, test)))]
unsafe impl Sync for Doorbell {}

#[cfg(not(all(loom, test)))]
impl Doorbell {
    /// Takes the memory of a bell; `None` if its length is wrong.
    pub(crate) fn new(mapping: Mapping) -> Option<Self> {
        let page = NonNull::new(mapping.start())?.cast::<Page>();
        let fits = mapping.length() == LENGTH_BYTES && page.is_aligned();
        fits.then_some(Doorbell { _mapping: mapping, page })
    }

    #[inline]
    fn page(&self) -> &Page {
        // SAFETY: `new` has checked length and alignment, the mapping lives as long as `self`, and
        // a page is made of atomics.
        unsafe { self.page.as_ref() }
    }
}

/// In the model: the same page, and what stands for the sockets on which its owner is woken.
#[cfg(all(loom, test))]
pub(crate) struct Doorbell {
    page: Page,
    pub(crate) wakes: Wakes,
}

#[cfg(all(loom, test))]
impl Doorbell {
    pub(crate) fn new(_: Mapping) -> Option<Self> {
        let page = Page {
            summary: Padded(AtomicU64::new(0)),
            sleeping: Padded(AtomicU32::new(0)),
            words: Padded(std::array::from_fn(|_| AtomicU64::new(0))),
        };
        Some(Doorbell { page, wakes: Wakes::new() })
    }

    fn page(&self) -> &Page {
        &self.page
    }
}

impl Doorbell {
    /// Sets a bit. Returns whether the owner sleeps and the caller is the one to wake it.
    pub(crate) fn ring(&self, bit: DoorbellBit) -> bool {
        let (word, mask) = (bit.index() / 64, 1 << (bit.index() % 64));
        self.page().words.0[word].fetch_or(mask, Release);
        self.page().summary.0.fetch_or(1 << word, SeqCst);
        self.take_sleeper()
    }

    /// Returns whether the owner sleeps and the caller is the one to wake it.
    pub(crate) fn take_sleeper(&self) -> bool {
        let sleeping = &self.page().sleeping.0;
        sleeping.load(SeqCst) != 0 && sleeping.swap(0, SeqCst) != 0
    }

    /// Whether any bit may be set.
    #[inline]
    pub(crate) fn is_rung(&self) -> bool {
        self.page().summary.0.load(Relaxed) != 0
    }

    /// As [`Doorbell::is_rung`], after having said that we sleep.
    pub(crate) fn is_rung_before_sleep(&self) -> bool {
        self.page().summary.0.load(SeqCst) != 0
    }

    /// Says that the owner sleeps: before it asks anyone to be woken, and before its last look.
    pub(crate) fn announce_sleep(&self) -> SleepAnnounced {
        self.page().sleeping.0.store(1, SeqCst);
        SleepAnnounced(())
    }

    /// Says that the owner is awake.
    pub(crate) fn end_sleep(&self) {
        self.page().sleeping.0.store(0, SeqCst);
    }

    /// Moves the set bits over to `pending`.
    pub(crate) fn collect(&self, pending: &mut PendingRings) {
        let mut summary = self.page().summary.0.swap(0, SeqCst);
        while summary != 0 {
            let word = summary.trailing_zeros() as usize;
            summary &= summary - 1;
            pending.add(word, self.page().words.0[word].swap(0, Acquire));
        }
    }
}

/// Proof that the owner of a bell has said that it sleeps. Whoever asks for a wake before that may
/// be answered while it still seems awake, and sleep on.
pub(crate) struct SleepAnnounced(());

/// Rings to look at.
pub(crate) struct PendingRings {
    summary: u64,
    words: [u64; WORDS],
    /// Where the last one was found: the next is the one after.
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

    /// The next one in turn after the one that was given last; it stays in.
    pub(crate) fn next(&mut self) -> Option<DoorbellBit> {
        if self.summary == 0 {
            return None;
        }
        let start = (usize::from(self.last) + 1) % BITS;
        let (word, bit) = (start / 64, start % 64);
        let after = self.words[word] & (u64::MAX << bit);
        let found = if after != 0 {
            word * 64 + after.trailing_zeros() as usize
        } else {
            // Words after this one first, then from the beginning, this one included.
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
        let bell = Doorbell::new(Mapping::private(LENGTH_BYTES).unwrap()).unwrap();
        let bit = DoorbellBit::new(4095).unwrap();
        assert!(!bell.is_rung() && !bell.ring(bit) && bell.is_rung());
        let _announced = bell.announce_sleep();
        assert!(bell.ring(bit) && !bell.ring(bit));
        let mut pending = PendingRings::new();
        bell.collect(&mut pending);
        assert_eq!(pending.next(), Some(bit));
        pending.remove(bit);
        assert!(pending.is_empty() && pending.next().is_none() && !bell.is_rung());
        assert!(DoorbellBit::new(4096).is_none() && DoorbellBit::new(u32::MAX).is_none());
    }

    proptest! {
        #[test]
        fn goes_round_all_pending_bits(bits in prop::collection::btree_set(0u32..4096, 1..200)) {
            let mut pending = PendingRings::new();
            for bit in &bits {
                pending.insert(DoorbellBit::new(*bit).unwrap());
            }
            let mut seen = BTreeSet::new();
            for _ in 0..bits.len() {
                seen.insert(u32::try_from(pending.next().unwrap().index()).unwrap());
            }
            prop_assert_eq!(&seen, &bits);
            for bit in &bits {
                pending.remove(DoorbellBit::new(*bit).unwrap());
            }
            prop_assert!(pending.is_empty());
        }
    }
}
