//! How deep the lists are in a run, and what its searches come to.

use serde::Serialize;

use crate::format::{Id, TraceOp};
use crate::result::OpResult;
use crate::timeline::Timeline;
use crate::trace::Trace;

/// How many searches met a list of which depth. Exact, since depths are small numbers.
#[derive(Debug, Default)]
struct Tally {
    searches_by_depth: Vec<u64>,
}

impl Tally {
    fn add(&mut self, depth: usize) {
        if depth >= self.searches_by_depth.len() {
            self.searches_by_depth.resize(depth + 1, 0);
        }
        self.searches_by_depth[depth] += 1;
    }

    fn summary(&self) -> DepthSummary {
        let by_depth = || (0u64..).zip(self.searches_by_depth.iter().copied());
        let searches: u64 = by_depth().map(|(_, count)| count).sum();
        let total: u64 = by_depth().map(|(depth, count)| depth * count).sum();
        // The least depth that is not exceeded in at least `per_mille` of all searches.
        let percentile = |per_mille: u64| {
            let wanted = (searches * per_mille).div_ceil(1000);
            let mut sum = 0;
            by_depth()
                .find(|(_, count)| {
                    sum += count;
                    sum >= wanted
                })
                .map_or(0, |(depth, _)| depth)
        };
        DepthSummary {
            searches,
            mean: total as f64 / searches.max(1) as f64,
            p50: percentile(500),
            p90: percentile(900),
            p99: percentile(990),
            p999: percentile(999),
            max: percentile(1000),
        }
    }
}

/// How deep a list was at the searches through it; percentiles are depths that occurred.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[allow(missing_docs, reason = "the names are the usual ones")]
pub struct DepthSummary {
    pub searches: u64,
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

/// What the searches of a run came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct MatchCounts {
    /// Messages that met a posted receive.
    pub posted: u64,
    /// Messages that were received from the unexpected list.
    pub unexpected: u64,
    /// Messages that were longer than their receive's buffer.
    pub truncated: u64,
    /// Receives that were cancelled.
    pub cancelled: u64,
    /// Cancels whose receive was not posted any more.
    pub late: u64,
}

/// Follows a run and counts.
#[derive(Debug, Default)]
pub struct DepthCounter<'a> {
    /// Lengths by id.
    lens: &'a [u64],
    posted_searches: Tally,
    unexpected_searches: Tally,
    /// Entries of the lists now.
    posted: usize,
    unexpected: usize,
    unexpected_bytes: u128,
    unexpected_bytes_max: u128,
    /// Probes and matched probes.
    pub probes: u64,
    /// Probes and matched probes that found nothing.
    pub probes_missed: u64,
    /// What the searches came to.
    pub matches: MatchCounts,
    /// The depths over the course of the trace.
    pub timeline: Timeline,
}

impl<'a> DepthCounter<'a> {
    /// For a run of `trace`.
    #[must_use]
    pub fn new(trace: &'a Trace) -> Self {
        Self { lens: &trace.lens, timeline: Timeline::new(trace.ops.len()), ..Self::default() }
    }

    /// Depths of the posted list and of the unexpected list now.
    #[must_use]
    pub fn depths(&self) -> (usize, usize) {
        (self.posted, self.unexpected)
    }

    /// Depths of the posted list and of the unexpected list at the searches through them.
    #[must_use]
    pub fn summaries(&self) -> (DepthSummary, DepthSummary) {
        (self.posted_searches.summary(), self.unexpected_searches.summary())
    }

    /// The most bytes of payload that were in the unexpected list at a time.
    #[must_use]
    pub fn unexpected_bytes_max(&self) -> u64 {
        u64::try_from(self.unexpected_bytes_max).unwrap_or(u64::MAX)
    }

    /// Takes in the next operation and its result.
    pub fn see(&mut self, op: &TraceOp, result: Option<OpResult>) {
        match op {
            TraceOp::Msg { .. } => self.posted_searches.add(self.posted),
            TraceOp::Recv { .. } => self.unexpected_searches.add(self.unexpected),
            TraceOp::Probe { .. } | TraceOp::Mprobe { .. } => {
                self.unexpected_searches.add(self.unexpected);
                self.probes += 1;
            }
            TraceOp::Cancel { .. }
            | TraceOp::Mrecv { .. }
            | TraceOp::Mcancel { .. }
            | TraceOp::Lost { .. } => {}
        }
        match (op, result) {
            (TraceOp::Msg { id, .. }, None) => self.add_unexpected(*id),
            (_, None) => self.posted += 1,
            (_, Some(result)) => self.count(result),
        }
        self.timeline.see(self.posted, self.unexpected);
    }

    fn count(&mut self, result: OpResult) {
        match result {
            OpResult::Match { msg, truncated, unexpected, .. } => {
                if unexpected {
                    self.matches.unexpected += 1;
                    self.remove_unexpected(msg);
                } else {
                    self.matches.posted += 1;
                    self.posted -= 1;
                }
                self.matches.truncated += u64::from(truncated);
            }
            OpResult::Mprobe { msg: Some(msg), .. } | OpResult::Lost { msg: Some(msg) } => {
                self.remove_unexpected(msg);
            }
            OpResult::Mrecv { msg: Some(_), truncated, .. } => {
                self.matches.unexpected += 1;
                self.matches.truncated += u64::from(truncated);
            }
            OpResult::Cancelled { .. } => {
                self.matches.cancelled += 1;
                self.posted -= 1;
            }
            OpResult::Late { .. } => self.matches.late += 1,
            OpResult::Probe { msg: None } | OpResult::Mprobe { msg: None, .. } => {
                self.probes_missed += 1;
            }
            OpResult::Probe { .. }
            | OpResult::Mrecv { .. }
            | OpResult::Mcancelled { .. }
            | OpResult::Lost { msg: None } => {}
        }
    }

    fn add_unexpected(&mut self, msg: Id) {
        self.unexpected += 1;
        self.unexpected_bytes += u128::from(self.lens[msg.index()]);
        self.unexpected_bytes_max = self.unexpected_bytes_max.max(self.unexpected_bytes);
    }

    fn remove_unexpected(&mut self, msg: Id) {
        self.unexpected -= 1;
        self.unexpected_bytes -= u128::from(self.lens[msg.index()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_depths_that_occurred() {
        let mut tally = Tally::default();
        for depth in 0..100 {
            tally.add(depth);
        }
        let DepthSummary { searches, mean, p50, p90, p99, p999, max } = tally.summary();
        assert_eq!((searches, p50, p90, p99, p999, max), (100, 49, 89, 98, 99, 99));
        assert!((mean - 49.5).abs() < 1e-9);
        assert_eq!(Tally::default().summary().max, 0);
    }
}
