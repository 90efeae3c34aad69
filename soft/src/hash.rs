//! The seeded hash of a key, and where its seeds come from.

/// Width of a key's hash. One bit less than a word, so that no hash looks like an empty cell.
pub(crate) const HASH_BITS: u32 = 31;

/// A stream of well mixed words from one seed (splitmix64): each index and each reseed takes more.
#[derive(Clone, Debug)]
pub(crate) struct SeedStream(u64);

impl SeedStream {
    pub(crate) fn new(seed: u64) -> Self {
        SeedStream(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn next_seed(&mut self) -> KeySeed {
        KeySeed {
            whiten: self.next(),
            multiply: self.next(),
        }
    }
}

/// Turns a (masked) tag and a (masked, spread) source into a hash.
///
/// One 64 x 64 -> 128 bit multiplication, folded. The tag enters one operand and the source the
/// other, both under a secret word, so nobody who doesn't know the seed can make an operand zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySeed {
    whiten: u64,
    multiply: u64,
}

impl KeySeed {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "halves of a product")]
    pub(crate) fn hash(self, tag: u64, source: u64) -> u32 {
        let product = u128::from(tag ^ self.whiten) * u128::from(source ^ self.multiply);
        let folded = (product as u64) ^ ((product >> 64) as u64);
        (folded >> (64 - HASH_BITS)) as u32
    }
}

/// Spreads a source over a word, so that sources that differ in a bit differ in many.
#[inline]
pub(crate) fn spread(source: u32) -> u64 {
    u64::from(source).wrapping_mul(0xd6e8_feb8_6659_fd93)
}
