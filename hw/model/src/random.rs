//! The model's only source of chance: everything it draws follows from the seed.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `bound`, 0 if that is 0. The bias is below `bound` / 2^32.
    #[allow(clippy::cast_possible_truncation, reason = "the product's upper half is below `bound`")]
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_those_of_the_paper_and_below_their_bound() {
        assert_eq!(Random::new(0).next(), 0xe220_a839_7b1d_cdaf);
        let mut random = Random::new(7);
        let drawn: Vec<u32> = (0..1000).map(|_| random.below(10)).collect();
        assert!((0..10).all(|n| drawn.contains(&n)) && drawn.iter().all(|n| *n < 10));
        assert_eq!(random.below(0), 0);
    }
}
