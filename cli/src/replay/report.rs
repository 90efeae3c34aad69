//! The report of a replay, as text and as JSON.

use std::fmt::Write as _;

use serde::Serialize;
use tagmatch_trace::{
    Census, Cost, DepthCounter, DepthSummary, MatchCounts, OperationCounts, PatternCounts, Peak,
    Timeline, Walks,
};

use super::chart;
use super::nic::NicReport;
use super::verdict::{Evidence, TraceVerdict};
use super::wording::{listed, percent, show_entries};
use crate::plot;
use crate::units::{show_3, show_count};

/// Everything that is reported about a trace, in the order of the JSON's keys.
#[derive(Serialize)]
pub(super) struct ReplayReport {
    schema: u32,
    tool: &'static str,
    version: &'static str,
    test: &'static str,
    trace: String,
    operations: OperationCounts,
    posted_depth: DepthSummary,
    unexpected_depth: DepthSummary,
    matches: MatchCounts,
    unexpected_percent: f64,
    patterns: PatternCounts,
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
    verdict: TraceVerdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    nic: Option<NicReport>,
}

impl ReplayReport {
    pub(super) fn new(
        trace: String,
        census: &Census,
        counter: &DepthCounter<'_>,
        walks: &Walks,
        cost: Option<Cost>,
        nic: Option<NicReport>,
    ) -> Self {
        let (posted_depth, unexpected_depth) = counter.summaries();
        let (left_posted, left_unexpected) = counter.depths();
        let matches = counter.matches;
        let operations = census.operations.total();
        let evidence = Evidence {
            operations,
            posted: counter.timeline.posted,
            unexpected: counter.timeline.unexpected,
            unexpected_bytes_max: counter.unexpected_bytes_max(),
            posted_depth: &posted_depth,
            unexpected_depth: &unexpected_depth,
            matches,
            patterns: census.patterns,
            probes: counter.probes,
            probes_missed: counter.probes_missed,
            left: (left_posted as u64, left_unexpected as u64),
            walks: *walks,
        };
        let verdict = TraceVerdict::new(&evidence);
        let (patterns, matched) = (census.patterns, matches.posted + matches.unexpected);
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
            unexpected_percent: percent(matches.unexpected, matched),
            patterns,
            wildcard_percent: percent(patterns.wildcards(), patterns.total()),
            mask_classes: patterns.in_use(),
            envelopes: census.envelopes,
            left_posted,
            left_unexpected,
            cost,
            posted_peak: counter.timeline.posted,
            unexpected_peak: counter.timeline.unexpected,
            unexpected_bytes_max: counter.unexpected_bytes_max(),
            probes: counter.probes,
            probes_missed: counter.probes_missed,
            plain_walks: *walks,
            depth_over_time: counter.timeline.clone(),
            verdict,
            nic,
        }
    }

    /// The chart of `--plot`.
    pub(super) fn plot(&self) -> String {
        let trace = format!("{}, {} operations", self.trace, show_count(self.operations.total()));
        let command = format!("$ {}", plot::command_line());
        let sentence = self.verdict.verdict.clone();
        plot::render(&[chart::figure(&self.depth_over_time)], &[trace, command, sentence])
    }

    /// The report as text, with a newline at its end.
    pub(super) fn text(&self) -> String {
        let mut out = format!(
            "# tagperf replay: {}, {} operations: {}\n\n",
            self.trace,
            show_count(self.operations.total()),
            listed(&self.operations.by_name()),
        );
        // Probes search the unexpected list, as receives do.
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
            .expect("writing to a String does not fail");
        }
        out.push('\n');
        out += &chart::text(&self.depth_over_time);
        for (name, text) in [
            ("matches", self.matches()),
            ("wildcards", self.wildcards()),
            ("envelopes", self.envelopes()),
            ("left", self.left()),
            ("cost", self.cost()),
            ("deepest", self.verdict.deepest.clone()),
            ("dominant", self.verdict.dominant.clone()),
            ("verdict", self.verdict.verdict.clone()),
        ] {
            writeln!(out, "{name:<10} {text}").expect("writing to a String does not fail");
        }
        for advice in &self.verdict.advice {
            writeln!(out, "{:<10} {advice}", "advice").expect("writing to a String does not fail");
        }
        out += &self.nic.as_ref().map_or_else(String::new, NicReport::text);
        out
    }

    fn matches(&self) -> String {
        let MatchCounts { posted, unexpected, truncated, cancelled, late } = self.matches;
        let mut text = format!(
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
                write!(text, "; {} {what}", show_count(count))
                    .expect("writing to a String does not fail");
            }
        }
        text
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
            return "no operation to time".into();
        };
        let stopped = cost.plain_stopped_after.map_or(String::new(), |steps| {
            format!(" over the first {} operations, stopped there", show_count(steps as u64))
        });
        format!(
            "{} ns an operation here; plain lists {} ns{stopped}; {} entries walked a search",
            show_3(cost.ns_per_operation),
            show_3(cost.plain_ns_per_operation),
            show_entries(cost.plain_entries_per_search),
        )
    }
}
