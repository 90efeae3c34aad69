//! How far the workers lag behind the trace, as a seed decides.

use crate::workers::error::WorkersError;
use crate::workers::two_workers::TwoWorkers;

/// Chooses before each operation how much progress the workers make.
pub(super) struct Lag {
    choices: Choices,
    /// The workers come to rest once in so many operations, in the mean.
    rest_every: u32,
}

impl Lag {
    pub(super) fn new(seed: u64) -> Self {
        let mut choices = Choices { state: seed ^ 0x7061_6365 };
        let rest_every = 1 << choices.below(9);
        Self { choices, rest_every }
    }

    pub(super) fn before(&mut self, workers: &mut TwoWorkers<'_>) -> Result<(), WorkersError> {
        if self.choices.below(self.rest_every) == 0 {
            return workers.settle();
        }
        for _ in 0..self.choices.below(4) {
            let receives = self.choices.below(2) == 0;
            let senders = u32::try_from(workers.senders()).unwrap_or(u32::MAX);
            let sender = if senders > 1 { self.choices.below(senders) } else { 0 };
            workers.progress_of_one((!receives).then_some(sender as usize));
        }
        Ok(())
    }
}

/// SplitMix64. The generator of `tagmatch-testkit` is not published, and this crate is.
struct Choices {
    state: u64,
}

impl Choices {
    fn below(&mut self, bound: u32) -> u32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let place = (u128::from(z ^ (z >> 31)) * u128::from(bound)) >> 64;
        u32::try_from(place).unwrap_or(0)
    }
}
