//! The table of one class: from a key's hash to the first entry with that key.
//!
//! Open addressing over buckets of one cache line, seven keys each. A bucket begins with a word
//! that holds a byte of each key's hash, so that a few operations on that word answer for all
//! seven; a miss touches neither the full hashes nor an entry. A bucket that was full when a key
//! came counts that key as passed on; a search goes on to the next bucket only while that count
//! isn't zero, and removal takes the count back. So there are no tombstones, nothing moves on
//! removal, and a search takes the same few branches almost always.
//!
//! A key's home is the top bits of its hash: the table doubles without looking at entries. The
//! table knows hashes and entry numbers only; whether an entry has the key asked for is answered
//! by a closure.

use crate::hash::HASH_BITS;
use crate::link::NIL;

/// Keys per bucket.
const KEYS: usize = 7;
/// Keys per bucket, on average, before the table grows.
const FULL: usize = 4;

/// Buckets past its home that a key may stand before the hash is to blame. At this load the
/// farthest of `1 << bits` random keys stands about `0.8 * bits` buckets away.
fn first_reach(bits: u32) -> usize {
    8 + 2 * bits as usize
}

/// The lowest bit of every lane of [`Bucket::marks`].
const LOWS: u64 = 0x0101_0101_0101_0101;
/// The highest bit of every lane that belongs to a key.
const HIGHS: u64 = 0x0080_8080_8080_8080;

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Bucket {
    /// A byte per key: zero if there is none, else [`mark`] of its hash. The highest byte counts
    /// the keys passed on; at 255 it stays there until the table is laid out again.
    marks: u64,
    hashes: [u32; KEYS],
    /// The first entry of each key.
    entries: [u32; KEYS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

const PASSED_ON_SHIFT: u32 = 56;

/// The byte that stands for a hash: low bits, since the high ones choose the bucket.
#[inline]
fn mark(hash: u32) -> u64 {
    u64::from(hash & 0x7f | 0x80)
}

impl Bucket {
    /// The highest bit of each lane whose byte is `mark`. Lanes above the first may be false: they
    /// are candidates.
    #[inline]
    fn candidates(&self, mark: u64) -> u64 {
        let differ = self.marks ^ (mark * LOWS);
        differ.wrapping_sub(LOWS) & !differ & HIGHS
    }

    /// The lowest lane without a key; [`KEYS`] if there is none.
    #[inline]
    fn free_lane(&self) -> usize {
        lane(!self.marks & HIGHS | 1 << 63)
    }

    #[inline]
    fn passed_on(&self) -> u64 {
        self.marks >> PASSED_ON_SHIFT
    }

    #[inline]
    fn pass_on(&mut self) {
        if self.passed_on() < 0xff {
            self.marks += 1 << PASSED_ON_SHIFT;
        }
    }

    #[inline]
    fn take_back(&mut self) {
        if self.passed_on() < 0xff {
            self.marks -= 1 << PASSED_ON_SHIFT;
        }
    }
}

/// The lane of the lowest bit set.
#[inline]
fn lane(bits: u64) -> usize {
    (bits.trailing_zeros() / 8) as usize
}

/// What a search came to: plain words, as they are used in registers a few instructions later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// Where the key's cell is, if there is one.
    pub(crate) at: Place,
    /// The key's first entry, or [`NIL`].
    pub(crate) entry: u32,
    /// Buckets and entries looked at.
    pub(crate) steps: u64,
}

/// A bucket and a lane in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    bucket: usize,
    lane: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct KeyIndex {
    /// `1 << (HASH_BITS - shift)` buckets.
    buckets: Box<[Bucket]>,
    shift: u32,
    len: usize,
    reach: usize,
    /// The farthest from home that any key has been put since the table was laid out.
    longest: usize,
}

impl KeyIndex {
    pub(crate) fn new() -> Self {
        Self::with_bits(0)
    }

    fn with_bits(bits: u32) -> Self {
        let bits = bits.min(HASH_BITS);
        KeyIndex {
            buckets: vec![Bucket::default(); 1 << bits].into_boxed_slice(),
            shift: HASH_BITS - bits,
            len: 0,
            reach: first_reach(bits),
            longest: 0,
        }
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        (hash >> self.shift) as usize
    }

    #[inline]
    fn after(&self, bucket: usize) -> usize {
        (bucket + 1) & (self.buckets.len() - 1)
    }

    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Finds the key with this hash for whose entry `is_key` says yes.
    #[inline]
    pub(crate) fn find(&self, hash: u32, mut is_key: impl FnMut(u32) -> bool) -> Probe {
        let mut bucket = self.home(hash);
        let mut steps = 0;
        loop {
            let here = &self.buckets[bucket];
            steps += 1;
            let mut candidates = here.candidates(mark(hash));
            while candidates != 0 {
                let lane = lane(candidates);
                if here.hashes[lane] == hash {
                    let entry = here.entries[lane];
                    if is_key(entry) {
                        return Probe { at: Place { bucket, lane }, entry, steps };
                    }
                    steps += 1;
                }
                candidates &= candidates - 1;
            }
            // Every bucket may have passed a key on, so the way round ends the search as well.
            bucket = self.after(bucket);
            if here.passed_on() == 0 || bucket == self.home(hash) {
                let at = Place::default();
                return Probe { at, entry: NIL, steps };
            }
        }
    }

    /// Whether one more key asks for a larger table.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len >= self.buckets.len() * FULL
    }

    /// Adds a key that is not in the table, which is not full. Whether it now stands so far from
    /// home that the hash is to blame.
    #[inline]
    #[must_use]
    pub(crate) fn insert(&mut self, hash: u32, entry: u32) -> bool {
        let mut bucket = self.home(hash);
        let mut distance = 0;
        loop {
            let here = &mut self.buckets[bucket];
            let lane = here.free_lane();
            if lane < KEYS {
                here.marks |= mark(hash) << (lane * 8);
                here.hashes[lane] = hash;
                here.entries[lane] = entry;
                break;
            }
            here.pass_on();
            distance += 1;
            bucket = self.after(bucket);
        }
        self.len += 1;
        self.longest = self.longest.max(distance);
        distance > self.reach
    }

    /// Makes the key's cell name another entry.
    #[inline]
    pub(crate) fn replace(&mut self, at: Place, entry: u32) {
        self.buckets[at.bucket].entries[at.lane] = entry;
    }

    /// Takes a key out.
    #[inline]
    pub(crate) fn remove(&mut self, at: Place) {
        let here = &mut self.buckets[at.bucket];
        let hash = here.hashes[at.lane];
        here.marks &= !(0xff << (at.lane * 8));
        self.len -= 1;
        let mut bucket = self.home(hash);
        while bucket != at.bucket {
            self.buckets[bucket].take_back();
            bucket = self.after(bucket);
        }
    }

    /// Doubles the number of buckets.
    #[cold]
    #[inline(never)]
    pub(crate) fn grow(&mut self) {
        let bits = HASH_BITS - self.shift;
        let old = std::mem::replace(self, Self::with_bits(bits + 1));
        self.refill(&old, |hash, _| hash);
    }

    /// Lays the same keys out again under new hashes, with twice the reach: so there are at
    /// most as many rehashes between two growths as the table has bits.
    #[cold]
    #[inline(never)]
    pub(crate) fn rehash(&mut self, hash_of: impl Fn(u32) -> u32) {
        let mut fresh = Self::with_bits(HASH_BITS - self.shift);
        fresh.refill(self, |_, entry| hash_of(entry));
        fresh.reach = fresh.reach.max(self.reach * 2);
        *self = fresh;
    }

    fn refill(&mut self, old: &KeyIndex, hash_of: impl Fn(u32, u32) -> u32) {
        for bucket in &old.buckets {
            let mut keys = bucket.marks & HIGHS;
            while keys != 0 {
                let (hash, entry) = (bucket.hashes[lane(keys)], bucket.entries[lane(keys)]);
                let _crowded = self.insert(hash_of(hash, entry), entry);
                keys &= keys - 1;
            }
        }
        // Whatever stands already is no reason to rehash again: only what comes is.
        self.reach = self.reach.max(self.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash with this home in a table of `1 << bits` buckets, told apart by `number`.
    fn hash(bits: u32, home: u32, number: u32) -> u32 {
        (home << (HASH_BITS - bits)) | number
    }

    fn find(index: &KeyIndex, hash: u32, entry: u32) -> Probe {
        index.find(hash, |other| other == entry)
    }

    #[test]
    fn keys_beyond_a_bucket_go_on_and_come_back() {
        let mut index = KeyIndex::with_bits(2);
        assert_eq!(index.buckets.len(), 4);
        // Twelve keys whose home is the last bucket: five go round to the first.
        let hashes: Vec<u32> = (0..12).map(|number| hash(2, 3, number)).collect();
        for (entry, &hash) in (0..).zip(&hashes) {
            assert!(!index.insert(hash, entry));
        }
        assert_eq!(index.longest(), 1);
        assert_eq!(index.buckets[3].passed_on(), 5);
        for (entry, &hash) in (0..).zip(&hashes) {
            assert_eq!(find(&index, hash, entry).entry, entry);
            assert_eq!(find(&index, hash, entry + 1).entry, NIL);
        }
        for (entry, &hash) in (0..).zip(&hashes) {
            index.remove(find(&index, hash, entry).at);
            assert_eq!(find(&index, hash, entry).entry, NIL);
        }
        assert!(index.buckets.iter().all(|bucket| bucket.marks == 0));
        assert_eq!(index.len, 0);
    }

    #[test]
    fn keys_with_the_same_hash_are_told_apart_by_their_entries() {
        let mut index = KeyIndex::with_bits(5);
        for entry in 0..40 {
            let _crowded = index.insert(hash(3, 5, 77), entry);
        }
        for entry in 0..40 {
            assert_eq!(find(&index, hash(3, 5, 77), entry).entry, entry);
        }
        for entry in (0..40).rev() {
            index.remove(find(&index, hash(3, 5, 77), entry).at);
        }
        assert!(index.buckets.iter().all(|bucket| bucket.marks == 0));
    }

    #[test]
    fn a_bad_hash_is_noticed_and_replaced() {
        let mut index = KeyIndex::with_bits(9);
        let bad = |entry| hash(9, 1, entry);
        let crowded = (0..1000).find(|&entry| index.insert(bad(entry), entry));
        let last = crowded.expect("a thousand keys have one home");
        let good = |entry: u32| entry.wrapping_mul(0x9e37_79b9) >> 1;
        index.rehash(good);
        assert!(index.longest() < 8);
        for entry in 0..=last {
            assert_eq!(find(&index, good(entry), entry).entry, entry);
        }
    }

    /// When no hash is any better, the table is slow but right, and doesn't try for ever.
    #[test]
    fn rehashes_are_bounded() {
        let mut index = KeyIndex::with_bits(10);
        let bad = |entry| hash(10, 1, entry);
        let mut rehashes = 0;
        for entry in 0..4000 {
            if index.insert(bad(entry), entry) {
                index.rehash(bad);
                rehashes += 1;
            }
        }
        assert!(rehashes <= 10, "{rehashes}");
        for entry in 0..4000 {
            assert_eq!(find(&index, bad(entry), entry).entry, entry);
        }
    }

    /// A count of passed on keys that has reached its end is never taken back: searches go on.
    #[test]
    fn a_saturated_bucket_stays_correct() {
        let mut index = KeyIndex::with_bits(10);
        for entry in 0..400 {
            let _crowded = index.insert(hash(10, 1, entry), entry);
        }
        assert_eq!(index.buckets[1].passed_on(), 0xff);
        for entry in 0..399 {
            index.remove(find(&index, hash(10, 1, entry), entry).at);
        }
        assert_eq!(find(&index, hash(10, 1, 399), 399).entry, 399);
        assert_eq!(index.buckets[1].passed_on(), 0xff);
    }

    #[test]
    fn growing_keeps_all_keys() {
        let mut index = KeyIndex::with_bits(0);
        let good = |entry: u32| entry.wrapping_mul(0x9e37_79b9) >> 1;
        for entry in 0..10_000 {
            if index.is_full() {
                index.grow();
            }
            assert!(!index.insert(good(entry), entry));
        }
        for entry in 0..10_000 {
            assert_eq!(find(&index, good(entry), entry).entry, entry);
        }
    }
}
