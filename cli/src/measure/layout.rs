//! The tables: which columns a test has, and what stands in them.

use super::client::Measured;
use super::plan::{Plan, Test};
use crate::result::{Latency, Row};
use crate::spec::Leg;
use crate::table::{Column, Table, US, us};
use crate::units::{name, show_3, show_count, show_size};

/// Which columns a table has.
#[derive(Clone, Copy)]
enum Kind {
    Latency,
    Depth,
    Bandwidth,
    Rate,
    Paced,
    Drain,
}

/// A table's columns.
pub(super) struct Layout {
    kind: Kind,
    /// Whether the number of threads stands first.
    threads: bool,
}

impl Layout {
    pub(super) fn of(plan: &Plan) -> Self {
        let kind = match plan.test {
            Test::Lat if plan.interval_ps.is_some() => Kind::Paced,
            Test::Lat if plan.is_by_depth() => Kind::Depth,
            Test::Lat => Kind::Latency,
            Test::Depth => Kind::Depth,
            Test::Bw | Test::Bibw => Kind::Bandwidth,
            Test::Rate => Kind::Rate,
            Test::Drain => Kind::Drain,
        };
        Self { kind, threads: !plan.threads.is_empty() }
    }

    /// The heading, newline-terminated.
    pub(super) fn heading(&self) -> String {
        self.with_threads("threads") + &self.kind.table().heading()
    }

    /// A row and what is to be said below it, newline-terminated.
    pub(super) fn row(&self, leg: &Leg, row: &Row, measured: &Measured) -> String {
        let threads = self.with_threads(&leg.lanes().to_string());
        let cells = self.kind.table().row(&self.kind.cells(leg, row, measured));
        threads + &cells + &remarks(row)
    }

    fn with_threads(&self, cell: &str) -> String {
        if self.threads { format!("{cell:>7}  ") } else { String::new() }
    }
}

/// What of a row has no column.
fn remarks(row: &Row) -> String {
    let mut out = String::new();
    for (number, thread) in row.more.per_thread.iter().enumerate() {
        let p50 = thread.latency_ns.map(|latency| format!("p50 {} us, ", us(Some(latency.p50))));
        out += &format!(
            "# thread {number:<4} {}{} messages/s\n",
            p50.unwrap_or_default(),
            show_count(thread.messages_per_s)
        );
    }
    if let Some(pace) = row.more.pace.filter(|pace| !pace.held) {
        out += &format!(
            "# not held    {:.0} messages/s were planned, {:.0} sent; the latest left {} us late\n",
            pace.planned_per_s,
            pace.sent_per_s,
            us(Some(pace.late_max_ns as f64)),
        );
    }
    out
}

impl Kind {
    fn table(self) -> Table {
        Table(match self {
            Self::Latency => &[
                Column("size", 8),
                Column("min", US),
                Column("p50", US),
                Column("p90", US),
                Column("p99", US),
                Column("p99.9", US),
                Column("max", US),
                Column("samples", 11),
            ],
            Self::Depth => &[
                Column("posted", 7),
                Column("unexpected", 10),
                Column("any source %", 5),
                Column("min", US),
                Column("p50", US),
                Column("p90", US),
                Column("p99", US),
                Column("max", US),
                Column("samples", 11),
            ],
            Self::Bandwidth => &[
                Column("size", 8),
                Column("window", 6),
                Column("MB/s", 9),
                Column("messages/s", 12),
                Column("messages", 12),
            ],
            Self::Rate => &[
                Column("size", 8),
                Column("window", 6),
                Column("messages/s", 12),
                Column("ns/message", 10),
                Column("messages", 12),
            ],
            Self::Paced => &[
                Column("size", 8),
                Column("planned/s", 11),
                Column("sent/s", 11),
                Column("min", US),
                Column("p50", US),
                Column("p90", US),
                Column("p99", US),
                Column("p99.9", US),
                Column("max", US),
                Column("samples", 11),
            ],
            Self::Drain => &[
                Column("queue", 10),
                Column("depth", 7),
                Column("order", 11),
                Column("any source %", 5),
                Column("ns/message", 10),
                Column("least", US),
                Column("most", US),
                Column("rounds", 8),
                Column("messages", 12),
            ],
        })
    }

    fn cells(self, leg: &Leg, row: &Row, measured: &Measured) -> Vec<String> {
        let count = show_count(row.iters);
        let rate = row.messages_per_s.map_or("-".into(), show_count);
        let shown = |latency: Latency| latency.ladder(row.samples);
        let ladder = row.latency_ns.map_or([None; 6], shown);
        let [min, p50, p90, p99, p999, max] = ladder.map(us);
        let (size, window) = (show_size(leg.size), leg.window.to_string());
        match self {
            Self::Latency => vec![size, min, p50, p90, p99, p999, max, count],
            Self::Depth => {
                let depth = [leg.posted_depth, leg.unexpected_depth, leg.wildcard_percent.into()];
                let depth = depth.map(|number| number.to_string());
                depth.into_iter().chain([min, p50, p90, p99, max, count]).collect()
            }
            Self::Bandwidth => {
                let bandwidth = row.bandwidth_bytes_per_s.map(|rate| show_3(rate as f64 / 1e6));
                vec![size, window, bandwidth.unwrap_or_else(|| "-".into()), rate, count]
            }
            Self::Rate => {
                let ns = measured.took.as_secs_f64() * 1e9 / measured.iters.max(1) as f64;
                vec![size, window, rate, show_3(ns), count]
            }
            Self::Paced => {
                let pace = measured.pace.map(|pace| [pace.planned_per_s, pace.sent_per_s]);
                let [planned, sent] = pace.unwrap_or_default().map(|rate| format!("{rate:.0}"));
                vec![size, planned, sent, min, p50, p90, p99, p999, max, count]
            }
            Self::Drain => {
                let Some(drain) = &row.more.drain else { return vec![size] };
                let ns = drain.ns_per_message;
                vec![
                    name(&drain.queue),
                    leg.batch.to_string(),
                    name(&drain.order),
                    leg.wildcard_percent.to_string(),
                    show_3(ns.mean),
                    show_3(ns.min),
                    show_3(ns.max),
                    show_count(drain.rounds),
                    count,
                ]
            }
        }
    }
}
