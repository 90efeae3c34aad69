//! How much of a trace a NIC would match, why not the rest, and what would help.

use serde::Serialize;
use tagmatch::Counters;
use tagmatch_results::Matching;
use tagmatch_results::show::show_count;
use tagmatch_trace::{ONESELF, Trace, TraceOp};

use super::wording::percent;
use crate::reasons::{NAMES_SOURCE, PASSED_BY, Reason, reasons};

/// The reason for which no advice is given: software is faster for these receives.
const TOO_SMALL: &str = "too_small";

/// The part of the report about a replay with a NIC.
#[derive(Clone, Debug, Serialize)]
pub(super) struct NicReport {
    /// Entries that the NIC's list has room for.
    slots: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    /// Receives that got a message, receives of matched probes included.
    received: u64,
    /// Receives that the NIC matched.
    hardware: u64,
    hardware_percent: f64,
    /// Why not the others, the most frequent reason first.
    stopped: Vec<NotByNic>,
    advice: String,
}

/// Receives that the NIC did not match for one reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct NotByNic {
    reason: &'static str,
    receives: u64,
    percent: f64,
    meaning: String,
    #[serde(skip)]
    remedy: String,
}

impl NicReport {
    pub(super) fn new(
        slots: u32,
        seed: Option<u64>,
        counters: &Counters,
        sources: SourceReasons,
    ) -> Self {
        let matching = Matching::from(*counters);
        let hardware = matching.hardware;
        let received = hardware + matching.posted + matching.unexpected;
        let stopped = stops(&matching, received, sources);
        let hardware_percent = percent(hardware, received);
        let advice = match stopped.iter().find(|stop| stop.reason != TOO_SMALL) {
            None if !stopped.is_empty() => "a NIC would gain nothing more here".into(),
            None if received == 0 => "nothing was received".into(),
            None => "a NIC that matches takes all of this application".into(),
            Some(NotByNic { remedy, .. }) => format!("what would help most: {remedy}"),
        };
        Self { slots, seed, received, hardware, hardware_percent, stopped, advice }
    }

    /// Receives that got a message, and how many of them the NIC matched.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.received, self.hardware)
    }

    /// The lines of the report.
    pub(super) fn text(&self) -> String {
        let mut out = format!(
            "{:<10} {:.1} % of {} receives, {}, would be matched by a NIC of {} entries\n",
            "nic",
            self.hardware_percent,
            show_count(self.received),
            show_count(self.hardware),
            show_count(self.slots.into()),
        );
        for NotByNic { reason, receives, percent, meaning, .. } in &self.stopped {
            let receives = show_count(*receives);
            let why = format!("because {meaning} ({reason})");
            out += &format!("{:<10} {percent:.1} % not, {receives}, {why}\n", "");
        }
        out + &format!("{:<10} {}\n", "nic advice", self.advice)
    }
}

/// Which of the reasons that the counter `source` has a trace can have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SourceReasons {
    names_source: bool,
    passed_by: bool,
}

impl SourceReasons {
    pub(super) fn new(trace: &Trace) -> Self {
        let mut reasons = Self::default();
        for op in &trace.ops {
            match op {
                TraceOp::Recv { pattern, is_sole: false, .. } => {
                    reasons.names_source |= pattern.source().is_some();
                }
                // In a replay, messages to oneself alone pass the NIC by.
                TraceOp::Msg { source, .. } => reasons.passed_by |= *source == ONESELF,
                _ => {}
            }
        }
        reasons
    }

    /// The one reason, if there is only one.
    fn meaning(self) -> Option<String> {
        match (self.names_source, self.passed_by) {
            (true, false) => Some(NAMES_SOURCE.into()),
            (false, true) => Some(PASSED_BY.into()),
            _ => None,
        }
    }
}

/// The reasons that occurred, the most frequent first.
fn stops(matching: &Matching, received: u64, sources: SourceReasons) -> Vec<NotByNic> {
    let mut stops = vec![NotByNic {
        reason: "unexpected",
        receives: matching.unexpected,
        percent: 0.0,
        meaning: "its message was there before it".into(),
        remedy: "receives posted before their messages come".into(),
    }];
    stops.extend(reasons().map(|Reason { name, meaning, remedy, count }| {
        let receives = count(&matching.not_offloaded);
        let meaning = sources.meaning().filter(|_| name == "source").unwrap_or(meaning);
        NotByNic { reason: name, receives, percent: 0.0, meaning, remedy }
    }));
    stops.retain(|stop| stop.receives > 0);
    for stop in &mut stops {
        stop.percent = percent(stop.receives, received);
    }
    stops.sort_by_key(|stop| std::cmp::Reverse(stop.receives));
    stops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_reason_is_first_and_the_advice_is_about_it() {
        let mut counters = Counters::default();
        (counters.hardware, counters.posted, counters.unexpected) = (50, 30, 20);
        (counters.not_offloaded.order, counters.not_offloaded.phase) = (29, 1);
        let report = NicReport::new(127, Some(4), &counters, SourceReasons::default());
        let reasons: Vec<_> =
            report.stopped.iter().map(|stop| (stop.reason, stop.receives)).collect();
        assert_eq!(reasons, [("order", 29), ("unexpected", 20), ("phase", 1)]);
        assert!(report.advice.contains("any-source receives"), "{}", report.advice);
        let text = report.text();
        assert!(text.starts_with("nic        50.0 % of 100 receives"), "{text}");
        assert!(text.contains("29.0 % not, 29, because an earlier receive"), "{text}");
        assert_eq!(text.lines().count(), 5);
    }

    #[test]
    fn without_a_reason_there_is_no_remedy() {
        let mut counters = Counters::default();
        let report = |counters| NicReport::new(1, None, &counters, SourceReasons::default());
        assert_eq!(report(counters).advice, "nothing was received");
        counters.hardware = 3;
        let all = report(counters);
        assert!(all.stopped.is_empty() && all.advice.contains("all of this application"));
        (counters.posted, counters.not_offloaded.too_small) = (9, 9);
        assert!(report(counters).advice.contains("nothing more"));
    }

    #[test]
    fn the_source_reason_is_one_that_the_trace_has() {
        // In this format no receive names a source apart from its tag, and no message is to
        // oneself.
        let trace = "tagtrace 1\nrecv 1 0 0 0 0\nmsg 2 0 0 0 0\n";
        let none = SourceReasons::new(&Trace::parse(trace.as_bytes()).unwrap());
        assert!(!none.names_source && !none.passed_by && none.meaning().is_none());
        let to_oneself = SourceReasons { passed_by: true, ..none };
        assert_eq!(to_oneself.meaning().as_deref(), Some(PASSED_BY));
        let named = SourceReasons { names_source: true, ..none };
        assert_eq!(named.meaning().as_deref(), Some(NAMES_SOURCE));
        let mut counters = Counters::default();
        (counters.posted, counters.not_offloaded.source) = (5, 5);
        let text = NicReport::new(1, None, &counters, to_oneself).text();
        assert!(!text.contains("names its source") && text.contains("to oneself"), "{text}");
    }
}
