//! The columns of a row, listed once: name, unit, width, and how the value is taken from a [`Row`].
//!
//! The table, CSV and OSU's format walk over lists of these columns; a test compares them with the JSON.

use crate::result::{Latency, Means, PERCENTILES, Recovered, Row};
use crate::units::{name, show_3, show_count, show_size};

/// The width of a column of times: enough for 1000 seconds.
const US: usize = 9;

/// A value, as CSV has it.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Word(String),
    Whole(u64),
    Real(f64),
}

/// How people read a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Unchanged.
    Plain,
    /// Bytes, with a binary unit.
    Size,
    /// A large number, in groups of three digits.
    Count,
    /// Nanoseconds, shown in us with up to three decimals.
    Time,
    /// Three significant digits.
    Short,
    /// Bytes a second, shown in MB/s.
    Bandwidth,
    /// A whole number, rounded.
    Rounded,
}

/// One column of any output.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    /// In CSV, with the unit of what [`value`](Self::value) gives.
    pub(super) name: &'static str,
    /// In the JSON of a row: names from the outside in; empty if the JSON does not have it.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test compares the JSON with the columns"))]
    json: &'static str,
    /// In the table.
    heading: &'static str,
    /// In the table, at least.
    width: usize,
    unit: Unit,
    /// With fewer samples than this the table does not show it.
    samples_min: u64,
    /// `None` if the test has no such value.
    pub(super) value: fn(&Row) -> Option<Value>,
}

const fn column(
    name: &'static str,
    json: &'static str,
    (heading, width): (&'static str, usize),
    unit: Unit,
    value: fn(&Row) -> Option<Value>,
) -> Column {
    Column { name, json, heading, width, unit, samples_min: 0, value }
}

/// Time in ns of the samples' percentile number `at` in [`PERCENTILES`].
const fn latency(
    at: usize,
    name: &'static str,
    json: &'static str,
    of: fn(&Row) -> Option<Value>,
) -> Column {
    let column = column(name, json, (PERCENTILES[at].shown, US), Unit::Time, of);
    Column { samples_min: PERCENTILES[at].samples_min, ..column }
}

const fn time(
    name: &'static str,
    json: &'static str,
    heading: &'static str,
    of: fn(&Row) -> Option<Value>,
) -> Column {
    column(name, json, (heading, US), Unit::Time, of)
}

fn whole(value: impl Into<u64>) -> Option<Value> {
    Some(Value::Whole(value.into()))
}

fn latency_of(row: &Row, part: fn(&Latency) -> f64) -> Option<Value> {
    row.latency_ns.as_ref().map(part).map(Value::Real)
}

fn mean_of(row: &Row, part: fn(&Means) -> f64) -> Option<Value> {
    row.more.rank_means_ns.as_ref().map(part).map(Value::Real)
}

fn recovery_of(row: &Row, part: fn(&Recovered) -> f64) -> Option<Value> {
    row.more.recovery_ns.as_ref().map(part).map(Value::Real)
}

pub(super) const SIZE: Column =
    column("size_bytes", "size", ("size", 8), Unit::Size, |row| whole(row.size));
pub(super) const POSTED: Column =
    column("posted_depth", "posted_depth", ("posted", 7), Unit::Plain, |row| {
        whole(row.posted_depth)
    });
pub(super) const UNEXPECTED: Column =
    column("unexpected_depth", "unexpected_depth", ("unexpected", 10), Unit::Plain, |row| {
        whole(row.unexpected_depth)
    });
pub(super) const WILDCARD: Column =
    column("wildcard_percent", "wildcard_percent", ("any source %", 5), Unit::Plain, |row| {
        whole(row.wildcard_percent)
    });
pub(super) const ITERS: Column =
    column("iters", "iters", ("messages", 12), Unit::Count, |row| whole(row.iters));
const ROUND_TRIPS: Column = Column { heading: "samples", width: 11, ..ITERS };
const CALLS: Column = Column { heading: "calls", width: 11, ..ITERS };
pub(super) const SAMPLES: Column =
    column("samples", "samples", ("samples", 11), Unit::Count, |row| whole(row.samples));
pub(super) const MIN: Column =
    latency(0, "min_ns", "latency_ns.min", |row| latency_of(row, |latency| latency.min));
pub(super) const P50: Column =
    latency(1, "p50_ns", "latency_ns.p50", |row| latency_of(row, |latency| latency.p50));
pub(super) const P90: Column =
    latency(2, "p90_ns", "latency_ns.p90", |row| latency_of(row, |latency| latency.p90));
pub(super) const P99: Column =
    latency(3, "p99_ns", "latency_ns.p99", |row| latency_of(row, |latency| latency.p99));
pub(super) const P999: Column =
    latency(4, "p999_ns", "latency_ns.p999", |row| latency_of(row, |latency| latency.p999));
pub(super) const MAX: Column =
    latency(5, "max_ns", "latency_ns.max", |row| latency_of(row, |latency| latency.max));
pub(super) const MEAN: Column =
    time("mean_ns", "latency_ns.mean", "mean", |row| latency_of(row, |latency| latency.mean));
pub(super) const BANDWIDTH: Column =
    column("bandwidth_bytes_per_s", "bandwidth_bytes_per_s", ("MB/s", 9), Unit::Bandwidth, |row| {
        row.bandwidth_bytes_per_s.map(Value::Whole)
    });
pub(super) const MESSAGES_PER_S: Column =
    column("messages_per_s", "messages_per_s", ("messages/s", 12), Unit::Count, |row| {
        row.messages_per_s.map(Value::Whole)
    });
const NS_PER_MESSAGE: Column =
    column("ns_per_message", "", ("ns/message", 10), Unit::Short, |row| {
        row.messages_per_s.map(|rate| Value::Real(1e9 / rate.max(1) as f64))
    });
pub(super) const TIME_PER_MESSAGE: Column = Column { unit: Unit::Time, ..NS_PER_MESSAGE };
pub(super) const THREADS: Column =
    column("threads", "threads", ("threads", 7), Unit::Plain, |row| {
        whole(row.more.threads.unwrap_or(1))
    });
pub(super) const QUEUE: Column = column("queue", "queue", ("queue", 10), Unit::Plain, |row| {
    let drained = row.more.drain.as_ref().map(|drain| drain.queue);
    drained.or(row.more.queue).map(|queue| Value::Word(name(&queue)))
});
/// Entries in the queue that a row of `depth` is about.
pub(super) const DEPTH: Column = column("depth", "", ("depth", 7), Unit::Plain, |row| {
    whole(row.posted_depth.max(row.unexpected_depth))
});
pub(super) const ORDER: Column =
    column("order", "drain.order", ("order", 11), Unit::Plain, |row| {
        row.more.drain.as_ref().map(|drain| Value::Word(name(&drain.order)))
    });
const DRAIN_MEAN: Column =
    column("drain_mean_ns", "drain.ns_per_message.mean", ("ns/message", 10), Unit::Short, |row| {
        row.more.drain.as_ref().map(|drain| Value::Real(drain.ns_per_message.mean))
    });
const DRAIN_MIN: Column =
    column("drain_min_ns", "drain.ns_per_message.min", ("least", US), Unit::Short, |row| {
        row.more.drain.as_ref().map(|drain| Value::Real(drain.ns_per_message.min))
    });
const DRAIN_MAX: Column =
    column("drain_max_ns", "drain.ns_per_message.max", ("most", US), Unit::Short, |row| {
        row.more.drain.as_ref().map(|drain| Value::Real(drain.ns_per_message.max))
    });
const ROUNDS: Column = column("rounds", "drain.rounds", ("rounds", 8), Unit::Count, |row| {
    row.more.drain.as_ref().map(|drain| Value::Whole(drain.rounds))
});
pub(super) const PLANNED_PER_S: Column =
    column("planned_per_s", "pace.planned_per_s", ("planned/s", 11), Unit::Rounded, |row| {
        row.more.pace.map(|pace| Value::Real(pace.planned_per_s))
    });
const SENT_PER_S: Column =
    column("sent_per_s", "pace.sent_per_s", ("sent/s", 11), Unit::Rounded, |row| {
        row.more.pace.map(|pace| Value::Real(pace.sent_per_s))
    });
pub(super) const INTERRUPTED: Column =
    column("interrupted", "interrupted", ("interrupted", 11), Unit::Plain, |row| {
        Some(Value::Word(row.more.interrupted.to_string()))
    });
pub(super) const WINDOW: Column =
    column("window", "window", ("window", 6), Unit::Plain, |row| row.more.window.map(Value::Whole));
pub(super) const RANKS: Column =
    column("ranks", "ranks", ("ranks", 5), Unit::Plain, |row| row.more.ranks.and_then(whole));
pub(super) const RANK_MEAN_MIN: Column =
    time("rank_mean_min_ns", "rank_means_ns.min", "min", |row| mean_of(row, |means| means.min));
pub(super) const RANK_MEAN_AVG: Column =
    time("rank_mean_avg_ns", "rank_means_ns.avg", "avg", |row| mean_of(row, |means| means.avg));
pub(super) const RANK_MEAN_MAX: Column =
    time("rank_mean_max_ns", "rank_means_ns.max", "max", |row| mean_of(row, |means| means.max));
const NOTICED: Column = Column {
    width: 10,
    ..time("noticed_ns", "recovery_ns.noticed", "noticed", |row| {
        recovery_of(row, |part| part.noticed)
    })
};
const REVOKE: Column =
    time("revoke_ns", "recovery_ns.revoke", "revoke", |row| recovery_of(row, |part| part.revoke));
const AGREE: Column =
    time("agree_ns", "recovery_ns.agree", "agree", |row| recovery_of(row, |part| part.agree));
const SHRINK: Column =
    time("shrink_ns", "recovery_ns.shrink", "shrink", |row| recovery_of(row, |part| part.shrink));
const BARRIER: Column = time("barrier_ns", "recovery_ns.barrier", "barrier", |row| {
    recovery_of(row, |part| part.barrier)
});

// The tables.
pub(crate) const LATENCY_TABLE: &[Column] = &[SIZE, MIN, P50, P90, P99, P999, MAX, ROUND_TRIPS];
pub(crate) const DEPTH_TABLE: &[Column] =
    &[POSTED, UNEXPECTED, WILDCARD, MIN, P50, P90, P99, MAX, ROUND_TRIPS];
pub(crate) const BANDWIDTH_TABLE: &[Column] = &[SIZE, WINDOW, BANDWIDTH, MESSAGES_PER_S, ITERS];
pub(crate) const RATE_TABLE: &[Column] = &[SIZE, WINDOW, MESSAGES_PER_S, NS_PER_MESSAGE, ITERS];
pub(crate) const PLANNED_RATE_TABLE: &[Column] =
    &[SIZE, PLANNED_PER_S, SENT_PER_S, MIN, P50, P90, P99, P999, MAX, ROUND_TRIPS];
pub(crate) const DRAIN_TABLE: &[Column] =
    &[QUEUE, DEPTH, ORDER, WILDCARD, DRAIN_MEAN, DRAIN_MIN, DRAIN_MAX, ROUNDS, ITERS];
pub(crate) const COLLECTIVE_TABLE: &[Column] =
    &[SIZE, RANK_MEAN_AVG, RANK_MEAN_MIN, RANK_MEAN_MAX, P50, P99, P999, CALLS];
pub(crate) const RECOVERY_TABLE: &[Column] =
    &[RANKS, NOTICED, REVOKE, AGREE, SHRINK, BARRIER, RANK_MEAN_AVG, RANK_MEAN_MIN, RANK_MEAN_MAX];

impl Column {
    /// Heading and width in a table.
    pub(super) fn head(&self) -> (&'static str, usize) {
        (self.heading, self.width.max(self.heading.chars().count()))
    }

    /// The value for a program: exact; empty if there is none.
    pub(super) fn raw(&self, row: &Row) -> String {
        (self.value)(row).map_or(String::new(), |value| match value {
            Value::Word(word) => word,
            Value::Whole(whole) => whole.to_string(),
            Value::Real(real) => real.to_string(),
        })
    }

    /// The value for people: in the column's unit; `-` if there is none, or too few samples for it.
    pub(super) fn shown(&self, row: &Row) -> String {
        let value = (self.value)(row).filter(|_| row.samples >= self.samples_min);
        match (self.unit, value) {
            (_, None) => "-".to_owned(),
            (Unit::Size, Some(Value::Whole(bytes))) => show_size(bytes),
            (Unit::Count, Some(Value::Whole(count))) => show_count(count),
            (Unit::Time, Some(Value::Real(ns))) => us(ns),
            (Unit::Short, Some(Value::Real(real))) => show_3(real),
            (Unit::Bandwidth, Some(Value::Whole(bytes))) => show_3(bytes as f64 / 1e6),
            (Unit::Rounded, Some(Value::Real(real))) => format!("{real:.0}"),
            _ => self.raw(row),
        }
    }

    /// The value in the unit that people read; 0 if there is none.
    pub(super) fn scaled(&self, row: &Row) -> f64 {
        let value = match (self.value)(row) {
            Some(Value::Whole(whole)) => whole as f64,
            Some(Value::Real(real)) => real,
            Some(Value::Word(_)) | None => 0.0,
        };
        match self.unit {
            Unit::Time => value / 1e3,
            Unit::Bandwidth => value / 1e6,
            _ => value,
        }
    }
}

/// Nanoseconds as us with three decimals, with fewer if the column has no room for them.
pub(super) fn us(ns: f64) -> String {
    let with = |decimals| format!("{:.decimals$}", ns / 1e3);
    (1..=3).rev().map(with).find(|text| text.len() <= US).unwrap_or_else(|| with(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Drained, More, PerMessage, PlannedRate};
    use crate::spec::{Order, Queue};

    /// A row that has every value.
    fn full() -> Row {
        let (queue, order) = (Queue::Posted, Order::Random);
        let ns_per_message = PerMessage { min: 31.0, mean: 32.0, max: 33.0 };
        let more = More {
            queue: Some(queue),
            window: Some(20),
            threads: Some(21),
            pace: Some(PlannedRate {
                planned_per_s: 22.5,
                sent_per_s: 23.5,
                held: true,
                late_max_ns: 24,
            }),
            drain: Some(Drained { queue, order, seed: 25, rounds: 26, ns_per_message }),
            ranks: Some(27),
            rank_means_ns: Some(Means { min: 41.0, avg: 42.0, max: 43.0 }),
            recovery_ns: Some(Recovered {
                noticed: 51.0,
                revoke: 52.0,
                agree: 53.0,
                shrink: 54.0,
                barrier: 55.0,
            }),
            interrupted: true,
            ..More::default()
        };
        Row { more, ..Row::sample() }
    }

    #[test]
    fn every_column_has_the_value_that_json_has() {
        let row = full();
        let json = serde_json::to_value(&row).unwrap();
        let tables = [
            LATENCY_TABLE,
            DEPTH_TABLE,
            BANDWIDTH_TABLE,
            RATE_TABLE,
            PLANNED_RATE_TABLE,
            DRAIN_TABLE,
            COLLECTIVE_TABLE,
            RECOVERY_TABLE,
            &[SAMPLES, MEAN, THREADS, INTERRUPTED],
        ];
        for column in tables.concat().iter().filter(|column| !column.json.is_empty()) {
            let found = &json[column.json.split('.').next().unwrap()];
            let found = column.json.split('.').skip(1).fold(found, |object, name| &object[name]);
            let found = found.as_f64().map_or_else(
                || found.as_str().map_or(found.to_string(), str::to_owned),
                |number| number.to_string(),
            );
            assert_eq!(column.raw(&row), found, "{}", column.name);
        }
    }

    #[test]
    fn long_times_fit_into_their_columns() {
        let texts =
            [0.0, 99_999_999.4, 99_999_999.6, 393_530_437.0, 1e9, 12_345_678_900.0, 999e9].map(us);
        let expected =
            ["0.000", "99999.999", "100000.00", "393530.44", "1000000.0", "12345679", "999000000"];
        assert_eq!(texts, expected);
        assert!(texts.iter().all(|text| text.len() <= US));
    }

    #[test]
    fn a_percentile_on_too_few_samples_is_not_shown() {
        let row = |samples| Row { samples, ..Row::sample() };
        let shown = |samples| [P50, P90, P99, P999].map(|column| column.shown(&row(samples)));
        assert_eq!(shown(4), ["-", "-", "-", "-"]);
        assert_eq!(shown(999), ["0.002", "0.003", "-", "-"]);
        assert_eq!(shown(10_000), ["0.002", "0.003", "0.004", "0.005"]);
        assert_eq!([MIN, MAX].map(|column| column.shown(&row(1))), ["0.002", "0.006"]);
    }
}
