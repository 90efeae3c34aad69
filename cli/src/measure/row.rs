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
        matches!(case.traffic, Traffic::Stream | Traffic::Both | Traffic::Planned { .. })
            || matches!(case.traffic, Traffic::OneSided { times_each: false, .. });
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tagmatch_results::{Blocks, Matching, Samples};
    use tagmatch_testkit::random::Random;

    use super::*;
    use crate::measure::client::{PerThread as Share, Rounds};
    use crate::spec::{Completions, OneSided, Order};

    /// Whether a rounded figure is the nearest whole number to what it has to be.
    fn is_near(shown: u64, want: f64) -> bool {
        (shown as f64 - want).abs() <= 0.5 + want * 1e-9
    }

    /// All messages of both ways, over the time that they took.
    #[test]
    fn each_figure_of_a_row_is_what_was_measured() {
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let drain = Traffic::Drain { queue: Queue::Posted, order: Order::Reverse, seed };
            let one_sided = |times_each| Traffic::OneSided { operation: OneSided::Put, times_each };
            let traffic = random.pick(&[
                Traffic::PingPong,
                Traffic::Stream,
                Traffic::Both,
                drain,
                one_sided(true),
                one_sided(false),
            ]);
            let threads = 1 + random.below(3);
            let ways = match traffic {
                // Alone, a process counts its messages to itself once.
                Traffic::PingPong => random.pick(&[1, 2]),
                Traffic::Both => 2,
                _ => 1,
            };
            let mut took_ns = 0;
            let mut sent = 0;
            let mut each = Vec::new();
            for _ in 0..threads {
                let of_thread = random.below(100_000);
                let ns = 1000 + random.below(1 << 40);
                let samples = Samples::default();
                let took = Duration::from_nanos(ns);
                each.push(Share { iters: of_thread, took, samples });
                sent += of_thread * ways;
                took_ns = took_ns.max(ns);
            }
            let size = random.pick(&[0, 1, 8, 4096, 1 << 20]);
            let case = Case {
                size,
                window: 7,
                batch: 9,
                posted_depth: 3,
                unexpected_depth: 4,
                wildcard_percent: 5,
                threads: Some(threads),
                completions: Completions::Queue,
                traffic,
                ..Case::sample()
            };
            let measured = Measured {
                iters: sent / ways,
                ways,
                samples: Samples::default(),
                blocks: Blocks::new(),
                took: Duration::from_nanos(took_ns),
                matching: Matching::default(),
                large_messages: String::new(),
                device_there: None,
                threads: each,
                checked: Some(11),
                rounds: Some(Rounds { count: 6, least_ns: 1.24, most_ns: 99.96 }),
                pace: None,
                interrupted: seed % 2 == 0,
            };
            let row = row(&case, &measured);
            let rate = sent as f64 / (took_ns as f64 / 1e9);
            assert!(is_near(row.messages_per_s.unwrap(), rate), "{traffic:?}: {row:?}");
            let bandwidth = rate * size as f64;
            assert!(is_near(row.bandwidth_bytes_per_s.unwrap(), bandwidth), "{traffic:?}: {row:?}");
            assert_eq!((row.iters, row.size, row.threads), (sent / ways, size, Some(threads)));
            assert_eq!((row.checked, row.interrupted), (Some(11), seed % 2 == 0));
            for (shown, share) in row.per_thread.iter().zip(&measured.threads) {
                let seconds = share.took.as_nanos() as f64 / 1e9;
                let rate = (share.iters * ways) as f64 / seconds;
                assert!(
                    shown.iters == share.iters && is_near(shown.messages_per_s, rate),
                    "{row:?}"
                );
            }
            let has_window =
                matches!(traffic, Traffic::Stream | Traffic::Both) || traffic == one_sided(false);
            assert_eq!(row.window, has_window.then_some(7));
            let depths = if traffic == drain { (9, 0) } else { (3, 4) };
            assert_eq!((row.posted_depth, row.unexpected_depth), depths);
            assert_eq!(row.drain.is_some(), traffic == drain);
            if let Some(Drained { rounds, ns_per_message, .. }) = row.drain {
                let mean = took_ns as f64 / measured.iters.max(1) as f64;
                assert!((ns_per_message.mean - mean).abs() <= 0.0501 + mean * 1e-9);
                assert_eq!((rounds, ns_per_message.min, ns_per_message.max), (6, 1.2, 100.0));
            }
        }
    }
}
