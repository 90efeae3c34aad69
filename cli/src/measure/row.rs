//! The figures of a row, from a measurement.

use tagmatch_results::show::tenths;
use tagmatch_results::{Drained, PerMessage, PerThread, Row};

use super::client::Measured;
use crate::spec::{Case, Queue, Traffic};
use crate::units::name;

#[expect(clippy::cast_possible_truncation, reason = "rates are far below 2^64")]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

pub(super) fn row(case: &Case, measured: &Measured) -> Row {
    let latency_ns = measured.samples.halved();
    let seconds = measured.took.as_secs_f64();
    let rate = |iters: u64, seconds: f64| {
        (seconds > 0.0).then(|| measured.ways as f64 * iters as f64 / seconds)
    };
    let planned = measured.pace.map(|pace| pace.sent_per_s);
    let messages_per_s = planned.or_else(|| rate(measured.iters, seconds));
    // The depth of a drain is the length of its round.
    let (posted, unexpected) = match case.traffic {
        Traffic::Drain { queue: Queue::Posted, .. } => (case.batch, 0),
        Traffic::Drain { queue: Queue::Unexpected, .. } => (0, case.batch),
        _ => (case.posted_depth, case.unexpected_depth),
    };
    let per_thread = measured.threads.iter().map(|thread| PerThread {
        iters: thread.iters,
        latency_ns: thread.samples.halved(),
        messages_per_s: rate(thread.iters, thread.took.as_secs_f64()).map_or(0, whole),
    });
    let has_window =
        matches!(case.traffic, Traffic::Stream | Traffic::Both | Traffic::Planned { .. });
    Row {
        size: case.size,
        posted_depth: posted,
        unexpected_depth: unexpected,
        wildcard_percent: case.wildcard_percent,
        iters: measured.iters,
        samples: measured.samples.count(),
        latency_ns,
        bandwidth_bytes_per_s: messages_per_s.map(|rate| whole(rate * case.size as f64)),
        messages_per_s: messages_per_s.map(whole),
        window: has_window.then_some(case.window),
        completions: case.completions().map(|way| name(&way)),
        threads: case.threads,
        per_thread: per_thread.collect(),
        checked: measured.checked,
        pace: measured.pace,
        drain: drained(case, measured),
        interrupted: measured.interrupted,
        blocks: measured.blocks.figures(),
        ..Row::default()
    }
}

fn drained(case: &Case, measured: &Measured) -> Option<Drained> {
    let (Traffic::Drain { queue, order, seed }, Some(rounds)) = (case.traffic, measured.rounds)
    else {
        return None;
    };
    let mean = measured.took.as_secs_f64() * 1e9 / measured.iters.max(1) as f64;
    let min = tenths(rounds.least_ns);
    let max = tenths(rounds.most_ns);
    let ns_per_message = PerMessage { min, mean: tenths(mean), max };
    let queue = name(&queue);
    let order = name(&order);
    Some(Drained { queue, order, seed, rounds: rounds.count, ns_per_message })
}
