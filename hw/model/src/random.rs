//! Random numbers for the model: every one follows from the seed.
//!
//! The generators of `tagmatch-testkit` are for tests. The model is part of the library, so it has
//! a small one of its own.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number less than `bound`, or 0 if `bound` is 0. The bias is below `bound` / 2^32.
    #[allow(clippy::cast_possible_truncation, reason = "the product's upper half is below `bound`")]
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_match_the_paper_and_stay_below_their_bound() {
        assert_eq!(Random::new(0).next(), 0xe220_a839_7b1d_cdaf);
        let mut random = Random::new(7);
        let drawn: Vec<u32> = (0..1000).map(|_| random.below(10)).collect();
        assert!((0..10).all(|n| drawn.contains(&n)) && drawn.iter().all(|n| *n < 10));
        assert_eq!(random.below(0), 0);
    }
}
