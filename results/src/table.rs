//! The table: rows are printed as they are measured, so widths are settled before the first.

use crate::Row;
use crate::columns::{Column, THREADS, fields, us};
use crate::show::show_count;

/// Columns from left to right, all flush right.
#[derive(Default)]
pub struct Table(Vec<Column>);

impl Table {
    /// A table of these columns.
    pub fn new(columns: &[Column]) -> Self {
        Self(columns.to_vec())
    }

    /// A table with the number of threads before the columns.
    pub fn with_threads(columns: &[Column]) -> Self {
        Self([&[THREADS], columns].concat())
    }

    /// The heading, newline-terminated.
    pub fn heading(&self) -> String {
        self.line(|column| column.head().0.to_owned()) + "\n"
    }

    /// A row and the remarks below it, newline-terminated.
    pub fn row(&self, row: &Row) -> String {
        let fields = fields(row);
        self.line(|column| column.shown(&fields)) + "\n" + &remarks(row)
    }

    fn line(&self, cell: impl Fn(&Column) -> String) -> String {
        let cells = self.0.iter().map(|column| format!("{:>1$}", cell(column), column.head().1));
        cells.collect::<Vec<_>>().join("  ")
    }
}

/// Values of a row that have no column, as comments.
fn remarks(row: &Row) -> String {
    let mut out = String::new();
    for (number, thread) in row.per_thread.iter().enumerate() {
        let p50 = thread.latency_ns.map(|latency| format!("p50 {} us, ", us(latency.p50)));
        let rate = show_count(thread.messages_per_s);
        let p50 = p50.unwrap_or_default();
        out += &format!("# thread {number:<4} {p50}{rate} messages/s\n");
    }
    if let Some(pace) = row.pace.filter(|pace| !pace.held) {
        out += &format!(
            "# not held    {:.0} messages/s were planned, {:.0} sent; the latest left {} us late\n",
            pace.planned_per_s,
            pace.sent_per_s,
            us(pace.late_max_ns as f64),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::{COLLECTIVE_TABLE, RATE_TABLE, RECOVERY_TABLE};
    use crate::{Means, Recovered};

    #[test]
    fn cells_stand_under_their_headings() {
        let table = Table::with_threads(RATE_TABLE);
        let row = Row { size: 4096, messages_per_s: None, ..Row::sample() };
        let text = table.heading() + &table.row(&row);
        assert_eq!(
            text,
            "threads      size  window    messages/s  ns/message      messages\n      \
             1     4 KiB       -             -           -            10\n"
        );
    }

    #[test]
    fn tables_of_ranks() {
        let steps =
            Recovered { noticed: 200.0, revoke: 2.0, agree: 3.0, shrink: 4.0, barrier: 6.0 };
        let means = Means { min: 10.0, avg: 15.0, max: 20.0 };
        let row = Row {
            ranks: Some(3),
            rank_means_ns: Some(means),
            recovery_ns: Some(steps),
            ..Row::sample()
        };
        let cells = |columns| Table::new(columns).row(&row);
        let cells =
            |columns| cells(columns).split_whitespace().map(Into::into).collect::<Vec<String>>();
        let recovery =
            ["3", "0.200", "0.002", "0.003", "0.004", "0.006", "0.015", "0.010", "0.020"];
        assert_eq!(cells(RECOVERY_TABLE), recovery);
        let calls = ["8", "B", "0.015", "0.010", "0.020", "0.002", "-", "-", "10"];
        assert_eq!(cells(COLLECTIVE_TABLE), calls);
    }
}
