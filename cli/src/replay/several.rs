//! The report on several traces, as of the processes of a job: a line each, and the sum.

use tagmatch_results::show::show_count;

use super::report::ReplayReport;
use super::wording::{percent, show_entries};

/// What is summed over the traces.
#[derive(Default)]
pub(super) struct Sum {
    traces: u64,
    operations: u64,
    received: u64,
    unexpected: u64,
    differing: u64,
    stopped: u64,
    /// Receives of traces that were run with a NIC, and how many of them it matched.
    by_nic: Option<(u64, u64)>,
    /// The trace whose searches walk most, how much they walk, and its verdict.
    worst: Option<(String, f64, String)>,
}

impl Sum {
    pub(super) fn header() -> String {
        format!(
            "{:>12} {:>12} {:>7} {:>10} {:>10} {:>8} {:>7}  trace\n",
            "operations", "received", "unexp", "posted max", "unexp max", "entries", "nic"
        )
    }

    /// Adds a trace; gives its line.
    pub(super) fn add(&mut self, report: &ReplayReport) -> String {
        let facts = report.facts();
        let received = facts.matches.posted + facts.matches.unexpected;
        let entries = facts.plain_walks.entries_per_search();
        self.traces += 1;
        self.operations += facts.operations.total();
        self.received += received;
        self.unexpected += facts.matches.unexpected;
        self.differing += report.recording().differing();
        self.stopped += u64::from(report.recording().is_stopped());
        if let Some((all, hardware)) = report.by_nic() {
            let (sum_all, sum_hardware) = self.by_nic.unwrap_or_default();
            self.by_nic = Some((sum_all + all, sum_hardware + hardware));
        }
        if self.worst.as_ref().is_none_or(|(_, worst, _)| entries > *worst) {
            self.worst = Some((report.trace().into(), entries, report.verdict().into()));
        }
        format!(
            "{:>12} {:>12} {:>5.1} % {:>10} {:>10} {:>8} {:>7}  {}\n",
            show_count(facts.operations.total()),
            show_count(received),
            percent(facts.matches.unexpected, received),
            show_count(facts.posted_peak.depth),
            show_count(facts.unexpected_peak.depth),
            show_entries(entries),
            share(report.by_nic()),
            report.trace(),
        )
    }

    /// What stands below the lines.
    pub(super) fn text(&self) -> String {
        let mut out = format!(
            "{:>12} {:>12} {:>5.1} % {:>10} {:>10} {:>8} {:>7}  in all, {} traces\n\n",
            show_count(self.operations),
            show_count(self.received),
            percent(self.unexpected, self.received),
            "",
            "",
            "",
            share(self.by_nic),
            show_count(self.traces),
        );
        out += "unexp: received from the unexpected list; max: entries; entries: that a plain list \
                walks a search; nic: matched by it\n";
        if let Some((trace, _, verdict)) = &self.worst {
            out += &format!("{:<10} {trace}: {verdict}\n", "worst");
        }
        for (count, what) in [
            (self.differing, "outcomes are not those that the program had"),
            (self.stopped, "traces ended before their program did"),
        ] {
            if count > 0 {
                out += &format!("{:<10} {} {what}\n", "warning", show_count(count));
            }
        }
        out
    }
}

fn share(by_nic: Option<(u64, u64)>) -> String {
    by_nic.map_or("-".into(), |(all, hardware)| format!("{:.1} %", percent(hardware, all)))
}
