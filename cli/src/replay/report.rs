//! The report of a replay, as text and as JSON.

use serde::Serialize;
use tagmatch_results::Header;
use tagmatch_results::chart::render;
use tagmatch_results::show::{show_3, show_count};
use tagmatch_trace::MatchCounts;

use super::chart;
use super::facts::TraceFacts;
use super::nic::NicReport;
use super::recording::Recording;
use super::verdict::TraceVerdict;
use super::wording::{listed, show_entries};
use crate::plot;

/// Everything that is reported about a trace, in the order of the JSON's keys.
#[derive(Serialize)]
pub(super) struct ReplayReport {
    #[serde(flatten)]
    header: Header,
    trace: String,
    #[serde(flatten)]
    facts: TraceFacts,
    #[serde(flatten)]
    verdict: TraceVerdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    nic: Option<NicReport>,
    #[serde(flatten)]
    recording: Recording,
}

impl ReplayReport {
    pub(super) fn new(
        trace: String,
        facts: TraceFacts,
        nic: Option<NicReport>,
        recording: Recording,
    ) -> Self {
        let header = Header::new("replay");
        let verdict = TraceVerdict::new(&facts);
        Self { header, trace, facts, verdict, nic, recording }
    }

    pub(super) fn trace(&self) -> &str {
        &self.trace
    }

    pub(super) fn facts(&self) -> &TraceFacts {
        &self.facts
    }

    pub(super) fn recording(&self) -> &Recording {
        &self.recording
    }

    pub(super) fn verdict(&self) -> &str {
        &self.verdict.verdict
    }

    /// Receives that got a message, and how many of them the NIC matched, if there was one.
    pub(super) fn by_nic(&self) -> Option<(u64, u64)> {
        self.nic.as_ref().map(NicReport::counts)
    }

    /// The chart of `--plot`.
    pub(super) fn plot(&self) -> String {
        let trace =
            format!("{}, {} operations", self.trace, show_count(self.facts.operations.total()));
        let command = format!("$ {}", plot::command_line());
        let sentence = self.verdict.verdict.clone();
        render(&[chart::figure(&self.facts.depth_over_time)], &[trace, command, sentence], &[])
    }

    /// The report as text, with a newline at its end.
    pub(super) fn text(&self) -> String {
        let mut out = format!(
            "# tagperf replay: {}, {} operations: {}\n\n",
            self.trace,
            show_count(self.facts.operations.total()),
            listed(&self.facts.operations.by_name()),
        );
        // Probes search the unexpected list, as receives do.
        let probes = if self.facts.probes > 0 {
            "unexpected, with probes"
        } else {
            "unexpected, by receives"
        };
        out += "depth at each search      searches      mean   p50   p90   p99  p99.9     max\n";
        for (name, depth) in [
            ("posted, by messages", &self.facts.posted_depth),
            (probes, &self.facts.unexpected_depth),
        ] {
            out += &format!(
                "{name:<23} {:>10} {:>9} {:>5} {:>5} {:>5} {:>6} {:>7}\n",
                show_count(depth.searches),
                format!("{:.1}", depth.mean),
                depth.p50,
                depth.p90,
                depth.p99,
                depth.p999,
                depth.max,
            );
        }
        out.push('\n');
        out += &chart::text(&self.facts.depth_over_time);
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
            out += &format!("{name:<10} {text}\n");
        }
        for advice in &self.verdict.advice {
            out += &format!("{:<10} {advice}\n", "advice");
        }
        out += &self.nic.as_ref().map_or_else(String::new, NicReport::text);
        out + &self.recording.text()
    }

    fn matches(&self) -> String {
        let MatchCounts { posted, unexpected, truncated, cancelled, late } = self.facts.matches;
        let mut text = format!(
            "{} messages received, {:.1} % of them from the unexpected list",
            show_count(posted + unexpected),
            self.facts.unexpected_percent,
        );
        for (count, what) in [
            (truncated, "truncated"),
            (cancelled, "receives cancelled"),
            (late, "cancels too late"),
        ] {
            if count > 0 {
                text += &format!("; {} {what}", show_count(count));
            }
        }
        text
    }

    fn wildcards(&self) -> String {
        format!(
            "{:.1} % of {} receives and probes: {}",
            self.facts.wildcard_percent,
            show_count(self.facts.patterns.total()),
            listed(&self.facts.patterns.by_name()),
        )
    }

    fn envelopes(&self) -> String {
        format!(
            "{} distinct (ctx, src, tag) in messages; {} mask class{} in receives and probes",
            show_count(self.facts.envelopes as u64),
            self.facts.mask_classes,
            if self.facts.mask_classes == 1 { "" } else { "es" },
        )
    }

    fn left(&self) -> String {
        format!(
            "{} receives posted, {} messages unexpected at the end",
            show_count(self.facts.left_posted),
            show_count(self.facts.left_unexpected),
        )
    }

    fn cost(&self) -> String {
        let Some(cost) = &self.facts.cost else {
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
