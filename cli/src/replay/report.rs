//! The report of a replay, for people and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::census::{Census, Classes, Operations};
use super::cost::Cost;
use super::depth::{Count, Depth, Outcome};
use super::offload::Offload;
use super::ratio;
use super::timeline::{Peak, Timeline};
use super::verdict::{Evidence, Verdict};
use super::walks::Walks;
use crate::failure::Failure;
use crate::plot;
use crate::units::{show_3, show_count};

/// All that is said about a trace. As JSON the keys stand in this order.
#[derive(Serialize)]
pub(super) struct Report {
    schema: u32,
    tool: &'static str,
    version: &'static str,
    test: &'static str,
    trace: String,
    operations: Operations,
    posted_depth: Depth,
    unexpected_depth: Depth,
    matches: Outcome,
    unexpected_percent: f64,
    patterns: Classes,
    wildcard_percent: f64,
    mask_classes: usize,
    envelopes: usize,
    left_posted: usize,
    left_unexpected: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<Cost>,
    posted_peak: Peak,
    unexpected_peak: Peak,
    unexpected_bytes_max: u64,
    probes: u64,
    probes_missed: u64,
    plain_walks: Walks,
    depth_over_time: Timeline,
    #[serde(flatten)]
    verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    nic: Option<Offload>,
}

impl Report {
    pub(super) fn new(
        trace: String,
        census: &Census,
        count: &Count<'_>,
        walks: &Walks,
        cost: Option<Cost>,
        nic: Option<Offload>,
    ) -> Self {
        let (posted_depth, unexpected_depth) = count.summaries();
        let matches = count.outcome;
        let operations = census.operations.total();
        let evidence = Evidence {
            operations,
            posted: count.timeline.posted,
            unexpected: count.timeline.unexpected,
            unexpected_bytes_max: count.unexpected_bytes_max(),
            posted_depth: &posted_depth,
            unexpected_depth: &unexpected_depth,
            outcome: matches,
            patterns: census.classes,
            probes: count.probes.0,
            probes_missed: count.probes.1,
            left: (count.depths.0 as u64, count.depths.1 as u64),
            walks: *walks,
        };
        let verdict = Verdict::new(&evidence);
        let (patterns, matched) = (census.classes, matches.posted + matches.unexpected);
        Self {
            schema: 1,
            tool: "tagperf",
            version: env!("CARGO_PKG_VERSION"),
            test: "replay",
            trace,
            operations: census.operations,
            posted_depth,
            unexpected_depth,
            matches,
            unexpected_percent: 100.0 * ratio(matches.unexpected, matched),
            patterns,
            wildcard_percent: 100.0 * ratio(patterns.wildcards(), patterns.total()),
            mask_classes: patterns.in_use(),
            envelopes: census.envelopes,
            left_posted: count.depths.0,
            left_unexpected: count.depths.1,
            cost,
            posted_peak: count.timeline.posted,
            unexpected_peak: count.timeline.unexpected,
            unexpected_bytes_max: count.unexpected_bytes_max(),
            probes: count.probes.0,
            probes_missed: count.probes.1,
            plain_walks: *walks,
            depth_over_time: count.timeline.clone(),
            verdict,
            nic,
        }
    }

    /// The chart of `--plot`.
    pub(super) fn plot(&self) -> Result<String, Failure> {
        let trace = format!("{}, {} operations", self.trace, show_count(self.operations.total()));
        let command = format!("$ {}", plot::command_line());
        let sentence = self.verdict.verdict.clone();
        plot::render(&[self.depth_over_time.figure()], &[trace, command, sentence])
    }

    /// The report as text, newline-terminated.
    pub(super) fn text(&self) -> String {
        let mut out = format!(
            "# tagperf replay: {}, {} operations: {}\n\n",
            self.trace,
            show_count(self.operations.total()),
            listed(&self.operations.by_name()),
        );
        // Probes look through the unexpected list as receives do.
        let probes =
            if self.probes > 0 { "unexpected, with probes" } else { "unexpected, by receives" };
        out += "depth at each search      searches      mean   p50   p90   p99  p99.9     max\n";
        for (name, depth) in
            [("posted, by messages", &self.posted_depth), (probes, &self.unexpected_depth)]
        {
            writeln!(
                out,
                "{name:<23} {:>10} {:>9} {:>5} {:>5} {:>5} {:>6} {:>7}",
                show_count(depth.searches),
                format!("{:.1}", depth.mean),
                depth.p50,
                depth.p90,
                depth.p99,
                depth.p999,
                depth.max,
            )
            .expect("a String takes all");
        }
        out.push('\n');
        out += &self.depth_over_time.text();
        for (name, said) in [
            ("matches", self.matches()),
            ("wildcards", self.wildcards()),
            ("envelopes", self.envelopes()),
            ("left", self.left()),
            ("cost", self.cost()),
            ("deepest", self.verdict.deepest.clone()),
            ("dominant", self.verdict.dominant.clone()),
            ("verdict", self.verdict.verdict.clone()),
        ] {
            writeln!(out, "{name:<10} {said}").expect("a String takes all");
        }
        for advice in &self.verdict.advice {
            writeln!(out, "{:<10} {advice}", "advice").expect("a String takes all");
        }
        out += &self.nic.as_ref().map_or_else(String::new, Offload::text);
        out
    }

    fn matches(&self) -> String {
        let Outcome { posted, unexpected, truncated, cancelled, late } = self.matches;
        let mut said = format!(
            "{} messages received, {:.1} % of them from the unexpected list",
            show_count(posted + unexpected),
            self.unexpected_percent,
        );
        for (count, what) in [
            (truncated, "truncated"),
            (cancelled, "receives cancelled"),
            (late, "cancels too late"),
        ] {
            if count > 0 {
                write!(said, "; {} {what}", show_count(count)).expect("a String takes all");
            }
        }
        said
    }

    fn wildcards(&self) -> String {
        format!(
            "{:.1} % of {} receives and probes: {}",
            self.wildcard_percent,
            show_count(self.patterns.total()),
            listed(&self.patterns.by_name()),
        )
    }

    fn envelopes(&self) -> String {
        format!(
            "{} distinct (ctx, src, tag) in messages; {} mask class{} in receives and probes",
            show_count(self.envelopes as u64),
            self.mask_classes,
            if self.mask_classes == 1 { "" } else { "es" },
        )
    }

    fn left(&self) -> String {
        format!(
            "{} receives posted, {} messages unexpected at the end",
            show_count(self.left_posted as u64),
            show_count(self.left_unexpected as u64),
        )
    }

    fn cost(&self) -> String {
        let Some(cost) = &self.cost else {
            return "no operation, no cost".into();
        };
        let stopped = cost.plain_stopped_after.map_or(String::new(), |steps| {
            format!(" over the first {} operations, given up there", show_count(steps as u64))
        });
        format!(
            "{} ns an operation here; plain lists {} ns{stopped}; {} entries walked a search",
            show_3(cost.ns_per_operation),
            show_3(cost.plain_ns_per_operation),
            show_entries(cost.plain_entries_per_search),
        )
    }
}

/// `3 msg, 1 recv`: those that are not zero, or `none`.
fn listed(counts: &[(&str, u64)]) -> String {
    let some = counts.iter().filter(|(_, count)| *count > 0);
    let words: Vec<_> =
        some.map(|(name, count)| format!("{} {name}", show_count(*count))).collect();
    if words.is_empty() { "none".into() } else { words.join(", ") }
}

/// A mean number of entries.
pub(super) fn show_entries(mean: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count's mean")]
    if mean < 1000.0 { show_3(mean) } else { show_count(mean.round() as u64) }
}
