//! The table of one class: from a key's hash to the first entry with that key.
//!
//! Open addressing over buckets of one cache line, twelve keys each. A bucket begins with a byte of each
//! key's hash, all compared at once; a miss touches no entry, but for one in thirty. A bucket that was
//! full when a key came counts that key as passed on; a search goes on to the next bucket only while
//! that count isn't zero, and removal takes the count back. So there are no tombstones, nothing moves
//! on removal, and a search takes the same few branches almost always.
//!
//! A key's home is the lowest bits of its hash, its byte the highest. The table knows hashes and entry
//! numbers only; whether an entry has the key asked for, and what its hash is when the table is laid
//! out anew, is answered by closures.

use crate::lanes::equal_bytes;
use crate::link::NIL;

/// Keys per bucket.
const KEYS: usize = 12;
/// Keys per bucket, on average, before the table grows: one bucket in forty passes a key on.
const FULL: u32 = 7;
/// Buckets of the smallest table are `1 << FIRST_BITS`.
const FIRST_BITS: u32 = 1;
/// Buckets of the largest table are `1 << MOST_BITS`: they hold more keys than a list has entries.
const MOST_BITS: u32 = 28;

/// Buckets past its home that a key may stand before the hash is to blame. Random keys stand a
/// handful of buckets away at most.
fn first_reach(bits: u32) -> usize {
    6 + bits as usize / 2
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Bucket {
    /// A byte per key, [`mark`] of its hash; then two bytes with a bit for each lane that has a key; then
    /// two that count the keys passed on, and stay at their end until the table is laid out again.
    head: [u8; 16],
    /// The first entry of each key.
    entries: [u32; KEYS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

const LIVE: usize = 12;
const PASSED_ON: usize = 14;
/// Where they begin in the upper half of the head.
const LIVE_SHIFT: u32 = 32;
const PASSED_ON_SHIFT: u32 = 48;

/// The byte that stands for a hash: the highest bits, since the lowest choose the bucket.
#[inline]
fn mark(hash: u64) -> u8 {
    (hash >> 56) as u8
}

impl Bucket {
    #[inline]
    fn pair(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.head[at], self.head[at + 1]])
    }

    #[inline]
    fn set_pair(&mut self, at: usize, pair: u16) {
        [self.head[at], self.head[at + 1]] = pair.to_le_bytes();
    }

    #[inline]
    fn live(&self) -> u16 {
        self.pair(LIVE)
    }

    #[inline]
    fn upper_half(&self) -> u64 {
        self.head.last_chunk().map_or(0, |half| u64::from_le_bytes(*half))
    }

    /// The lanes whose keys may have this hash.
    #[inline]
    fn candidates(&self, hash: u64) -> u64 {
        // The bits between those of live keys and the count are zero.
        u64::from(equal_bytes(&self.head, mark(hash))) & self.upper_half() >> LIVE_SHIFT
    }

    /// The lowest lane without a key; [`KEYS`] if there is none.
    #[inline]
    fn free_lane(&self) -> usize {
        (!u32::from(self.live())).trailing_zeros() as usize
    }

    #[inline]
    fn put(&mut self, lane: usize, hash: u64, entry: u32) {
        self.entries[lane] = entry;
        self.head[lane] = mark(hash);
        self.set_pair(LIVE, self.live() | 1 << lane);
    }

    #[inline]
    fn clear(&mut self, lane: usize) {
        self.set_pair(LIVE, self.live() & !(1 << lane));
    }

    #[inline]
    fn passed_on(&self) -> u16 {
        self.pair(PASSED_ON)
    }

    fn pass_on(&mut self) {
        self.set_pair(PASSED_ON, self.passed_on().saturating_add(1));
    }

    fn take_back(&mut self) {
        if self.passed_on() < u16::MAX {
            self.set_pair(PASSED_ON, self.passed_on() - 1);
        }
    }
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

/// A cell of the table: the bucket, and the lane in the lowest bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place(pub(crate) u32);

const LANE_BITS: u32 = 4;
const _: () = assert!(KEYS < 1 << LANE_BITS && LANE_BITS + MOST_BITS <= u32::BITS);

impl Place {
    #[inline]
    fn new(bucket: u32, lane: u32) -> Self {
        Place(bucket << LANE_BITS | lane)
    }

    #[inline]
    fn bucket(self) -> u32 {
        self.0 >> LANE_BITS
    }

    #[inline]
    fn lane(self) -> usize {
        (self.0 % (1 << LANE_BITS)) as usize
    }
}

/// A look at a key's home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) home: u32,
    /// A bit for each lane that may have the key, [`KeyIndex::LANES_MAX`] of them.
    pub(crate) candidates: u64,
    /// To ask with [`goes_on`](Self::goes_on); several may be or-ed together.
    pub(crate) rest: u64,
}

impl Look {
    /// Whether a key may also be farther on than its home.
    #[inline]
    pub(crate) fn goes_on(rest: u64) -> bool {
        rest >> PASSED_ON_SHIFT != 0
    }
}

#[derive(Clone, Debug)]
pub(crate) struct KeyIndex {
    /// `1 << bits` buckets.
    buckets: Box<[Bucket]>,
    bits: u32,
    len: u32,
    /// With this many keys the table grows.
    len_full: u32,
    reach: usize,
    /// The farthest from home that any key has been put since the table was laid out.
    longest: usize,
    /// The cell of a key at its home that is likely to be asked for again, or [`NOWHERE`].
    remembered: Place,
}

/// No cell.
const NOWHERE: Place = Place(u32::MAX);

impl KeyIndex {
    /// Lanes of a bucket, rounded up to a power of two.
    pub(crate) const LANES_MAX: u32 = 16;

    pub(crate) fn new() -> Self {
        Self::with_bits(FIRST_BITS)
    }

    fn with_bits(bits: u32) -> Self {
        let bits = bits.min(MOST_BITS);
        KeyIndex {
            buckets: vec![Bucket::default(); 1 << bits].into_boxed_slice(),
            bits,
            len: 0,
            len_full: FULL << bits,
            reach: first_reach(bits),
            longest: 0,
            remembered: NOWHERE,
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "MOST_BITS at most")]
    fn home(&self, hash: u64) -> u32 {
        (hash as usize & (self.buckets.len() - 1)) as u32
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "MOST_BITS at most")]
    fn after(&self, bucket: u32) -> u32 {
        (bucket + 1) & (self.buckets.len() as u32 - 1)
    }

    #[inline]
    fn bucket_mut(&mut self, bucket: u32) -> &mut Bucket {
        &mut self.buckets[bucket as usize]
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// Looks at a key's home only, and at no entry: what several classes can do at the same time.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "MOST_BITS at most")]
    pub(crate) fn look(&self, hash: u64) -> Look {
        let home = hash as usize & (self.buckets.len() - 1);
        let here = &self.buckets[home];
        Look { home: home as u32, candidates: here.candidates(hash), rest: here.upper_half() }
    }

    /// A candidate of a [`look`](Self::look): where it is, and its entry.
    #[inline]
    pub(crate) fn candidate(&self, home: u32, lane: u32) -> (Place, u32) {
        (Place::new(home, lane), self.buckets[home as usize].entries[lane as usize])
    }

    /// The first entry of a key.
    #[inline]
    pub(crate) fn entry(&self, at: Place) -> u32 {
        self.buckets[at.bucket() as usize].entries[at.lane()]
    }

    /// Remembers a key's cell, if it is at its home, until any key is taken out or the table is laid
    /// out anew: receives that are alike come in runs, and need be hashed but once.
    #[inline]
    pub(crate) fn remember(&mut self, at: Place, hash: u64) {
        if at.bucket() == self.home(hash) {
            self.remember_home(at);
        }
    }

    #[inline]
    pub(crate) fn remember_home(&mut self, at: Place) {
        self.remembered = at;
    }

    /// The remembered cell, and its key's first entry.
    #[inline]
    pub(crate) fn remembered(&self) -> Option<(Place, u32)> {
        (self.remembered != NOWHERE).then(|| (self.remembered, self.entry(self.remembered)))
    }

    /// Finds the key with this hash for whose entry `is_key` says yes.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is_key: impl FnMut(u32) -> bool) -> Probe {
        let home = self.home(hash);
        let mut bucket = home;
        let mut steps = 0;
        loop {
            let here = &self.buckets[bucket as usize];
            steps += 1;
            let mut candidates = here.candidates(hash);
            while candidates != 0 {
                let lane = candidates.trailing_zeros();
                let entry = here.entries[lane as usize];
                if is_key(entry) {
                    return Probe { at: Place::new(bucket, lane), entry, steps };
                }
                steps += 1;
                candidates &= candidates - 1;
            }
            // Every bucket may have passed a key on, so the way round ends the search as well.
            bucket = self.after(bucket);
            if here.passed_on() == 0 || bucket == home {
                let at = Place::default();
                return Probe { at, entry: NIL, steps };
            }
        }
    }

    /// Whether one more key asks for a larger table.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len >= self.len_full
    }

    /// Adds a key, if its home shows that it is not in the table and has room for it, and if the
    /// table isn't full then: which is almost always so.
    #[inline]
    #[must_use]
    pub(crate) fn insert_new(&mut self, hash: u64, entry: u32) -> bool {
        let home = self.home(hash) as usize;
        let len = self.len + 1;
        let here = &mut self.buckets[home];
        let lane = here.free_lane();
        let rest = here.candidates(hash) | here.upper_half() >> PASSED_ON_SHIFT;
        if rest != 0 || lane >= KEYS || len >= self.len_full {
            return false;
        }
        here.put(lane, hash, entry);
        self.len = len;
        true
    }

    /// Adds a key that is not in the table, which is not full. Whether it now stands so far from
    /// home that the hash is to blame.
    #[inline]
    #[must_use]
    pub(crate) fn insert(&mut self, hash: u64, entry: u32) -> bool {
        let home = self.home(hash);
        self.len += 1;
        let here = self.bucket_mut(home);
        let lane = here.free_lane();
        if lane < KEYS {
            here.put(lane, hash, entry);
            return false;
        }
        self.insert_farther(hash, entry)
    }

    #[cold]
    #[inline(never)]
    fn insert_farther(&mut self, hash: u64, entry: u32) -> bool {
        let mut bucket = self.home(hash);
        let mut distance = 0;
        loop {
            let here = self.bucket_mut(bucket);
            let lane = here.free_lane();
            if lane < KEYS {
                here.put(lane, hash, entry);
                break;
            }
            here.pass_on();
            distance += 1;
            bucket = self.after(bucket);
        }
        self.longest = self.longest.max(distance);
        distance > self.reach
    }

    /// Makes the key's cell name another entry.
    #[inline]
    pub(crate) fn replace(&mut self, at: Place, entry: u32) {
        self.bucket_mut(at.bucket()).entries[at.lane()] = entry;
    }

    /// Takes a key out that is at its home.
    #[inline]
    pub(crate) fn remove_at_home(&mut self, at: Place) {
        self.bucket_mut(at.bucket()).clear(at.lane());
        self.len -= 1;
        self.remembered = NOWHERE;
    }

    /// Takes out a key with this hash.
    pub(crate) fn remove(&mut self, at: Place, hash: u64) {
        self.remove_at_home(at);
        let mut bucket = self.home(hash);
        while bucket != at.bucket() {
            self.bucket_mut(bucket).take_back();
            bucket = self.after(bucket);
        }
    }

    /// Doubles the number of buckets.
    #[cold]
    #[inline(never)]
    pub(crate) fn grow(&mut self, hash_of: impl Fn(u32) -> u64) {
        self.lay_out(self.bits + 1, 0, hash_of);
    }

    /// Lays the same keys out again under new hashes, with twice the reach: so there are at
    /// most as many rehashes between two growths as the table has bits.
    #[cold]
    #[inline(never)]
    pub(crate) fn rehash(&mut self, hash_of: impl Fn(u32) -> u64) {
        self.lay_out(self.bits, self.reach * 2, hash_of);
    }

    fn lay_out(&mut self, bits: u32, reach: usize, hash_of: impl Fn(u32) -> u64) {
        let mut fresh = Self::with_bits(bits);
        for bucket in &self.buckets {
            let mut live = bucket.live();
            while live != 0 {
                let entry = bucket.entries[live.trailing_zeros() as usize];
                let _crowded = fresh.insert(hash_of(entry), entry);
                live &= live - 1;
            }
        }
        // Whatever stands already is no reason to rehash again: only what comes is.
        fresh.reach = fresh.reach.max(reach).max(fresh.longest);
        *self = fresh;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash with this home in a table of at most `1 << 16` buckets, told apart by `number`.
    fn hash(home: u64, number: u32) -> u64 {
        home | u64::from(number) << 32
    }

    fn good(entry: u32) -> u64 {
        u64::from(entry).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32) ^ u64::from(entry)
    }

    fn find(index: &KeyIndex, hash: u64, entry: u32) -> Probe {
        index.find(hash, |other| other == entry)
    }

    fn is_clean(index: &KeyIndex) -> bool {
        index.len == 0 && index.buckets.iter().all(|here| here.upper_half() >> LIVE_SHIFT == 0)
    }

    #[test]
    fn keys_beyond_a_bucket_go_on_and_come_back() {
        let mut index = KeyIndex::with_bits(2);
        assert_eq!(index.buckets.len(), 4);
        // Twenty keys whose home is the last bucket: eight go round to the first.
        let hashes: Vec<u64> = (0..20).map(|number| hash(3, number)).collect();
        for (entry, &hash) in (0..).zip(&hashes) {
            assert!(!index.insert(hash, entry));
        }
        assert_eq!(index.longest(), 1);
        assert_eq!(index.buckets[3].passed_on(), 8);
        assert!(Look::goes_on(index.look(hashes[0]).rest));
        assert!(!Look::goes_on(index.look(hash(0, 0)).rest));
        for (entry, &hash) in (0..).zip(&hashes) {
            assert_eq!(find(&index, hash, entry).entry, entry);
            assert_eq!(find(&index, hash, NIL - 1).entry, NIL);
        }
        for (entry, &hash) in (0..).zip(&hashes) {
            index.remove(find(&index, hash, entry).at, hash);
            assert_eq!(find(&index, hash, entry).entry, NIL);
        }
        assert!(is_clean(&index));
    }

    #[test]
    fn keys_with_the_same_hash_are_told_apart_by_their_entries() {
        let mut index = KeyIndex::with_bits(5);
        for entry in 0..40 {
            let _crowded = index.insert(hash(5, 77), entry);
        }
        for entry in 0..40 {
            assert_eq!(find(&index, hash(5, 77), entry).entry, entry);
        }
        for entry in (0..40).rev() {
            index.remove(find(&index, hash(5, 77), entry).at, hash(5, 77));
        }
        assert!(is_clean(&index));
    }

    /// Each lane has its own byte, whatever was there before.
    #[test]
    fn a_lane_used_again_has_the_new_mark() {
        let mut index = KeyIndex::with_bits(1);
        for round in 0..3u32 {
            let hashes = (0..12).map(|lane| hash(0, (255 - lane * 16 - round) << 24));
            for (entry, hash) in (0..).zip(hashes.clone()) {
                assert!(!index.insert(hash, entry));
            }
            for (lane, hash) in (0..).zip(hashes) {
                let look = index.look(hash);
                assert_eq!(look.candidates, 1 << lane);
                let (at, entry) = index.candidate(look.home, lane);
                assert_eq!(entry, lane);
                index.remove_at_home(at);
            }
            assert!(is_clean(&index));
        }
    }

    #[test]
    fn a_bad_hash_is_noticed_and_replaced() {
        let mut index = KeyIndex::with_bits(9);
        let bad = |entry| hash(1, entry);
        let crowded = (0..1000).find(|&entry| index.insert(bad(entry), entry));
        let last = crowded.expect("a thousand keys have one home");
        index.rehash(good);
        assert!(index.longest() < 4);
        for entry in 0..=last {
            assert_eq!(find(&index, good(entry), entry).entry, entry);
        }
    }

    /// When no hash is any better, the table is slow but right, and doesn't try for ever.
    #[test]
    fn rehashes_are_bounded() {
        let mut index = KeyIndex::with_bits(10);
        let bad = |entry| hash(1, entry);
        let mut rehashes = 0;
        for entry in 0..7000 {
            if index.insert(bad(entry), entry) {
                index.rehash(bad);
                rehashes += 1;
            }
        }
        assert!((1..=10).contains(&rehashes), "{rehashes}");
        for entry in 0..7000 {
            assert_eq!(find(&index, bad(entry), entry).entry, entry);
        }
    }

    /// A count of passed on keys that has reached its end is never taken back: searches go on.
    #[test]
    fn a_saturated_bucket_stays_correct() {
        let mut index = KeyIndex::with_bits(4);
        let keys = 40u32;
        index.buckets[1].set_pair(PASSED_ON, u16::MAX - 3);
        for entry in 0..keys {
            let _crowded = index.insert(hash(1, entry), entry);
        }
        assert_eq!(index.buckets[1].passed_on(), u16::MAX);
        for entry in 0..keys - 1 {
            index.remove(find(&index, hash(1, entry), entry).at, hash(1, entry));
        }
        assert_eq!(find(&index, hash(1, keys - 1), keys - 1).entry, keys - 1);
        assert_eq!(index.buckets[1].passed_on(), u16::MAX);
    }

    #[test]
    fn growing_keeps_all_keys() {
        let mut index = KeyIndex::new();
        for entry in 0..10_000 {
            if index.is_full() {
                index.grow(good);
            }
            assert!(!index.insert(good(entry), entry));
        }
        for entry in 0..10_000 {
            assert_eq!(find(&index, good(entry), entry).entry, entry);
        }
    }
}
