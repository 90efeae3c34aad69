//! `--osu`: what the OSU micro-benchmarks print, so that scripts which read those read this.
//!
//! Their `osu_latency`, `osu_bw`, `osu_bibw` and `osu_mbw_mr` print `"%-*d%*.*f"` with a first
//! column of 10, others of 18 and two decimals; a latency is the mean, half the round trip.

use crate::json::Row;

const FIRST: usize = 10;
const OTHERS: usize = 18;

/// Two lines that begin with `#`, the first with the words that scripts look for.
pub(super) fn heading(test: &str) -> String {
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

pub(super) fn row(test: &str, row: &Row) -> String {
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
    use crate::json::tests::row as some_row;

    #[test]
    fn columns_stand_where_theirs_do() {
        let line = |test| heading(test).lines().nth(1).unwrap().to_owned();
        // As a published run of osu_latency, osu_bibw and osu_mbw_mr has them.
        assert_eq!(line("lat"), "# Size          Latency (us)");
        assert_eq!(line("bw"), "# Size      Bandwidth (MB/s)");
        assert_eq!(line("bibw"), "# Size      Bandwidth (MB/s)");
        assert_eq!(line("rate"), "# Size                  MB/s        Messages/s");
        assert!(heading("bibw").starts_with("# OSU MPI Bi-Directional Bandwidth Test"));
        let mut some = some_row();
        some.bandwidth_bytes_per_s = Some(19_069_250_000);
        some.messages_per_s = Some(9_311_156);
        assert_eq!(row("bw", &some), "8                   19069.25\n");
        assert_eq!(row("rate", &some), "8                   19069.25        9311156.00\n");
        some.size = 4_194_304;
        some.latency_ns.as_mut().unwrap().mean = 584_220.0;
        assert_eq!(row("lat", &some), "4194304               584.22\n");
        some.unexpected_depth = 256;
        assert_eq!(line("depth"), "# Depth         Latency (us)");
        assert_eq!(row("depth", &some), "256                   584.22\n");
    }
}
