//! Depths over the course of a trace: a bounded series, whatever the trace's length.

#[cfg(feature = "command")]
mod chart;

use serde::Serialize;

/// Points of the series; a shorter trace has one for each operation.
const POINTS_MAX: usize = 256;
/// The deepest a list was, and after which operation first; the first operation is 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Peak {
    pub(super) depth: u64,
    pub(super) operation: u64,
}

impl Peak {
    fn see(&mut self, depth: u64, operation: u64) {
        if depth > self.depth {
            *self = Self { depth, operation };
        }
    }
}

/// The deepest that each list was in each stretch of the trace, stretches being equally long.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Timeline {
    operations: u64,
    pub(super) posted_max: Vec<u64>,
    pub(super) unexpected_max: Vec<u64>,
    #[serde(skip)]
    seen: u64,
    #[serde(skip)]
    pub(super) posted: Peak,
    #[serde(skip)]
    pub(super) unexpected: Peak,
}

impl Timeline {
    /// For a trace of so many operations.
    pub(super) fn new(operations: usize) -> Self {
        let points = operations.min(POINTS_MAX);
        Self {
            operations: operations as u64,
            posted_max: vec![0; points],
            unexpected_max: vec![0; points],
            seen: 0,
            posted: Peak::default(),
            unexpected: Peak::default(),
        }
    }

    /// The depths after the next operation.
    pub(super) fn see(&mut self, posted: usize, unexpected: usize) {
        let points = self.posted_max.len() as u128;
        let at = u128::from(self.seen) * points / u128::from(self.operations.max(1));
        self.seen += 1;
        let Some(at) = usize::try_from(at).ok().filter(|&at| at < self.posted_max.len()) else {
            return;
        };
        let (posted, unexpected) = (posted as u64, unexpected as u64);
        self.posted_max[at] = self.posted_max[at].max(posted);
        self.unexpected_max[at] = self.unexpected_max[at].max(unexpected);
        self.posted.see(posted, self.seen);
        self.unexpected.see(unexpected, self.seen);
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
