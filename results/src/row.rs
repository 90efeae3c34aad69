//! The figures of one row: the data behind every output.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::default_window;
use crate::show::tenths;
use crate::{BlockFigures, Distance, Histogram, Latency};

/// The figures of one size and depth; those that a test doesn't have are absent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// Bytes of a message.
    pub size: u64,
    /// Receives that stayed posted; of a drain: at its beginning.
    #[serde(default)]
    pub posted_depth: u64,
    /// Messages that stayed unexpected; of a drain: at its beginning.
    #[serde(default)]
    pub unexpected_depth: u64,
    /// Share of the posted receives that take any source.
    #[serde(default)]
    pub wildcard_percent: u8,
    /// Round trips (lat) or messages (bw, rate).
    #[serde(default)]
    pub iters: u64,
    /// How many times were taken; 0 where messages are sent in windows.
    #[serde(default)]
    pub samples: u64,
    /// Half of each round trip; one way; or a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Latency>,
    /// Of payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Of all threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_per_s: Option<u64>,
    /// The queue that is swept, at depth 0 too. A drain's queue is in `drain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Messages sent before an answer, or in flight at most, where there may be more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// How the operations of a window ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completions: Option<String>,
    /// Threads that shared a worker on each side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u64>,
    /// Each thread's share.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub per_thread: Vec<PerThread>,
    /// How often a message's bytes were checked, where not all are: counted on every side that
    /// receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked: Option<u64>,
    /// The rate, where it was planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<PlannedRate>,
    /// The drains, where a queue was drained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drained>,
    /// The distance of both sides' CPUs before and after the row.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub distance_ns: Vec<Distance>,
    /// Ranks that took part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// Of the ranks' mean times of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank_means_ns: Option<Means>,
    /// The steps of a recovery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_ns: Option<Recovered>,
    /// Whether the row ended early.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub interrupted: bool,
    /// The figure by stretches of time: a later comparison judges noise by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<BlockFigures>,
    /// The spread of the latencies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histogram: Option<Histogram>,
    /// Parameters of a later version.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

impl Row {
    /// The parameters alone, which tell results apart. Those at their defaults are absent.
    pub(crate) fn parameters(&self) -> Self {
        Self {
            posted_depth: self.posted_depth,
            unexpected_depth: self.unexpected_depth,
            wildcard_percent: self.wildcard_percent,
            window: self.window.filter(|window| *window != default_window(self.size)),
            completions: self.completions.clone().filter(|way| way != "requests"),
            threads: self.threads.filter(|count| *count != 1),
            ranks: self.ranks,
            others: self.others.clone(),
            ..Self::default()
        }
    }
}

/// The least, the average and the most of the ranks' mean times, in ns.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Means {
    /// The least.
    pub min: f64,
    /// The average.
    pub avg: f64,
    /// The most.
    pub max: f64,
}

/// The steps of a recovery in ns, each the average of the survivors.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Recovered {
    /// From the death until it is known.
    pub noticed: f64,
    /// Revoking the communicator.
    pub revoke: f64,
    /// Agreeing on the dead.
    pub agree: f64,
    /// Making the new communicator.
    pub shrink: f64,
    /// The first barrier of the new communicator.
    pub barrier: f64,
}

impl Means {
    /// The means of at least one rank.
    pub fn of(ns: &[f64]) -> Self {
        let avg = ns.iter().sum::<f64>() / ns.len().max(1) as f64;
        let (min, max) = ns.iter().fold((f64::MAX, 0f64), |(l, m), ns| (l.min(*ns), m.max(*ns)));
        Self { min: tenths(min), avg: tenths(avg), max: tenths(max) }
    }
}

/// One thread's share of a row.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PerThread {
    /// Its round trips or messages.
    pub iters: u64,
    /// Of its own round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Latency>,
    /// Its rate.
    pub messages_per_s: u64,
}

/// The drains of a queue.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Drained {
    /// The queue.
    pub queue: String,
    /// The order in which its entries are matched.
    pub order: String,
    /// Of the shuffles.
    pub seed: u64,
    /// How many times it was filled and drained.
    pub rounds: u64,
    /// In ns.
    pub ns_per_message: PerMessage,
}

impl Drained {
    /// The parameters alone.
    pub(crate) fn parameters(&self) -> Self {
        Self { queue: self.queue.clone(), order: self.order.clone(), ..Self::default() }
    }
}

/// Over all rounds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PerMessage {
    /// Of the fastest round.
    pub min: f64,
    /// Of all rounds.
    pub mean: f64,
    /// Of the slowest round.
    pub max: f64,
}

/// How well planned times were kept.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PlannedRate {
    /// Messages a second, as planned.
    pub planned_per_s: f64,
    /// Messages a second, as they left.
    pub sent_per_s: f64,
    /// Whether at least 99 % of the planned rate was sent.
    pub held: bool,
    /// How late the latest message was sent, in ns.
    pub late_max_ns: u64,
}

impl PlannedRate {
    /// The parameter alone.
    pub(crate) fn parameters(self) -> Self {
        Self { planned_per_s: self.planned_per_s, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Row {
        /// A row of a latency test, for tests.
        pub fn sample() -> Self {
            Self {
                size: 8,
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
                blocks: Some(BlockFigures { latency_ns: vec![2.25, 3.0], messages_per_s: vec![] }),
                ..Self::default()
            }
        }
    }
}
