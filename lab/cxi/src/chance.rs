//! Random rounds and refusals, all from one seed.

use tagmatch_testkit::random::Random;

use crate::settings::Settings;

/// The random part of an endpoint's behaviour. Without a seed nothing is random.
pub(crate) struct Chance {
    random: Option<Random>,
    again_per_mille: u32,
}

impl Chance {
    /// The chance of the endpoint with this number in its process.
    pub(crate) fn new(settings: &Settings, endpoint: u32) -> Self {
        let random = settings.seed.map(|seed| Random::stream(seed, u64::from(endpoint)));
        Chance { random, again_per_mille: settings.again_per_mille }
    }

    /// So many rounds; with a seed, any number of rounds up to that.
    pub(crate) fn rounds(&mut self, most: u32) -> u64 {
        let rounds = self.random.as_mut().map_or(most, |random| random.between((0, most)));
        u64::from(rounds)
    }

    /// Whether a call answers `-FI_EAGAIN` without a reason.
    pub(crate) fn says_again(&mut self) -> bool {
        let cases = self.again_per_mille;
        self.random.as_mut().is_some_and(|random| random.per_mille(cases))
    }

    /// True in so many of a thousand cases.
    pub(crate) fn per_mille(&mut self, cases: u32) -> bool {
        self.random.as_mut().is_some_and(|random| random.per_mille(cases))
    }
}
