//! `--osu`: what the OSU micro-benchmarks print, so that scripts which read those read this.
//!
//! Their `osu_latency`, `osu_bw`, `osu_bibw` and `osu_mbw_mr` print `"%-*d%*.*f"` with a first
//! column of 10, others of 18 and two decimals; a latency is the mean, half the round trip.

use crate::result::Row;
use crate::units::{name, show_size};

const FIRST: usize = 10;
const OTHERS: usize = 18;
const ITERATIONS: usize = 12;

/// Those of theirs over all ranks (`osu_barrier`, `osu_bcast`, ...), with what `-f` adds; the others of ours.
fn of_ranks(test: &str) -> Option<&'static str> {
    Some(match test {
        "barrier" => "Barrier",
        "bcast" => "Broadcast",
        "allreduce" => "Allreduce",
        "alltoall" => "All-to-All Personalized Exchange",
        "dup" => "Communicator Duplicate",
        "agree" => "Agreement",
        "shrink" => "Shrink",
        _ => return None,
    })
}

fn heading(test: &str) -> String {
    if let Some(title) = of_ranks(test) {
        let version = env!("CARGO_PKG_VERSION");
        let columns = ["Avg Latency(us)", "Min Latency(us)", "Max Latency(us)"];
        let columns: String = columns.iter().map(|column| format!("{column:>OTHERS$}")).collect();
        let title = format!("# OSU MPI {title} Latency Test format, of tagperf {version}");
        return format!("{title}\n{:<FIRST$}{columns}{:>ITERATIONS$}\n", "# Size", "Iterations");
    }
    let (title, columns): (_, &[&str]) = match test {
        "bw" => ("Bandwidth Test", &["Bandwidth (MB/s)"]),
        "bibw" => ("Bi-Directional Bandwidth Test", &["Bandwidth (MB/s)"]),
        "rate" => ("Multiple Bandwidth / Message Rate Test", &["MB/s", "Messages/s"]),
        _ => ("Latency Test", &["Latency (us)"]),
    };
    let columns: String = columns.iter().map(|column| format!("{column:>OTHERS$}")).collect();
    let version = env!("CARGO_PKG_VERSION");
    let first = if by_depth(test) { "# Depth" } else { "# Size" };
    format!("# OSU MPI {title} format, of tagperf {version}\n{first:<FIRST$}{columns}\n")
}

/// Theirs have no such test; a depth takes the place of the size.
fn by_depth(test: &str) -> bool {
    matches!(test, "depth" | "drain")
}

/// Rows of one test. Theirs differ in the size alone; where ours differ in more, a comment above
/// them says in what.
#[derive(Default)]
pub(super) struct Osu {
    /// What the rows so far have in common beside the test.
    block: String,
}

impl Osu {
    /// Two lines that begin with `#`, the first with the words that scripts look for.
    pub(super) fn heading(&mut self, test: &str) -> String {
        self.block.clear();
        heading(test)
    }

    /// A row, with a comment above it if it begins a block.
    pub(super) fn row(&mut self, test: &str, row: &Row) -> String {
        let block = block(test, row);
        let line = line(test, row);
        if block == self.block {
            return line;
        }
        let comment = if block.is_empty() { "nothing special" } else { &block };
        let out = format!("# {comment}\n{line}");
        self.block = block;
        out
    }
}

/// What a row's own columns don't say; nothing if it is as theirs are.
fn block(test: &str, row: &Row) -> String {
    let mut facts = Vec::new();
    if by_depth(test) {
        facts.push(format!("messages of {}", show_size(row.size)));
        let drain = row.more.drain.as_ref();
        let queue = drain.map(|drain| drain.queue).or(row.more.queue);
        facts.extend(queue.map(|queue| format!("{} queue", name(&queue))));
        facts.extend(drain.map(|drain| format!("order {}", name(&drain.order))));
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

fn line(test: &str, row: &Row) -> String {
    if let Some(means) = row.more.rank_means_ns {
        let us = [means.avg, means.min, means.max].map(|ns| format!("{:>OTHERS$.2}", ns / 1e3));
        return format!("{:<FIRST$}{}{:>ITERATIONS$}\n", row.size, us.concat(), row.iters);
    }
    let mb = row.bandwidth_bytes_per_s.unwrap_or(0) as f64 / 1e6;
    let figures = match (test, row.latency_ns) {
        ("bw" | "bibw", _) => vec![mb],
        ("rate", _) => vec![mb, row.messages_per_s.unwrap_or(0) as f64],
        (_, Some(latency)) => vec![latency.mean / 1e3],
        // Its time a message is what comes nearest to a latency.
        (_, None) => vec![row.messages_per_s.map_or(0.0, |rate| 1e6 / rate.max(1) as f64)],
    };
    let figures: String = figures.iter().map(|figure| format!("{figure:>OTHERS$.2}")).collect();
    let first = if by_depth(test) { row.posted_depth.max(row.unexpected_depth) } else { row.size };
    format!("{first:<FIRST$}{figures}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Means, Row};
    use crate::spec::Queue;

    #[test]
    fn columns_stand_where_theirs_do() {
        let columns = |test| heading(test).lines().nth(1).unwrap().to_owned();
        // As a published run of osu_latency, osu_bibw and osu_mbw_mr has them.
        assert_eq!(columns("lat"), "# Size          Latency (us)");
        assert_eq!(columns("bw"), "# Size      Bandwidth (MB/s)");
        assert_eq!(columns("bibw"), "# Size      Bandwidth (MB/s)");
        assert_eq!(columns("rate"), "# Size                  MB/s        Messages/s");
        assert!(heading("bibw").starts_with("# OSU MPI Bi-Directional Bandwidth Test"));
        let mut some = Row::sample();
        some.bandwidth_bytes_per_s = Some(19_069_250_000);
        some.messages_per_s = Some(9_311_156);
        assert_eq!(line("bw", &some), "8                   19069.25\n");
        assert_eq!(line("rate", &some), "8                   19069.25        9311156.00\n");
        some.size = 4_194_304;
        some.latency_ns.as_mut().unwrap().mean = 584_220.0;
        assert_eq!(line("lat", &some), "4194304               584.22\n");
        some.unexpected_depth = 256;
        assert_eq!(columns("depth"), "# Depth         Latency (us)");
        assert_eq!(line("depth", &some), "256                   584.22\n");
    }

    #[test]
    fn means_over_ranks_stand_where_theirs_do() {
        let mut some = Row::sample();
        some.more.rank_means_ns = Some(Means { min: 1230.0, avg: 2340.0, max: 3456.0 });
        let want = "8                       2.34              1.23              3.46          10\n";
        assert_eq!(line("allreduce", &some), want);
        let columns = heading("allreduce").lines().nth(1).unwrap().to_owned();
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
