//! The figures of one row: the data behind every output.

use serde::Serialize;

use super::blocks;
use super::histogram::Histogram;
use super::samples::Latency;
use crate::distance::Distance;
use crate::spec::{Completions, Order, Queue};

/// The figures of one size and depth.
#[derive(Clone, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) size: u64,
    pub(crate) posted_depth: u64,
    pub(crate) unexpected_depth: u64,
    pub(crate) wildcard_percent: u8,
    /// Round trips (lat) or messages (bw, rate).
    pub(crate) iters: u64,
    /// How many times were taken; 0 where messages are sent in windows.
    pub(crate) samples: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) latency_ns: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bandwidth_bytes_per_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) messages_per_s: Option<u64>,
    /// Figures that only some tests have.
    #[serde(flatten)]
    pub(crate) more: More,
    /// The figure by stretches of time: a later comparison judges noise by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blocks: Option<blocks::BlockFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) histogram: Option<Histogram>,
}

/// Figures that only some tests have; absent in the others.
#[derive(Clone, Default, Serialize)]
pub(crate) struct More {
    /// The queue that is swept, at depth 0 too. A drain's queue is in `drain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<Queue>,
    /// Messages sent before an answer, or in flight at most, where there may be more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window: Option<u64>,
    /// How the operations of a window ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) completions: Option<Completions>,
    /// Threads that shared a worker on each side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) threads: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) per_thread: Vec<PerThread>,
    /// How often a message's bytes were checked, where not all are: counted on every side that
    /// receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checked: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pace: Option<PlannedRate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drain: Option<Drained>,
    /// The distance of both sides' CPUs before and after the row.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) distance_ns: Vec<Distance>,
    /// Ranks that took part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ranks: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rank_means_ns: Option<Means>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recovery_ns: Option<Recovered>,
    /// Whether the row ended early.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) interrupted: bool,
}

/// The least, the average and the most of the ranks' mean times, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Means {
    pub(crate) min: f64,
    pub(crate) avg: f64,
    pub(crate) max: f64,
}

/// The steps of a recovery in ns, each the average of the survivors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Recovered {
    /// From the death until it is known.
    pub(crate) noticed: f64,
    pub(crate) revoke: f64,
    pub(crate) agree: f64,
    pub(crate) shrink: f64,
    /// The first barrier of the new communicator.
    pub(crate) barrier: f64,
}

impl Means {
    /// The means of at least one rank.
    pub(crate) fn of(ns: &[f64]) -> Self {
        let avg = ns.iter().sum::<f64>() / ns.len().max(1) as f64;
        let (min, max) = ns.iter().fold((f64::MAX, 0f64), |(l, m), ns| (l.min(*ns), m.max(*ns)));
        Self { min: tenths(min), avg: tenths(avg), max: tenths(max) }
    }
}

/// One thread's share of a row.
#[derive(Clone, Serialize)]
pub(crate) struct PerThread {
    pub(crate) iters: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) latency_ns: Option<Latency>,
    pub(crate) messages_per_s: u64,
}

/// The drains of a queue.
#[derive(Clone, Serialize)]
pub(crate) struct Drained {
    pub(crate) queue: Queue,
    pub(crate) order: Order,
    pub(crate) seed: u64,
    pub(crate) rounds: u64,
    pub(crate) ns_per_message: PerMessage,
}

/// Over all rounds.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct PerMessage {
    pub(crate) min: f64,
    pub(crate) mean: f64,
    pub(crate) max: f64,
}

/// How well planned times were kept.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct PlannedRate {
    pub(crate) planned_per_s: f64,
    pub(crate) sent_per_s: f64,
    /// Whether at least 99 % of the planned rate was sent.
    pub(crate) held: bool,
    /// How late the latest message was sent, in ns.
    pub(crate) late_max_ns: u64,
}

/// Rounded to one decimal.
pub(crate) fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Row {
        /// A row of a latency test, for tests.
        pub(crate) fn sample() -> Self {
            Self {
                size: 8,
                posted_depth: 0,
                unexpected_depth: 0,
                wildcard_percent: 0,
                iters: 10,
                samples: 10,
                latency_ns: Some(Latency {
                    min: 1.5,
                    p50: 2.0,
                    p90: 3.0,
                    p99: 4.0,
                    p999: 5.0,
                    max: 6.0,
                    mean: 2.5,
                }),
                bandwidth_bytes_per_s: Some(7),
                messages_per_s: Some(8),
                more: More::default(),
                blocks: Some(blocks::BlockFigures {
                    latency_ns: vec![2.25, 3.0],
                    messages_per_s: vec![],
                }),
                histogram: None,
            }
        }
    }
}
