//! `--osu`: the format of the OSU micro-benchmarks, for scripts that read it.
//!
//! `osu_latency`, `osu_bw`, `osu_bibw` and `osu_mbw_mr` print `"%-*d%*.*f"` with a first column of
//! 10, others of 18 and two decimals. A latency is the mean of half the round trip.

use crate::Row;
use crate::columns as c;
use crate::columns::{Column, fields};
use crate::show::show_size;

const FIRST: usize = 10;
const OTHERS: usize = 18;
const ITERATIONS: usize = 12;

/// The format of one test.
struct Format {
    title: &'static str,
    first: (&'static str, Column),
    others: &'static [(&'static str, Column)],
    /// Whether the number of calls stands last, as OSU's collective tests have it with `-f`.
    has_iterations: bool,
}

const SIZE: (&str, Column) = ("# Size", c::SIZE);
const LATENCY: &[(&str, Column)] = &[("Latency (us)", c::MEAN)];
/// The time of a message is nearest to a latency.
const DRAIN: &[(&str, Column)] = &[("Latency (us)", c::TIME_PER_MESSAGE)];
const BANDWIDTH: &[(&str, Column)] = &[("Bandwidth (MB/s)", c::BANDWIDTH)];
const RATE: &[(&str, Column)] = &[("MB/s", c::BANDWIDTH), ("Messages/s", c::MESSAGES_PER_S)];
const OF_RANKS: &[(&str, Column)] = &[
    ("Avg Latency(us)", c::RANK_MEAN_AVG),
    ("Min Latency(us)", c::RANK_MEAN_MIN),
    ("Max Latency(us)", c::RANK_MEAN_MAX),
];

impl Format {
    fn of(test: &str) -> Self {
        // Tests of all ranks (`osu_barrier`, `osu_bcast`, ...), and ours that OSU does not have.
        let of_ranks = match test {
            "barrier" => Some("Barrier Latency Test"),
            "bcast" => Some("Broadcast Latency Test"),
            "allreduce" => Some("Allreduce Latency Test"),
            "alltoall" => Some("All-to-All Personalized Exchange Latency Test"),
            "dup" => Some("Communicator Duplicate Latency Test"),
            "agree" => Some("Agreement Latency Test"),
            "shrink" => Some("Shrink Latency Test"),
            _ => None,
        };
        if let Some(title) = of_ranks {
            return Self { title, first: SIZE, others: OF_RANKS, has_iterations: true };
        }
        let (title, others) = match test {
            "bw" => ("Bandwidth Test", BANDWIDTH),
            "bibw" => ("Bi-Directional Bandwidth Test", BANDWIDTH),
            "rate" => ("Multiple Bandwidth / Message Rate Test", RATE),
            "drain" => ("Latency Test", DRAIN),
            "put" => ("Put Latency Test", LATENCY),
            "get" => ("Get Latency Test", LATENCY),
            "fadd" => ("Fetch_and_op latency Test", LATENCY),
            "put_bw" => ("Put Bandwidth Test", BANDWIDTH),
            "get_bw" => ("Get Bandwidth Test", BANDWIDTH),
            "fadd_rate" => ("Fetch_and_op Rate Test", RATE),
            _ => ("Latency Test", LATENCY),
        };
        let first = match test {
            // OSU has no test by depth: the depth takes the place of the size.
            "depth" | "drain" => ("# Depth", c::DEPTH),
            _ => SIZE,
        };
        Self { title, first, others, has_iterations: false }
    }

    fn heading(&self) -> String {
        let title = self.title;
        let version = env!("CARGO_PKG_VERSION");
        let names = self.cells(self.first.0, |(name, _)| (*name).to_owned(), "Iterations");
        format!("# OSU MPI {title} format, of tagperf {version}\n{names}")
    }

    fn line(&self, row: &Row) -> String {
        let fields = fields(row);
        let figure = |(_, column): &(&str, Column)| format!("{:.2}", column.scaled(&fields));
        self.cells(&self.first.1.raw(&fields), figure, &c::ITERS.raw(&fields))
    }

    fn cells(&self, first: &str, other: impl Fn(&(&str, Column)) -> String, last: &str) -> String {
        let others = self.others.iter().map(|column| format!("{:>OTHERS$}", other(column)));
        let last = Some(format!("{last:>ITERATIONS$}")).filter(|_| self.has_iterations);
        format!("{first:<FIRST$}{}\n", others.chain(last).collect::<String>())
    }
}

/// Rows of one test. OSU's rows differ in the size alone. Where ours differ in more, a comment
/// above them says in what.
#[derive(Default)]
pub struct Osu {
    /// The parameters that the rows so far have in common.
    block: String,
}

impl Osu {
    /// Two lines that begin with `#`; the first has the words that scripts look for.
    pub fn heading(&mut self, test: &str) -> String {
        self.block.clear();
        Format::of(test).heading()
    }

    /// A row, with a comment above it if it begins a block.
    pub fn row(&mut self, test: &str, row: &Row) -> String {
        let block = block(test, row);
        let line = Format::of(test).line(row);
        if block == self.block {
            return line;
        }
        let comment = if block.is_empty() { "nothing special" } else { &block };
        let out = format!("# {comment}\n{line}");
        self.block = block;
        out
    }
}

/// The parameters that a row's columns don't show; empty if there are none.
fn block(test: &str, row: &Row) -> String {
    let mut facts = Vec::new();
    if matches!(test, "depth" | "drain") {
        facts.push(format!("messages of {}", show_size(row.size)));
        let fields = fields(row);
        let of = |column: Column| Some(column.raw(&fields)).filter(|word| !word.is_empty());
        facts.extend(of(c::QUEUE).map(|queue| format!("{queue} queue")));
        facts.extend(of(c::ORDER).map(|order| format!("order {order}")));
    } else {
        let depths = [("posted", row.posted_depth), ("unexpected", row.unexpected_depth)];
        let deep = depths.into_iter().filter(|(_, depth)| *depth > 0);
        facts.extend(deep.map(|(queue, depth)| format!("{depth} {queue}")));
    }
    if row.wildcard_percent > 0 {
        facts.push(format!("any source {} %", row.wildcard_percent));
    }
    facts.extend(row.threads.map(|threads| format!("threads {threads}")));
    facts.extend(row.ranks.map(|ranks| format!("ranks {ranks}")));
    facts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Means, Row};

    #[test]
    fn columns_stand_where_theirs_do() {
        let columns = |test| Format::of(test).heading().lines().nth(1).unwrap().to_owned();
        // Copied from published output of osu_latency, osu_bibw and osu_mbw_mr.
        assert_eq!(columns("lat"), "# Size          Latency (us)");
        assert_eq!(columns("bw"), "# Size      Bandwidth (MB/s)");
        assert_eq!(columns("bibw"), "# Size      Bandwidth (MB/s)");
        assert_eq!(columns("rate"), "# Size                  MB/s        Messages/s");
        assert!(
            Format::of("bibw").heading().starts_with("# OSU MPI Bi-Directional Bandwidth Test")
        );
        let mut some = Row::sample();
        some.bandwidth_bytes_per_s = Some(19_069_250_000);
        some.messages_per_s = Some(9_311_156);
        assert_eq!(Format::of("bw").line(&some), "8                   19069.25\n");
        assert_eq!(
            Format::of("rate").line(&some),
            "8                   19069.25        9311156.00\n"
        );
        some.size = 4_194_304;
        some.latency_ns.as_mut().unwrap().mean = 584_220.0;
        assert_eq!(Format::of("lat").line(&some), "4194304               584.22\n");
        some.unexpected_depth = 256;
        assert_eq!(columns("depth"), "# Depth         Latency (us)");
        assert_eq!(Format::of("depth").line(&some), "256                   584.22\n");
    }

    #[test]
    fn means_over_ranks_stand_where_theirs_do() {
        let mut some = Row::sample();
        some.rank_means_ns = Some(Means { min: 1230.0, avg: 2340.0, max: 3456.0 });
        let want = "8                       2.34              1.23              3.46          10\n";
        assert_eq!(Format::of("allreduce").line(&some), want);
        let columns = Format::of("allreduce").heading().lines().nth(1).unwrap().to_owned();
        assert_eq!(columns.len() + 1, want.len());
        assert!(columns.starts_with("# Size       Avg Latency(us)   Min Latency(us)"), "{columns}");
    }

    #[test]
    fn rows_that_differ_in_more_than_the_size_are_told_apart() {
        let mut osu = Osu::default();
        let mut comment = |test, row: &Row| {
            let text = osu.row(test, row);
            let lines: Vec<_> = text.lines().collect();
            assert!(lines.len() <= 2 && !lines[lines.len() - 1].starts_with('#'), "{text}");
            (lines.len() == 2).then(|| lines[0].to_owned())
        };
        let mut some = Row::sample();
        assert_eq!(comment("lat", &some), None);
        for threads in [1, 2] {
            some.threads = Some(threads);
            assert_eq!(comment("lat", &some), Some(format!("# threads {threads}")));
            assert_eq!(comment("lat", &some), None);
        }
        some.threads = None;
        some.posted_depth = 16;
        assert_eq!(comment("lat", &some).unwrap(), "# 16 posted");
        some.posted_depth = 0;
        assert_eq!(comment("lat", &some).unwrap(), "# nothing special");
        some.queue = Some("posted".into());
        assert_eq!(comment("depth", &some).unwrap(), "# messages of 8 B, posted queue");
        some.posted_depth = 16;
        assert_eq!(comment("depth", &some), None, "the depth has a column");
        some.wildcard_percent = 50;
        let want = "# messages of 8 B, posted queue, any source 50 %";
        assert_eq!(comment("depth", &some).unwrap(), want);
    }
}
