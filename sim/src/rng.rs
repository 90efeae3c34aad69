//! Random numbers that are a function of the seed and nothing else.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A stream of its own for each use of one seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Rng(mix(seed) ^ mix(stream.wrapping_add(0x5851_f42d_4c95_7f2d)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// 0 to `limit` - 1; 0 if `limit` is 0.
    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        (((self.next() >> 32) * u64::from(limit)) >> 32) as u32
    }

    /// Both ends included.
    pub(crate) fn between(&mut self, (low, high): (u32, u32)) -> u32 {
        low + self.below(high - low + 1)
    }

    pub(crate) fn per_mille(&mut self, chance: u32) -> bool {
        self.below(1000) < chance
    }

    /// One of a few; the list is not empty.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(u32::try_from(of.len()).unwrap_or(u32::MAX)) as usize]
    }
}

/// Mixes 64 bits well.
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
