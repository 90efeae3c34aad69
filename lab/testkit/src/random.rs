//! Random numbers that depend on their seed alone, so that a failed test can be run again.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator. Near seeds give numbers that have nothing to do with each other.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// One of several generators with the same seed. Their numbers have nothing to do with each
    /// other, so one part of a test can draw more numbers without a change to what another draws.
    #[must_use]
    pub fn stream(seed: u64, stream: u64) -> Self {
        Self { state: mix(seed) ^ mix(stream.wrapping_add(0x5851_f42d_4c95_7f2d)) }
    }

    /// All 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    #[allow(clippy::cast_possible_truncation, reason = "the product's upper half is below `bound`")]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number below `bound`; 0 if `bound` is 0.
    #[allow(clippy::cast_possible_truncation, reason = "the product's upper half is below `bound`")]
    pub fn below_u32(&mut self, bound: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// A place in a list of `len` elements.
    ///
    /// # Panics
    ///
    /// If the list is empty.
    pub fn index(&mut self, len: usize) -> usize {
        assert!(len > 0, "an empty list has no place to draw");
        usize::try_from(self.below(len as u64)).expect("less than `len`, which is a usize")
    }

    /// A number from `low` to `high`, both ends included. `high` is not less than `low`, and less
    /// than `u32::MAX`.
    pub fn between(&mut self, (low, high): (u32, u32)) -> u32 {
        low + self.below_u32(high - low + 1)
    }

    /// True in `part` of `whole` cases: `chance(1, 4)` in a quarter of them.
    pub fn chance(&mut self, part: u64, whole: u64) -> bool {
        self.below(whole) < part
    }

    /// True in so many of 1000 cases.
    pub fn per_mille(&mut self, cases: u32) -> bool {
        self.below_u32(1000) < cases
    }

    /// One of the elements.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn pick<T: Copy>(&mut self, elements: &[T]) -> T {
        elements[self.index(elements.len())]
    }

    /// Puts the elements into a random order.
    pub fn shuffle<T>(&mut self, elements: &mut [T]) {
        for last in (1..elements.len()).rev() {
            elements.swap(last, self.index(last + 1));
        }
    }
}

/// SplitMix64's output function: each bit of `value` changes about half of the result's bits.
#[must_use]
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_published_ones_and_below_their_bound() {
        assert_eq!(Random::new(0).bits(), 0xe220_a839_7b1d_cdaf);
        let mut random = Random::new(7);
        let drawn: Vec<u64> = (0..1000).map(|_| random.below(10)).collect();
        assert!((0..10).all(|n| drawn.contains(&n)) && drawn.iter().all(|n| *n < 10));
        assert_eq!((random.below(0), random.below_u32(0), random.below(1)), (0, 0, 0));
        assert!((0..100).all(|_| (3..=5).contains(&random.between((3, 5)))));
        assert!((0..100).all(|_| random.chance(1, 1) && !random.chance(0, 1)));
        assert!((0..100).all(|_| random.per_mille(1000) && !random.per_mille(0)));
    }

    #[test]
    fn a_shuffle_loses_nothing_and_streams_differ() {
        let mut order: Vec<u32> = (0..100).collect();
        Random::new(1).shuffle(&mut order);
        assert!(!order.is_sorted());
        order.sort_unstable();
        assert!(order.into_iter().eq(0..100));
        assert_ne!(Random::stream(1, 0).bits(), Random::stream(1, 1).bits());
    }
}
