//! The table of one class: it maps the hash of a key to the first entry with that key.
//!
//! The table uses open addressing over buckets of one cache line, with cells for twelve keys each.
//! A bucket begins with one byte of each key's hash, and all of these are compared at once. A
//! search for an absent key reads an entry only once in thirty times.
//!
//! The lowest bits of a hash choose the key's *home* bucket, and the highest are its byte. If a new
//! key's home is full, the bucket *overflows*: it counts the key as passed on, and the key goes to
//! the next bucket. A search continues with the next bucket only while that count isn't zero, and a
//! removal lowers the count. So there are no tombstones, a removal moves nothing, and a search
//! takes the same few branches almost always.
//!
//! The table knows only hashes and entry numbers. Closures say whether an entry has the wanted key,
//! and what its hash is when the table is rebuilt.

use crate::lanes::equal_bytes;
use crate::link::NIL;

/// Keys per bucket.
const KEYS: usize = 12;
/// Keys per bucket, on average, at which the table grows. At this load one bucket in forty has
/// overflowed.
const FULL: u32 = 7;
/// The smallest table has `1 << FIRST_BITS` buckets.
const FIRST_BITS: u32 = 1;
/// The largest table has `1 << MOST_BITS` buckets, enough for more keys than a list can have
/// entries.
const MOST_BITS: u32 = 28;

/// The number of buckets after its home at which a key may be before the hash gets a new seed. With
/// random keys the distance is a handful at most.
fn first_reach(bits: u32) -> usize {
    6 + bits as usize / 2
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Bucket {
    /// One byte per key, the [`mark`] of its hash; then two bytes with a bit for each used cell;
    /// then two bytes that count the keys passed on. Once the count reaches its maximum, it stays
    /// there until the table is rebuilt.
    head: [u8; 16],
    /// The first entry of each key.
    entries: [u32; KEYS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

const LIVE: usize = 12;
const PASSED_ON: usize = 14;
/// The positions of these fields in the upper half of the head.
const LIVE_SHIFT: u32 = 32;
const PASSED_ON_SHIFT: u32 = 48;

/// The byte of a hash that the bucket keeps: the highest bits, since the lowest choose the bucket.
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

    /// The cells whose keys may have this hash.
    #[inline]
    fn candidates(&self, hash: u64) -> u64 {
        // The bits between the used cells and the count are zero.
        u64::from(equal_bytes(&self.head, mark(hash))) & self.upper_half() >> LIVE_SHIFT
    }

    /// The lowest free cell; [`KEYS`] if there is none.
    #[inline]
    fn free_cell(&self) -> usize {
        (!u32::from(self.live())).trailing_zeros() as usize
    }

    #[inline]
    fn put(&mut self, cell: usize, hash: u64, entry: u32) {
        self.entries[cell] = entry;
        self.head[cell] = mark(hash);
        self.set_pair(LIVE, self.live() | 1 << cell);
    }

    #[inline]
    fn clear(&mut self, cell: usize) {
        self.set_pair(LIVE, self.live() & !(1 << cell));
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

/// The result of a search. Plain numbers, since they are used in registers a few instructions
/// later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// The key's cell, if it was found.
    pub(crate) at: CellPlace,
    /// The key's first entry, or [`NIL`].
    pub(crate) entry: u32,
    /// The number of buckets and entries read.
    pub(crate) steps: u64,
}

/// A cell of the table: the bucket, and the index of the cell in the lowest bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CellPlace(pub(crate) u32);

const CELL_BITS: u32 = 4;
const _: () = assert!(KEYS < 1 << CELL_BITS && CELL_BITS + MOST_BITS <= u32::BITS);

impl CellPlace {
    #[inline]
    fn new(bucket: u32, cell: u32) -> Self {
        CellPlace(bucket << CELL_BITS | cell)
    }

    #[inline]
    fn bucket(self) -> u32 {
        self.0 >> CELL_BITS
    }

    #[inline]
    fn cell(self) -> usize {
        (self.0 % (1 << CELL_BITS)) as usize
    }
}

/// The contents of a key's home bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) home: u32,
    /// A bit for each cell that may have the key, [`KeyIndex::CELLS_MAX`] of them.
    pub(crate) candidates: u64,
    /// The argument of [`goes_on`](Self::goes_on); several can be or-ed together.
    pub(crate) rest: u64,
}

impl Look {
    /// Whether the bucket has overflowed, so that the key may be in a later one.
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
    /// The number of keys at which the table grows.
    len_full: u32,
    /// The number of buckets after its home at which a new key may be put; see [`first_reach`].
    reach: usize,
    /// The largest distance from its home at which a key was put since the table was built.
    longest: usize,
    /// The cell of a key in its home bucket that is likely to be searched next, or [`NOWHERE`].
    remembered: CellPlace,
}

/// No cell.
const NOWHERE: CellPlace = CellPlace(u32::MAX);

impl KeyIndex {
    /// Cells of a bucket, rounded up to a power of two.
    pub(crate) const CELLS_MAX: u32 = 16;

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

    /// Reads only a key's home bucket, and no entry, so that the reads of several classes can
    /// overlap.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "MOST_BITS at most")]
    pub(crate) fn look(&self, hash: u64) -> Look {
        let home = hash as usize & (self.buckets.len() - 1);
        let here = &self.buckets[home];
        Look { home: home as u32, candidates: here.candidates(hash), rest: here.upper_half() }
    }

    /// A candidate of a [`look`](Self::look): its cell and its entry.
    #[inline]
    pub(crate) fn candidate(&self, home: u32, cell: u32) -> (CellPlace, u32) {
        (CellPlace::new(home, cell), self.buckets[home as usize].entries[cell as usize])
    }

    /// The first entry of a key.
    #[inline]
    pub(crate) fn entry(&self, at: CellPlace) -> u32 {
        self.buckets[at.bucket() as usize].entries[at.cell()]
    }

    /// Remembers a key's cell, if it is in its home bucket, until any key is removed or the table
    /// is rebuilt. Equal receives are often posted in a row, and then only the first one is hashed.
    #[inline]
    pub(crate) fn remember(&mut self, at: CellPlace, hash: u64) {
        if at.bucket() == self.home(hash) {
            self.remember_home(at);
        }
    }

    #[inline]
    pub(crate) fn remember_home(&mut self, at: CellPlace) {
        self.remembered = at;
    }

    /// The remembered cell, and the first entry of its key.
    #[inline]
    pub(crate) fn remembered(&self) -> Option<(CellPlace, u32)> {
        (self.remembered != NOWHERE).then(|| (self.remembered, self.entry(self.remembered)))
    }

    /// Finds the key with this hash for whose entry `is_key` is true.
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
                let cell = candidates.trailing_zeros();
                let entry = here.entries[cell as usize];
                if is_key(entry) {
                    return Probe { at: CellPlace::new(bucket, cell), entry, steps };
                }
                steps += 1;
                candidates &= candidates - 1;
            }
            // Every bucket may have overflowed, so a search that is back at the home ends, too.
            bucket = self.after(bucket);
            if here.passed_on() == 0 || bucket == home {
                let at = CellPlace::default();
                return Probe { at, entry: NIL, steps };
            }
        }
    }

    /// Whether the table must grow for one more key.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len >= self.len_full
    }

    /// Adds a key if its home bucket shows that it is not in the table, and has a free cell, and if
    /// the table is not full afterwards. This is almost always so.
    #[inline]
    #[must_use]
    pub(crate) fn insert_new(&mut self, hash: u64, entry: u32) -> bool {
        let home = self.home(hash) as usize;
        let len = self.len + 1;
        let here = &mut self.buckets[home];
        let cell = here.free_cell();
        let rest = here.candidates(hash) | here.upper_half() >> PASSED_ON_SHIFT;
        if rest != 0 || cell >= KEYS || len >= self.len_full {
            return false;
        }
        here.put(cell, hash, entry);
        self.len = len;
        true
    }

    /// Adds a key that is not in the table, which is not full. Returns whether the key is now so
    /// far from its home that the hash needs a new seed.
    #[inline]
    #[must_use]
    pub(crate) fn insert(&mut self, hash: u64, entry: u32) -> bool {
        let home = self.home(hash);
        self.len += 1;
        let here = self.bucket_mut(home);
        let cell = here.free_cell();
        if cell < KEYS {
            here.put(cell, hash, entry);
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
            let cell = here.free_cell();
            if cell < KEYS {
                here.put(cell, hash, entry);
                break;
            }
            here.pass_on();
            distance += 1;
            bucket = self.after(bucket);
        }
        self.longest = self.longest.max(distance);
        distance > self.reach
    }

    /// Sets the first entry of the key in this cell.
    #[inline]
    pub(crate) fn replace(&mut self, at: CellPlace, entry: u32) {
        self.bucket_mut(at.bucket()).entries[at.cell()] = entry;
    }

    /// Removes a key from its home bucket.
    #[inline]
    pub(crate) fn remove_at_home(&mut self, at: CellPlace) {
        self.bucket_mut(at.bucket()).clear(at.cell());
        self.len -= 1;
        self.remembered = NOWHERE;
    }

    /// Removes a key with this hash.
    pub(crate) fn remove(&mut self, at: CellPlace, hash: u64) {
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
        self.rebuild(self.bits + 1, 0, hash_of);
    }

    /// Rebuilds the table with new hashes and twice the reach. So there are at most as many
    /// rebuilds between two growths as the table has bits.
    #[cold]
    #[inline(never)]
    pub(crate) fn rehash(&mut self, hash_of: impl Fn(u32) -> u64) {
        self.rebuild(self.bits, self.reach * 2, hash_of);
    }

    fn rebuild(&mut self, bits: u32, reach: usize, hash_of: impl Fn(u32) -> u64) {
        let mut fresh = Self::with_bits(bits);
        for bucket in &self.buckets {
            let mut live = bucket.live();
            while live != 0 {
                let entry = bucket.entries[live.trailing_zeros() as usize];
                let _crowded = fresh.insert(hash_of(entry), entry);
                live &= live - 1;
            }
        }
        // The keys in the table are no reason to rebuild it again. Only new keys are.
        fresh.reach = fresh.reach.max(reach).max(fresh.longest);
        *self = fresh;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash with this home, in a table of at most `1 << 16` buckets. Different numbers give
    /// different hashes.
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
    fn keys_beyond_a_full_bucket_are_found_and_removed() {
        let mut index = KeyIndex::with_bits(2);
        assert_eq!(index.buckets.len(), 4);
        // The last bucket is the home of twenty keys. Eight of them go to the first bucket.
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

    /// Each cell has its own byte, whatever was there before.
    #[test]
    fn a_lane_used_again_has_the_new_mark() {
        let mut index = KeyIndex::with_bits(1);
        for round in 0..3u32 {
            let hashes = (0..12).map(|cell| hash(0, (255 - cell * 16 - round) << 24));
            for (entry, hash) in (0..).zip(hashes.clone()) {
                assert!(!index.insert(hash, entry));
            }
            for (cell, hash) in (0..).zip(hashes) {
                let look = index.look(hash);
                assert_eq!(look.candidates, 1 << cell);
                let (at, entry) = index.candidate(look.home, cell);
                assert_eq!(entry, cell);
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

    /// When no hash is better, the table is slow but correct, and stops rebuilding.
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

    /// A saturated count of passed on keys is never lowered, so searches continue to the next
    /// bucket.
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
