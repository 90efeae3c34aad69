//! The columns of a row, listed once: name, place in the JSON of a [`Row`], heading, width, and
//! unit.
//!
//! The table, CSV and OSU's format walk over lists of these columns.

use serde_json::{Value, json};

use crate::Row;
use crate::samples::PERCENTILES;
use crate::show::{show_3, show_count, show_size};

/// The width of a column of times: enough for 1000 seconds.
const US: usize = 9;

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
    /// In CSV, with the unit of the JSON.
    pub(crate) name: &'static str,
    /// In [`fields`].
    pointer: &'static str,
    /// In the table.
    heading: &'static str,
    /// In the table, at least.
    width: usize,
    unit: Unit,
}

macro_rules! columns {
    ($($id:ident: $name:literal, $pointer:literal, $heading:literal, $width:literal, $unit:ident;)*) => {
        $(pub(crate) const $id: Column = Column {
            name: $name,
            pointer: $pointer,
            heading: $heading,
            width: $width,
            unit: Unit::$unit,
        };)*
    };
}

// In each line: name in CSV, place in JSON, heading and width in the table, unit.
columns! {
    SIZE: "size_bytes", "/size", "size", 8, Size;
    POSTED: "posted_depth", "/posted_depth", "posted", 7, Plain;
    UNEXPECTED: "unexpected_depth", "/unexpected_depth", "unexpected", 10, Plain;
    WILDCARD: "wildcard_percent", "/wildcard_percent", "any source %", 5, Plain;
    ITERS: "iters", "/iters", "messages", 12, Count;
    SAMPLES: "samples", "/samples", "samples", 11, Count;
    MIN: "min_ns", "/latency_ns/min", "min", 9, Time;
    P50: "p50_ns", "/latency_ns/p50", "p50", 9, Time;
    P90: "p90_ns", "/latency_ns/p90", "p90", 9, Time;
    P99: "p99_ns", "/latency_ns/p99", "p99", 9, Time;
    P999: "p999_ns", "/latency_ns/p999", "p99.9", 9, Time;
    MAX: "max_ns", "/latency_ns/max", "max", 9, Time;
    MEAN: "mean_ns", "/latency_ns/mean", "mean", 9, Time;
    BANDWIDTH: "bandwidth_bytes_per_s", "/bandwidth_bytes_per_s", "MB/s", 9, Bandwidth;
    MESSAGES_PER_S: "messages_per_s", "/messages_per_s", "messages/s", 12, Count;
    NS_PER_MESSAGE: "ns_per_message", "/ns_per_message", "ns/message", 10, Short;
    THREADS: "threads", "/threads", "threads", 7, Plain;
    QUEUE: "queue", "/queue", "queue", 10, Plain;
    DEPTH: "depth", "/depth", "depth", 7, Plain;
    ORDER: "order", "/drain/order", "order", 11, Plain;
    DRAIN_MEAN: "drain_mean_ns", "/drain/ns_per_message/mean", "ns/message", 10, Short;
    DRAIN_MIN: "drain_min_ns", "/drain/ns_per_message/min", "least", 9, Short;
    DRAIN_MAX: "drain_max_ns", "/drain/ns_per_message/max", "most", 9, Short;
    ROUNDS: "rounds", "/drain/rounds", "rounds", 8, Count;
    PLANNED_PER_S: "planned_per_s", "/pace/planned_per_s", "planned/s", 11, Rounded;
    SENT_PER_S: "sent_per_s", "/pace/sent_per_s", "sent/s", 11, Rounded;
    INTERRUPTED: "interrupted", "/interrupted", "interrupted", 11, Plain;
    WINDOW: "window", "/window", "window", 6, Plain;
    COMPLETIONS: "completions", "/completions", "completions", 11, Plain;
    RANKS: "ranks", "/ranks", "ranks", 5, Plain;
    RANK_MEAN_MIN: "rank_mean_min_ns", "/rank_means_ns/min", "min", 9, Time;
    RANK_MEAN_AVG: "rank_mean_avg_ns", "/rank_means_ns/avg", "avg", 9, Time;
    RANK_MEAN_MAX: "rank_mean_max_ns", "/rank_means_ns/max", "max", 9, Time;
    NOTICED: "noticed_ns", "/recovery_ns/noticed", "noticed", 10, Time;
    REVOKE: "revoke_ns", "/recovery_ns/revoke", "revoke", 9, Time;
    AGREE: "agree_ns", "/recovery_ns/agree", "agree", 9, Time;
    SHRINK: "shrink_ns", "/recovery_ns/shrink", "shrink", 9, Time;
    BARRIER: "barrier_ns", "/recovery_ns/barrier", "barrier", 9, Time;
}

const ROUND_TRIPS: Column = Column { heading: "samples", width: 11, ..ITERS };
const CALLS: Column = Column { heading: "calls", width: 11, ..ITERS };
pub(crate) const TIME_PER_MESSAGE: Column = Column { unit: Unit::Time, ..NS_PER_MESSAGE };

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
/// The table of one-sided operations in windows.
pub const ONE_SIDED_TABLE: &[Column] =
    &[SIZE, WINDOW, BANDWIDTH, MESSAGES_PER_S, NS_PER_MESSAGE, ITERS];
/// The table of collective operations.
pub const COLLECTIVE_TABLE: &[Column] =
    &[SIZE, RANK_MEAN_AVG, RANK_MEAN_MIN, RANK_MEAN_MAX, P50, P99, P999, CALLS];
/// The table of recoveries.
pub const RECOVERY_TABLE: &[Column] =
    &[RANKS, NOTICED, REVOKE, AGREE, SHRINK, BARRIER, RANK_MEAN_AVG, RANK_MEAN_MIN, RANK_MEAN_MAX];

/// The JSON of a row, with the values that only columns have.
pub(crate) fn fields(row: &Row) -> Value {
    let mut fields = json!({
        "threads": 1,
        "interrupted": false,
        "queue": row.drain.as_ref().map(|drain| &drain.queue),
        "depth": row.posted_depth.max(row.unexpected_depth),
        "ns_per_message": row.messages_per_s.map(|rate| 1e9 / rate.max(1) as f64),
    });
    if let (Value::Object(all), Ok(Value::Object(json))) = (&mut fields, serde_json::to_value(row))
    {
        all.extend(json);
    }
    fields
}

impl Column {
    /// Heading and width in a table.
    pub(crate) fn head(&self) -> (&'static str, usize) {
        (self.heading, self.width.max(self.heading.chars().count()))
    }

    fn value<'a>(&self, fields: &'a Value) -> &'a Value {
        fields.pointer(self.pointer).unwrap_or(&Value::Null)
    }

    /// The value for a program: exact; empty if there is none.
    pub(crate) fn raw(&self, fields: &Value) -> String {
        match self.value(fields) {
            Value::Null => String::new(),
            Value::String(word) => word.clone(),
            // 2.0 is 2.
            Value::Number(real) if real.is_f64() => real.as_f64().unwrap_or(0.0).to_string(),
            other => other.to_string(),
        }
    }

    /// The value for people: in the column's unit; `-` if there is none, or too few samples for it.
    pub(crate) fn shown(&self, fields: &Value) -> String {
        let value = self.value(fields);
        let whole = value.as_u64().unwrap_or(0);
        let real = value.as_f64().unwrap_or(0.0);
        match self.unit {
            _ if value.is_null() || fields["samples"].as_u64() < self.samples_min() => "-".into(),
            Unit::Size => show_size(whole),
            Unit::Count => show_count(whole),
            Unit::Time => us(real),
            Unit::Short => show_3(real),
            Unit::Bandwidth => show_3(real / 1e6),
            Unit::Rounded => format!("{real:.0}"),
            Unit::Plain => self.raw(fields),
        }
    }

    /// Samples that people are shown a percentile on, at least.
    fn samples_min(&self) -> Option<u64> {
        let percentile = self.pointer.strip_prefix("/latency_ns/")?;
        Some(PERCENTILES.iter().find(|known| known.json == percentile)?.samples_min)
    }

    /// The value in the unit that people read; 0 if there is none.
    pub(crate) fn scaled(&self, fields: &Value) -> f64 {
        let value = self.value(fields).as_f64().unwrap_or(0.0);
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
    use crate::{Drained, Means, PlannedRate, Recovered};

    #[test]
    fn every_column_has_its_place_in_json() {
        let row = Row {
            window: Some(20),
            completions: Some("queue".into()),
            pace: Some(PlannedRate::default()),
            drain: Some(Drained::default()),
            ranks: Some(27),
            rank_means_ns: Some(Means::default()),
            recovery_ns: Some(Recovered::default()),
            ..Row::sample()
        };
        let fields = fields(&row);
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
        for column in tables.concat() {
            assert!(!column.value(&fields).is_null(), "{}", column.name);
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
        let row = |samples| fields(&Row { samples, ..Row::sample() });
        let shown = |samples| [P50, P90, P99, P999].map(|column| column.shown(&row(samples)));
        assert_eq!(shown(4), ["-", "-", "-", "-"]);
        assert_eq!(shown(999), ["0.002", "0.003", "-", "-"]);
        assert_eq!(shown(10_000), ["0.002", "0.003", "0.004", "0.005"]);
        assert_eq!([MIN, MAX].map(|column| column.shown(&row(1))), ["0.002", "0.006"]);
    }
}
