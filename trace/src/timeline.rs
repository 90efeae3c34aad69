//! Depths over the course of a trace, as a series whose length is bounded.

use serde::Serialize;

/// The most points of a series. A shorter trace has a point for each operation.
const POINTS_MAX: usize = 256;

/// The greatest depth of a list, and the first operation after which it had that depth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Peak {
    /// Entries in the list; 0 if there never was one.
    pub depth: u64,
    /// The operation, counted from 1; 0 if the list was never used.
    pub operation: u64,
}

impl Peak {
    fn see(&mut self, depth: u64, operation: u64) {
        if depth > self.depth {
            *self = Self { depth, operation };
        }
    }
}

/// The greatest depth of each list in each stretch of the trace. All stretches are equally long.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Timeline {
    /// Operations of the whole trace.
    pub operations: u64,
    /// Of the posted list, by stretch.
    pub posted_max: Vec<u64>,
    /// Of the unexpected list, by stretch.
    pub unexpected_max: Vec<u64>,
    #[serde(skip)]
    position: u64,
    /// Of the posted list, over the whole trace.
    #[serde(skip)]
    pub posted: Peak,
    /// Of the unexpected list, over the whole trace.
    #[serde(skip)]
    pub unexpected: Peak,
}

impl Timeline {
    /// For a trace of so many operations.
    #[must_use]
    pub fn new(operations: usize) -> Self {
        let points = operations.min(POINTS_MAX);
        Self {
            operations: operations as u64,
            posted_max: vec![0; points],
            unexpected_max: vec![0; points],
            ..Self::default()
        }
    }

    /// Takes in the depths after the next operation.
    pub fn see(&mut self, posted: usize, unexpected: usize) {
        let points = self.posted_max.len() as u128;
        let at = u128::from(self.position) * points / u128::from(self.operations.max(1));
        self.position += 1;
        let Some(at) = usize::try_from(at).ok().filter(|&at| at < self.posted_max.len()) else {
            return;
        };
        let posted = posted as u64;
        let unexpected = unexpected as u64;
        self.posted_max[at] = self.posted_max[at].max(posted);
        self.unexpected_max[at] = self.unexpected_max[at].max(unexpected);
        self.posted.see(posted, self.position);
        self.unexpected.see(unexpected, self.position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_trace_has_a_bounded_series_that_misses_no_peak() {
        let mut timeline = Timeline::new(1_000_003);
        for n in 0..1_000_003usize {
            timeline.see(n % 1000, usize::from(n == 777_777) * 5);
        }
        assert_eq!((timeline.posted_max.len(), timeline.unexpected_max.len()), (256, 256));
        assert_eq!(timeline.posted_max.iter().max(), Some(&999));
        let at = timeline.unexpected_max.iter().position(|&depth| depth == 5);
        assert_eq!(at, Some(777_777 * 256 / 1_000_003));
        assert_eq!(timeline.unexpected, Peak { depth: 5, operation: 777_778 });
        assert_eq!(timeline.posted, Peak { depth: 999, operation: 1000 });
    }
}
