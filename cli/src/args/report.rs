//! Options for the output of results: those of every measurement, and those of `compare`.

use std::path::PathBuf;

use clap::Args;
use tagmatch_results::show::invalid;

use crate::units::decimal;

/// Default percentage from which `compare` calls a run slower.
const SLOWER_PERCENT: f64 = 5.0;
const SLOWER_PERCENT_MAX: f64 = 10_000.0;

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Results")]
pub(crate) struct ReportOptions {
    /// Spread of latencies: bars (us) below each row, bins (ns) in JSON
    #[arg(long)]
    pub(crate) histogram: bool,
    /// Comma-separated values (ns, bytes/s) instead of the table
    #[arg(long, conflicts_with_all = ["osu", "json_stream"])]
    pub(crate) csv: bool,
    /// The format of OSU's benchmarks (mean us, MB/s) instead
    #[arg(long, conflicts_with = "json_stream")]
    pub(crate) osu: bool,
    /// A line of JSON (ns) a result, and progress each second, instead
    #[arg(long)]
    pub(crate) json_stream: bool,
    /// Charts of the results (us, MB/s, messages/s)
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Compare with an earlier run, kept by --json or --json-stream
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// Exit status 1 if slower than it by more, beyond noise, in percent
    #[arg(long, value_name = "PERCENT", requires = "baseline", value_parser = slower_percent)]
    pub(crate) fail_if_slower: Option<f64>,
}

impl ReportOptions {
    /// The option that prints the rows in another form than the table, if any.
    pub(crate) fn replaces_table(&self) -> Option<&'static str> {
        let forms = [("--csv", self.csv), ("--osu", self.osu), ("--json-stream", self.json_stream)];
        forms.into_iter().find_map(|(name, wanted)| wanted.then_some(name))
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Compare {
    /// JSON of the earlier run: --json or --json-stream of any test, or of all
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,
    /// JSON of the later one
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
    /// How much slower is too slow, beyond noise, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = SLOWER_PERCENT)]
    #[arg(value_parser = slower_percent)]
    pub(crate) fail_if_slower: f64,
    /// One line of JSON to FILE; with - nothing else is printed
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}

fn slower_percent(text: &str) -> Result<f64, String> {
    let percent = decimal(text, &[("", 1.0), ("%", 1.0)]);
    percent
        .filter(|percent| *percent <= SLOWER_PERCENT_MAX)
        .ok_or_else(|| invalid("percentage", text, "a number such as 0, 5 or 12.5, at most 10000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages() {
        assert_eq!(slower_percent("0"), Ok(0.0));
        assert_eq!(slower_percent("12.5%"), Ok(12.5));
        for wrong in ["", "%", "-1", "+1", "nan", "inf", "1e3", "1..2", "10001", "five"] {
            assert!(slower_percent(wrong).unwrap_err().contains("expected"), "{wrong}");
        }
    }
}
