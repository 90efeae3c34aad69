//! From what was measured to the figures of a row.

use serde::Serialize;

use super::client::Measured;
use super::pace::Pace;
use crate::control::message::{Leg, Order, Queue, Traffic};
use crate::json::Row;
use crate::samples::Latency;

/// What a row has in some tests only: absent in the others.
#[derive(Clone, Default, Serialize)]
pub(crate) struct More {
    /// Which queue is swept, at depth 0 as well; a drain's is within it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<Queue>,
    /// Messages sent before an answer, or under way at most; where there may be more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window: Option<u64>,
    /// Threads that shared a worker on each side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) threads: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) per_thread: Vec<PerThread>,
    /// Messages whose bytes were checked, where those are not all: `iters` counts round trips or
    /// messages, this one looks, each on every side that receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checked: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pace: Option<Pace>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drain: Option<Drained>,
    /// Ranks that took part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ranks: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rank_means_ns: Option<Means>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recovery_ns: Option<Recovered>,
    /// Whether it ended before its time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) interrupted: bool,
}

/// Least, average and most of what the ranks took in the mean, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Means {
    pub(crate) min: f64,
    pub(crate) avg: f64,
    pub(crate) max: f64,
}

/// Parts of a recovery from a death in ns, each the average of those who live.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Recovered {
    /// Before it: until the death was known.
    pub(crate) noticed: f64,
    pub(crate) revoke: f64,
    pub(crate) agree: f64,
    pub(crate) shrink: f64,
    /// The first of the new communicator.
    pub(crate) barrier: f64,
}

impl Means {
    /// Of at least one rank.
    pub(super) fn of(ns: &[f64]) -> Self {
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

/// How a queue was drained.
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

#[expect(clippy::cast_possible_truncation, reason = "rates are far below 2^64")]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

pub(super) fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

pub(super) fn row(leg: &Leg, measured: &Measured) -> Row {
    let latency_ns = measured.samples.halved();
    let seconds = measured.took.as_secs_f64();
    let rate = |iters: u64, seconds: f64| {
        (seconds > 0.0).then(|| measured.ways as f64 * iters as f64 / seconds)
    };
    let messages_per_s = match &measured.pace {
        Some(pace) => Some(pace.sent_per_s),
        None => rate(measured.iters, seconds),
    };
    // A drain's queue is its depth.
    let (posted, unexpected) = match leg.traffic {
        Traffic::Drain { queue: Queue::Posted, .. } => (leg.batch, 0),
        Traffic::Drain { queue: Queue::Unexpected, .. } => (0, leg.batch),
        _ => (leg.posted_depth, leg.unexpected_depth),
    };
    let per_thread = measured.threads.iter().map(|thread| PerThread {
        iters: thread.iters,
        latency_ns: thread.samples.halved(),
        messages_per_s: rate(thread.iters, thread.took.as_secs_f64()).map_or(0, whole),
    });
    Row {
        size: leg.size,
        posted_depth: posted,
        unexpected_depth: unexpected,
        wildcard_percent: leg.wildcard_percent,
        iters: measured.iters,
        samples: measured.samples.count(),
        latency_ns,
        bandwidth_bytes_per_s: messages_per_s.map(|rate| whole(rate * leg.size as f64)),
        messages_per_s: messages_per_s.map(whole),
        more: More {
            queue: None,
            window: has_window(leg.traffic).then_some(leg.window),
            threads: leg.threads,
            per_thread: per_thread.collect(),
            checked: measured.checked,
            pace: measured.pace,
            drain: drained(leg, measured),
            interrupted: measured.interrupted,
            ..More::default()
        },
        blocks: measured.blocks.figures(),
        histogram: None,
    }
}

fn has_window(traffic: Traffic) -> bool {
    matches!(traffic, Traffic::Stream | Traffic::Both | Traffic::Paced { .. })
}

fn drained(leg: &Leg, measured: &Measured) -> Option<Drained> {
    let (Traffic::Drain { queue, order, seed }, Some(rounds)) = (leg.traffic, measured.rounds)
    else {
        return None;
    };
    let mean = measured.took.as_secs_f64() * 1e9 / measured.iters.max(1) as f64;
    let (min, max) = (tenths(rounds.least_ns), tenths(rounds.most_ns));
    let ns_per_message = PerMessage { min, mean: tenths(mean), max };
    Some(Drained { queue, order, seed, rounds: rounds.count, ns_per_message })
}
