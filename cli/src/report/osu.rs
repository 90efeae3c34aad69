//! `--osu`: the format of the OSU micro-benchmarks, for scripts that read it.
//!
//! `osu_latency`, `osu_bw`, `osu_bibw` and `osu_mbw_mr` print `"%-*d%*.*f"` with a first column of
//! 10, others of 18 and two decimals. A latency is the mean of half the round trip.

use super::columns as c;
use super::columns::Column;
use crate::result::Row;
use crate::units::show_size;

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

impl Format {
    /// A test between two processes.
    fn of_pair(title: &'static str, others: &'static [(&'static str, Column)]) -> Self {
        Self { title, first: ("# Size", c::SIZE), others, has_iterations: false }
    }

    /// A test by depth. OSU has none: the depth takes the place of the size.
    fn by_depth(others: &'static [(&'static str, Column)]) -> Self {
        Self { first: ("# Depth", c::DEPTH), ..Self::of_pair("Latency Test", others) }
    }

    /// A test of all ranks (`osu_barrier`, `osu_bcast`, ...), and ours that OSU does not have.
    fn of_ranks(title: &'static str) -> Self {
        let others = &[
            ("Avg Latency(us)", c::RANK_MEAN_AVG),
            ("Min Latency(us)", c::RANK_MEAN_MIN),
            ("Max Latency(us)", c::RANK_MEAN_MAX),
        ];
        Self { has_iterations: true, ..Self::of_pair(title, others) }
    }

    fn of(test: &str) -> Self {
        match test {
            "barrier" => Self::of_ranks("Barrier Latency Test"),
            "bcast" => Self::of_ranks("Broadcast Latency Test"),
            "allreduce" => Self::of_ranks("Allreduce Latency Test"),
            "alltoall" => Self::of_ranks("All-to-All Personalized Exchange Latency Test"),
            "dup" => Self::of_ranks("Communicator Duplicate Latency Test"),
            "agree" => Self::of_ranks("Agreement Latency Test"),
            "shrink" => Self::of_ranks("Shrink Latency Test"),
            "bw" => Self::of_pair("Bandwidth Test", &[("Bandwidth (MB/s)", c::BANDWIDTH)]),
            "bibw" => Self::of_pair(
                "Bi-Directional Bandwidth Test",
                &[("Bandwidth (MB/s)", c::BANDWIDTH)],
            ),
            "rate" => Self::of_pair(
                "Multiple Bandwidth / Message Rate Test",
                &[("MB/s", c::BANDWIDTH), ("Messages/s", c::MESSAGES_PER_S)],
            ),
            "depth" => Self::by_depth(&[("Latency (us)", c::MEAN)]),
            // The time of a message is nearest to a latency.
            "drain" => Self::by_depth(&[("Latency (us)", c::TIME_PER_MESSAGE)]),
            _ => Self::of_pair("Latency Test", &[("Latency (us)", c::MEAN)]),
        }
    }

    fn heading(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let others: String =
            self.others.iter().map(|(name, _)| format!("{name:>OTHERS$}")).collect();
        let iterations = if self.has_iterations {
            format!("{:>ITERATIONS$}", "Iterations")
        } else {
            String::new()
        };
        let title = format!("# OSU MPI {} format, of tagperf {version}", self.title);
        format!("{title}\n{:<FIRST$}{others}{iterations}\n", self.first.0)
    }

    fn line(&self, row: &Row) -> String {
        let figure = |(_, column): &(_, Column)| format!("{:>OTHERS$.2}", column.scaled(row));
        let others: String = self.others.iter().map(figure).collect();
        let iterations = if self.has_iterations {
            format!("{:>ITERATIONS$}", c::ITERS.raw(row))
        } else {
            String::new()
        };
        format!("{:<FIRST$}{others}{iterations}\n", self.first.1.raw(row))
    }
}

/// Rows of one test. OSU's rows differ in the size alone. Where ours differ in more, a comment
/// above them says in what.
#[derive(Default)]
pub(super) struct Osu {
    /// The parameters that the rows so far have in common.
    block: String,
}

impl Osu {
    /// Two lines that begin with `#`; the first has the words that scripts look for.
    pub(super) fn heading(&mut self, test: &str) -> String {
        self.block.clear();
        Format::of(test).heading()
    }

    /// A row, with a comment above it if it begins a block.
    pub(super) fn row(&mut self, test: &str, row: &Row) -> String {
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
        let of = |column: Column| Some(column.raw(row)).filter(|word| !word.is_empty());
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
    facts.extend(row.more.threads.map(|threads| format!("threads {threads}")));
    facts.extend(row.more.ranks.map(|ranks| format!("ranks {ranks}")));
    facts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Means, Row};
    use crate::spec::Queue;

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
        some.more.rank_means_ns = Some(Means { min: 1230.0, avg: 2340.0, max: 3456.0 });
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
            let said = osu.row(test, row);
            let lines: Vec<_> = said.lines().collect();
            assert!(lines.len() <= 2 && !lines[lines.len() - 1].starts_with('#'), "{said}");
            (lines.len() == 2).then(|| lines[0].to_owned())
        };
        let mut some = Row::sample();
        assert_eq!(comment("lat", &some), None);
        for threads in [1, 2] {
            some.more.threads = Some(threads);
            assert_eq!(comment("lat", &some), Some(format!("# threads {threads}")));
            assert_eq!(comment("lat", &some), None);
        }
        some.more.threads = None;
        some.posted_depth = 16;
        assert_eq!(comment("lat", &some).unwrap(), "# 16 posted");
        some.posted_depth = 0;
        assert_eq!(comment("lat", &some).unwrap(), "# nothing special");
        some.more.queue = Some(Queue::Posted);
        assert_eq!(comment("depth", &some).unwrap(), "# messages of 8 B, posted queue");
        some.posted_depth = 16;
        assert_eq!(comment("depth", &some), None, "the depth has a column");
        some.wildcard_percent = 50;
        let want = "# messages of 8 B, posted queue, any source 50 %";
        assert_eq!(comment("depth", &some).unwrap(), want);
    }
}
