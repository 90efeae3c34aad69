//! The columns of a row, listed once: name, unit, width, and how the value is taken from a [`Row`].
//!
//! The table, CSV and OSU's format walk over lists of these columns; a test compares them with the
//! JSON.

use crate::show::{show_3, show_count, show_size};
use crate::{Drained, Latency, Means, PERCENTILES, Recovered, Row};
use Value::{Real, Whole, Word};

/// The width of a column of times: enough for 1000 seconds.
const US: usize = 9;

/// A value, as CSV has it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
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
pub struct Column {
    /// In CSV, with the unit of what [`value`](Self::value) gives.
    pub(crate) name: &'static str,
    /// In the JSON of a row: names from the outside in; empty if the JSON does not have it.
    json: &'static str,
    /// In the table.
    heading: &'static str,
    /// In the table, at least.
    width: usize,
    unit: Unit,
    /// `None` if the test has no such value.
    pub(crate) value: fn(&Row) -> Option<Value>,
}

macro_rules! columns {
    ($($id:ident: $name:literal, $json:literal, $heading:literal, $width:literal, $unit:ident, $value:expr;)*) => {
        $(pub(crate) const $id: Column = Column {
            name: $name,
            json: $json,
            heading: $heading,
            width: $width,
            unit: Unit::$unit,
            value: $value,
        };)*
    };
}

// In each line: name in CSV, path in JSON, heading and width in the table, unit, value.
columns! {
    SIZE: "size_bytes", "size", "size", 8, Size, |row| whole(row.size);
    POSTED: "posted_depth", "posted_depth", "posted", 7, Plain, |row| whole(row.posted_depth);
    UNEXPECTED: "unexpected_depth", "unexpected_depth", "unexpected", 10, Plain,
        |row| whole(row.unexpected_depth);
    WILDCARD: "wildcard_percent", "wildcard_percent", "any source %", 5, Plain,
        |row| whole(row.wildcard_percent);
    ITERS: "iters", "iters", "messages", 12, Count, |row| whole(row.iters);
    SAMPLES: "samples", "samples", "samples", 11, Count, |row| whole(row.samples);
    MIN: "min_ns", "latency_ns.min", "min", 9, Time, |row| latency(row, |l| l.min);
    P50: "p50_ns", "latency_ns.p50", "p50", 9, Time, |row| latency(row, |l| l.p50);
    P90: "p90_ns", "latency_ns.p90", "p90", 9, Time, |row| latency(row, |l| l.p90);
    P99: "p99_ns", "latency_ns.p99", "p99", 9, Time, |row| latency(row, |l| l.p99);
    P999: "p999_ns", "latency_ns.p999", "p99.9", 9, Time, |row| latency(row, |l| l.p999);
    MAX: "max_ns", "latency_ns.max", "max", 9, Time, |row| latency(row, |l| l.max);
    MEAN: "mean_ns", "latency_ns.mean", "mean", 9, Time, |row| latency(row, |l| l.mean);
    BANDWIDTH: "bandwidth_bytes_per_s", "bandwidth_bytes_per_s", "MB/s", 9, Bandwidth,
        |row| row.bandwidth_bytes_per_s.map(Whole);
    MESSAGES_PER_S: "messages_per_s", "messages_per_s", "messages/s", 12, Count,
        |row| row.messages_per_s.map(Whole);
    NS_PER_MESSAGE: "ns_per_message", "", "ns/message", 10, Short,
        |row| row.messages_per_s.map(|rate| Real(1e9 / rate.max(1) as f64));
    THREADS: "threads", "threads", "threads", 7, Plain, |row| whole(row.more.threads.unwrap_or(1));
    QUEUE: "queue", "queue", "queue", 10, Plain, |row| queue(row);
    DEPTH: "depth", "", "depth", 7, Plain, |row| whole(row.posted_depth.max(row.unexpected_depth));
    ORDER: "order", "drain.order", "order", 11, Plain, |row| drain(row, |d| Word(d.order.clone()));
    DRAIN_MEAN: "drain_mean_ns", "drain.ns_per_message.mean", "ns/message", 10, Short,
        |row| drain(row, |d| Real(d.ns_per_message.mean));
    DRAIN_MIN: "drain_min_ns", "drain.ns_per_message.min", "least", 9, Short,
        |row| drain(row, |d| Real(d.ns_per_message.min));
    DRAIN_MAX: "drain_max_ns", "drain.ns_per_message.max", "most", 9, Short,
        |row| drain(row, |d| Real(d.ns_per_message.max));
    ROUNDS: "rounds", "drain.rounds", "rounds", 8, Count, |row| drain(row, |d| Whole(d.rounds));
    PLANNED_PER_S: "planned_per_s", "pace.planned_per_s", "planned/s", 11, Rounded,
        |row| row.more.pace.map(|p| Real(p.planned_per_s));
    SENT_PER_S: "sent_per_s", "pace.sent_per_s", "sent/s", 11, Rounded,
        |row| row.more.pace.map(|p| Real(p.sent_per_s));
    INTERRUPTED: "interrupted", "interrupted", "interrupted", 11, Plain,
        |row| Some(Word(row.more.interrupted.to_string()));
    WINDOW: "window", "window", "window", 6, Plain, |row| row.more.window.map(Whole);
    COMPLETIONS: "completions", "completions", "completions", 11, Plain,
        |row| row.more.completions.clone().map(Word);
    RANKS: "ranks", "ranks", "ranks", 5, Plain, |row| row.more.ranks.and_then(whole);
    RANK_MEAN_MIN: "rank_mean_min_ns", "rank_means_ns.min", "min", 9, Time,
        |row| mean(row, |m| m.min);
    RANK_MEAN_AVG: "rank_mean_avg_ns", "rank_means_ns.avg", "avg", 9, Time,
        |row| mean(row, |m| m.avg);
    RANK_MEAN_MAX: "rank_mean_max_ns", "rank_means_ns.max", "max", 9, Time,
        |row| mean(row, |m| m.max);
    NOTICED: "noticed_ns", "recovery_ns.noticed", "noticed", 10, Time,
        |row| recovery(row, |p| p.noticed);
    REVOKE: "revoke_ns", "recovery_ns.revoke", "revoke", 9, Time, |row| recovery(row, |p| p.revoke);
    AGREE: "agree_ns", "recovery_ns.agree", "agree", 9, Time, |row| recovery(row, |p| p.agree);
    SHRINK: "shrink_ns", "recovery_ns.shrink", "shrink", 9, Time, |row| recovery(row, |p| p.shrink);
    BARRIER: "barrier_ns", "recovery_ns.barrier", "barrier", 9, Time,
        |row| recovery(row, |p| p.barrier);
}

const ROUND_TRIPS: Column = Column { heading: "samples", width: 11, ..ITERS };
const CALLS: Column = Column { heading: "calls", width: 11, ..ITERS };
pub(crate) const TIME_PER_MESSAGE: Column = Column { unit: Unit::Time, ..NS_PER_MESSAGE };

fn whole(value: impl Into<u64>) -> Option<Value> {
    Some(Whole(value.into()))
}

fn latency(row: &Row, part: fn(&Latency) -> f64) -> Option<Value> {
    row.latency_ns.as_ref().map(part).map(Real)
}

fn mean(row: &Row, part: fn(&Means) -> f64) -> Option<Value> {
    row.more.rank_means_ns.as_ref().map(part).map(Real)
}

fn recovery(row: &Row, part: fn(&Recovered) -> f64) -> Option<Value> {
    row.more.recovery_ns.as_ref().map(part).map(Real)
}

fn drain(row: &Row, part: fn(&Drained) -> Value) -> Option<Value> {
    row.more.drain.as_ref().map(part)
}

fn queue(row: &Row) -> Option<Value> {
    let drained = row.more.drain.as_ref().map(|drain| &drain.queue);
    drained.or(row.more.queue.as_ref()).cloned().map(Word)
}

/// The table of latencies by size.
pub const LATENCY_TABLE: &[Column] = &[SIZE, MIN, P50, P90, P99, P999, MAX, ROUND_TRIPS];
/// The table of latencies by depth.
pub const DEPTH_TABLE: &[Column] =
    &[POSTED, UNEXPECTED, WILDCARD, MIN, P50, P90, P99, MAX, ROUND_TRIPS];
/// The table of bandwidths.
pub const BANDWIDTH_TABLE: &[Column] = &[SIZE, WINDOW, BANDWIDTH, MESSAGES_PER_S, ITERS];
/// The table of message rates.
pub const RATE_TABLE: &[Column] = &[SIZE, WINDOW, MESSAGES_PER_S, NS_PER_MESSAGE, ITERS];
/// The table of latencies at a planned rate.
pub const PLANNED_RATE_TABLE: &[Column] =
    &[SIZE, PLANNED_PER_S, SENT_PER_S, MIN, P50, P90, P99, P999, MAX, ROUND_TRIPS];
/// The table of drains.
pub const DRAIN_TABLE: &[Column] =
    &[QUEUE, DEPTH, ORDER, WILDCARD, DRAIN_MEAN, DRAIN_MIN, DRAIN_MAX, ROUNDS, ITERS];
/// The table of collective operations.
pub const COLLECTIVE_TABLE: &[Column] =
    &[SIZE, RANK_MEAN_AVG, RANK_MEAN_MIN, RANK_MEAN_MAX, P50, P99, P999, CALLS];
/// The table of recoveries.
pub const RECOVERY_TABLE: &[Column] =
    &[RANKS, NOTICED, REVOKE, AGREE, SHRINK, BARRIER, RANK_MEAN_AVG, RANK_MEAN_MIN, RANK_MEAN_MAX];

impl Column {
    /// Heading and width in a table.
    pub(crate) fn head(&self) -> (&'static str, usize) {
        (self.heading, self.width.max(self.heading.chars().count()))
    }

    /// The value for a program: exact; empty if there is none.
    pub(crate) fn raw(&self, row: &Row) -> String {
        (self.value)(row).map_or(String::new(), |value| match value {
            Word(word) => word,
            Whole(whole) => whole.to_string(),
            Real(real) => real.to_string(),
        })
    }

    /// The value for people: in the column's unit; `-` if there is none, or too few samples for it.
    pub(crate) fn shown(&self, row: &Row) -> String {
        let value = (self.value)(row).filter(|_| row.samples >= self.samples_min());
        match (self.unit, value) {
            (_, None) => "-".to_owned(),
            (Unit::Size, Some(Whole(bytes))) => show_size(bytes),
            (Unit::Count, Some(Whole(count))) => show_count(count),
            (Unit::Time, Some(Real(ns))) => us(ns),
            (Unit::Short, Some(Real(real))) => show_3(real),
            (Unit::Bandwidth, Some(Whole(bytes))) => show_3(bytes as f64 / 1e6),
            (Unit::Rounded, Some(Real(real))) => format!("{real:.0}"),
            _ => self.raw(row),
        }
    }

    /// Samples that people are shown a percentile on, at least; 0 for other columns.
    fn samples_min(&self) -> u64 {
        let percentile = self.json.strip_prefix("latency_ns.");
        let found = PERCENTILES.iter().find(|known| Some(known.json) == percentile);
        found.map_or(0, |known| known.samples_min)
    }

    /// The value in the unit that people read; 0 if there is none.
    pub(crate) fn scaled(&self, row: &Row) -> f64 {
        let value = match (self.value)(row) {
            Some(Whole(whole)) => whole as f64,
            Some(Real(real)) => real,
            Some(Word(_)) | None => 0.0,
        };
        match self.unit {
            Unit::Time => value / 1e3,
            Unit::Bandwidth => value / 1e6,
            _ => value,
        }
    }
}

/// Nanoseconds as us with three decimals, with fewer if the column has no room for them.
pub(crate) fn us(ns: f64) -> String {
    let with = |decimals| format!("{:.decimals$}", ns / 1e3);
    (1..=3).rev().map(with).find(|text| text.len() <= US).unwrap_or_else(|| with(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Drained, More, PerMessage, PlannedRate};

    /// A row that has every value.
    fn full() -> Row {
        let (queue, order) = ("posted".to_owned(), "random".to_owned());
        let ns_per_message = PerMessage { min: 31.0, mean: 32.0, max: 33.0 };
        let more = More {
            queue: Some(queue.clone()),
            window: Some(20),
            completions: Some("queue".into()),
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
            &[SAMPLES, MEAN, THREADS, INTERRUPTED, COMPLETIONS],
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
