//! Numbers from a run: how deep the lists were at each search, and what the searches came to.

use serde::Serialize;

use super::engine::{Event, Script, Step};
use super::timeline::Timeline;
use crate::trace::Index;

/// Counts by depth; exact, since a depth is a small number.
#[derive(Default)]
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

    fn summary(&self) -> Depth {
        let by_depth = || (0u64..).zip(self.searches_by_depth.iter().copied());
        let searches: u64 = by_depth().map(|(_, count)| count).sum();
        let total: u64 = by_depth().map(|(depth, count)| depth * count).sum();
        // The least depth that at least `share` of all searches do not exceed.
        let percentile = |per_mille: u64| {
            let wanted = (searches * per_mille).div_ceil(1000);
            let mut seen = 0;
            by_depth()
                .find(|(_, count)| {
                    seen += count;
                    seen >= wanted
                })
                .map_or(0, |(depth, _)| depth)
        };
        Depth {
            searches,
            mean: super::ratio(total, searches),
            p50: percentile(500),
            p90: percentile(900),
            p99: percentile(990),
            p999: percentile(999),
            max: percentile(1000),
        }
    }
}

/// How deep a list was at the searches through it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Depth {
    pub(super) searches: u64,
    pub(super) mean: f64,
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) p999: u64,
    pub(super) max: u64,
}

/// What the searches of a run came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Outcome {
    /// Messages that were received: by a posted receive, or from the unexpected list.
    pub(super) posted: u64,
    pub(super) unexpected: u64,
    pub(super) truncated: u64,
    pub(super) cancelled: u64,
    pub(super) late: u64,
}

/// Follows a run and counts.
pub(super) struct Count<'a> {
    /// The length behind every id.
    lens: &'a [u64],
    posted: Tally,
    unexpected: Tally,
    /// Receives posted and messages unexpected now.
    pub(super) depths: (usize, usize),
    unexpected_bytes: u128,
    unexpected_bytes_max: u128,
    /// Probes and matched probes, and those that found nothing.
    pub(super) probes: (u64, u64),
    pub(super) outcome: Outcome,
    pub(super) timeline: Timeline,
}

impl<'a> Count<'a> {
    pub(super) fn new(script: &'a Script) -> Self {
        Self {
            lens: &script.lens,
            posted: Tally::default(),
            unexpected: Tally::default(),
            depths: (0, 0),
            unexpected_bytes: 0,
            unexpected_bytes_max: 0,
            probes: (0, 0),
            outcome: Outcome::default(),
            timeline: Timeline::new(script.steps.len()),
        }
    }

    /// Depths of the posted and of the unexpected list at their searches.
    pub(super) fn summaries(&self) -> (Depth, Depth) {
        (self.posted.summary(), self.unexpected.summary())
    }

    /// The most payload that waited in the unexpected list.
    pub(super) fn unexpected_bytes_max(&self) -> u64 {
        u64::try_from(self.unexpected_bytes_max).unwrap_or(u64::MAX)
    }

    /// Takes in the next step and what it came to.
    pub(super) fn see(&mut self, step: &Step, event: Option<Event>) {
        let (posted, unexpected) = self.depths;
        match step {
            Step::Msg { .. } => self.posted.add(posted),
            Step::Recv { .. } => self.unexpected.add(unexpected),
            Step::Probe { .. } | Step::Mprobe { .. } => {
                self.unexpected.add(unexpected);
                self.probes.0 += 1;
            }
            Step::Cancel { .. } | Step::Mrecv { .. } | Step::Mcancel { .. } => {}
        }
        match (step, event) {
            (Step::Msg { id, .. }, None) => self.arrive(*id),
            (_, None) => self.depths.0 += 1,
            (_, Some(event)) => self.happen(event),
        }
        self.timeline.see(self.depths.0, self.depths.1);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Match { msg, truncated, unexpected: waited, .. } => {
                if waited {
                    self.outcome.unexpected += 1;
                    self.leave(msg);
                } else {
                    self.outcome.posted += 1;
                    self.depths.0 -= 1;
                }
                self.outcome.truncated += u64::from(truncated);
            }
            Event::Mprobe { msg: Some(msg), .. } => self.leave(msg),
            Event::Mrecv { msg: Some(_), truncated, .. } => {
                self.outcome.unexpected += 1;
                self.outcome.truncated += u64::from(truncated);
            }
            Event::Cancelled { .. } => {
                self.outcome.cancelled += 1;
                self.depths.0 -= 1;
            }
            Event::Late { .. } => self.outcome.late += 1,
            Event::Probe { msg: None } | Event::Mprobe { msg: None, .. } => self.probes.1 += 1,
            Event::Probe { .. } | Event::Mrecv { .. } | Event::Mcancelled { .. } => {}
        }
    }

    /// A message waits in the unexpected list.
    fn arrive(&mut self, msg: Index) {
        self.depths.1 += 1;
        self.unexpected_bytes += u128::from(self.lens[msg.at()]);
        self.unexpected_bytes_max = self.unexpected_bytes_max.max(self.unexpected_bytes);
    }

    fn leave(&mut self, msg: Index) {
        self.depths.1 -= 1;
        self.unexpected_bytes -= u128::from(self.lens[msg.at()]);
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
        let Depth { searches, mean, p50, p90, p99, p999, max } = tally.summary();
        assert_eq!((searches, p50, p90, p99, p999, max), (100, 49, 89, 98, 99, 99));
        assert!((mean - 49.5).abs() < 1e-9);
        assert_eq!(Tally::default().summary().max, 0);
    }
}
