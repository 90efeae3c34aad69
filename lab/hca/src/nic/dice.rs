//! Random choices of the device, from one seed.

use std::sync::atomic::{AtomicU64, Ordering};

/// A sequence of random choices that all programs draw from: SplitMix64, as in the model.
#[derive(Debug, Default)]
pub(crate) struct Dice(AtomicU64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Dice(AtomicU64::new(seed))
    }

    /// Whether something happens that has this probability, in parts per million.
    pub(crate) fn happens(&self, parts_per_million: u32) -> bool {
        if parts_per_million == 0 {
            return false;
        }
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % 1_000_000 < parts_per_million.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_choices_again_and_a_probability_is_kept() {
        let draw = |seed, chance| {
            let dice = Dice::new(seed);
            [(); 1000].map(|()| dice.happens(chance))
        };
        assert_eq!(draw(7, 250_000), draw(7, 250_000));
        assert_ne!(draw(7, 250_000), draw(8, 250_000));
        let share = draw(7, 250_000).iter().filter(|happens| **happens).count();
        assert!((200..300).contains(&share), "{share} of 1000");
        assert_eq!([0, 1_000_000].map(|chance| draw(7, chance)), [[false; 1000], [true; 1000]]);
    }
}
