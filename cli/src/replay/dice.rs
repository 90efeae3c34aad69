//! Choices drawn from a seed.

/// splitmix64: the same seed gives the same choices.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// A number below `sides`.
    pub(super) fn below(&mut self, sides: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let place = (u128::from(z ^ (z >> 31)) * u128::from(sides)) >> 64;
        u32::try_from(place).unwrap_or(0)
    }
}
