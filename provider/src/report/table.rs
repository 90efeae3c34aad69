//! The report as text: a row for each process, their sum, and what to do about it.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::row::{COLUMNS, Row};

/// A process, as the report names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    /// Its rank in the job; `None`: no launcher has told.
    pub(crate) rank: Option<u64>,
    /// The machine's name.
    pub(crate) host: String,
    /// The process's number on the machine.
    pub(crate) pid: u32,
}

/// The rows of a report.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) rows: BTreeMap<Process, Row>,
}

/// What the text begins with, before the name of the job.
const TITLE: &str = "tagmatch report of ";

impl Table {
    /// The table of a report that another process of the same job has written. A report of another
    /// job, or another text, gives an empty table.
    pub(crate) fn parse(text: &str, job: &str) -> Self {
        let mut table = Table::default();
        let mut lines = text.lines();
        if lines.next().and_then(|line| line.strip_prefix(TITLE)) != Some(job) {
            return table;
        }
        for line in lines {
            let mut words = line.split_whitespace();
            let (Some(rank), Some(host), Some(pid)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            if let (Ok(numbers), Ok(pid)) = (numbers.try_into(), pid.parse()) {
                let process = Process { rank: rank.parse().ok(), host: host.to_owned(), pid };
                table.rows.insert(process, Row(numbers));
            }
        }
        table
    }

    /// Adds the row of a process. A row of the same rank is of an earlier job: then the report
    /// begins anew.
    pub(crate) fn add(&mut self, process: Process, row: Row) {
        let is_other = |other: &Process| other.rank.is_some() && other.rank == process.rank;
        if self.rows.keys().any(is_other) {
            self.rows.clear();
        }
        self.rows.insert(process, row);
    }

    /// The report. `size`: how many processes the job has, if that is known.
    pub(crate) fn render(&self, job: &str, size: Option<u64>) -> String {
        let mut lines = vec![header()];
        for (process, row) in &self.rows {
            let rank = process.rank.map_or("-".to_owned(), |rank| rank.to_string());
            let numbers = row.0.iter().map(u64::to_string);
            let names = [rank, process.host.clone(), process.pid.to_string()];
            lines.push(names.into_iter().chain(numbers).collect());
        }
        let mut sum = Row::default();
        self.rows.values().for_each(|row| sum.add(row));
        let names = ["sum", "-", "-"].map(str::to_owned);
        lines.push(names.into_iter().chain(sum.0.iter().map(u64::to_string)).collect());
        let mut text = format!("{TITLE}{job}\n");
        let of = size.map_or(String::new(), |size| format!(" of {size}"));
        let _ = writeln!(text, "Processes that have ended so far: {}{of}.\n", self.rows.len());
        align(&mut text, &lines);
        text.push('\n');
        if self.rows.keys().any(|process| process.rank.is_none()) {
            text.push_str("No launcher has told ranks: rows are added to those of earlier runs. ");
            text.push_str("Remove the file before a new run.\n");
        }
        for line in super::advice::of(&sum) {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

fn header() -> Vec<String> {
    ["rank", "host", "pid"].iter().chain(&COLUMNS).map(|name| (*name).to_owned()).collect()
}

/// Writes lines in columns, numbers to the right.
fn align(text: &mut String, lines: &[Vec<String>]) {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for line in lines {
        let words = line.iter().zip(&widths).map(|(word, width)| format!("{word:>width$}"));
        text.push_str(&words.collect::<Vec<_>>().join("  "));
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let process = |rank| Process { rank: Some(rank), host: "a".into(), pid: 7 };
        let row = |first| Row(std::array::from_fn(|index| first + index as u64));
        Table { rows: [(process(0), row(0)), (process(10), row(100))].into() }
    }

    #[test]
    fn a_report_is_read_back_as_it_was_written() {
        let text = table().render("j 1", Some(2));
        assert_eq!(Table::parse(&text, "j 1"), table());
        assert_eq!(Table::parse(&text, "another"), Table::default());
        assert_eq!(Table::parse("anything\n1 2 3 4", "j 1"), Table::default());
    }

    #[test]
    fn processes_without_a_launcher_keep_each_others_rows() {
        let mut table = Table::default();
        for pid in [7, 8] {
            table = Table::parse(&table.render("some", None), "some");
            table.add(Process { rank: None, host: "a".into(), pid }, Row::default());
        }
        let text = table.render("some", None);
        assert_eq!(Table::parse(&text, "some").rows.len(), 2, "{text}");
        assert!(text.contains("Remove the file before a new run"), "{text}");
    }

    #[test]
    fn a_job_whose_rank_is_there_already_begins_a_new_report() {
        let mut table = table();
        let row = Row::default();
        let process = |rank, pid| Process { rank: Some(rank), host: "a".into(), pid };
        table.add(process(1, 8), row);
        assert_eq!(table.rows.len(), 3);
        table.add(process(10, 9), row);
        assert_eq!(table.rows.keys().cloned().collect::<Vec<_>>(), [process(10, 9)]);
    }

    #[test]
    fn the_sum_adds_numbers_and_takes_the_largest_depth() {
        let text = table().render("j", Some(2));
        let sum = text.lines().find(|line| line.trim_start().starts_with("sum")).unwrap();
        let words: Vec<&str> = sum.split_whitespace().collect();
        assert_eq!(words[3], "100");
        assert_eq!(words.last(), Some(&"119"));
    }
}
