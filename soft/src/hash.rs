//! The seeded hash of a key, and the source of its seeds.

/// A stream of random words from one seed (splitmix64). Each index and each reseed takes some.
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
            // An even factor would lose a bit.
            finish: self.next() | 1,
        }
    }
}

/// Hashes a (masked) tag and a (masked, spread) source.
///
/// The hash is two multiplications to 128 bits, each folded to 64. The tag enters one operand of
/// the first multiplication and the source the other, both combined with a secret word, so that a
/// sender that doesn't know the seed can't make an operand zero. The second multiplication is
/// needed: after the first alone, consecutive tags are spaced evenly rather than at random, and for
/// some seeds they crowd.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySeed {
    whiten: u64,
    multiply: u64,
    finish: u64,
}

impl KeySeed {
    /// A seed with which all tags of source 0 have one hash.
    #[cfg(test)]
    pub(crate) const WORST: KeySeed = KeySeed { whiten: 0, multiply: 0, finish: 1 };

    #[inline]
    pub(crate) fn hash(self, tag: u64, source: u64) -> u64 {
        fold(fold(tag ^ self.whiten, source ^ self.multiply), self.finish)
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "halves of a product")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Spreads a source over a word, so that sources that differ in a bit differ in many.
#[inline]
pub(crate) fn spread(source: u32) -> u64 {
    u64::from(source).wrapping_mul(0xd6e8_feb8_6659_fd93)
}
