//! How much of a trace a NIC would match, why not the rest, and what would help.

use serde::Serialize;
use tagmatch::Counters;

use super::wording::percent;
use crate::reasons::{Reason, reasons};
use crate::result::Matching;
use crate::units::show_count;

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
    pub(super) fn new(slots: u32, seed: Option<u64>, counters: &Counters) -> Self {
        let matching = Matching::from(*counters);
        let hardware = matching.hardware;
        let received = hardware + matching.posted + matching.unexpected;
        let stopped = stops(&matching, received);
        let hardware_percent = percent(hardware, received);
        let advice = match stopped.first() {
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

/// The reasons that occurred, the most frequent first.
fn stops(matching: &Matching, received: u64) -> Vec<NotByNic> {
    let mut stops = vec![NotByNic {
        reason: "unexpected",
        receives: matching.unexpected,
        percent: 0.0,
        meaning: "its message was there before it".into(),
        remedy: "receives posted before their messages come".into(),
    }];
    stops.extend(reasons().map(|Reason { name, meaning, remedy, count }| {
        let receives = count(&matching.not_offloaded);
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
        let report = NicReport::new(127, Some(4), &counters);
        let told: Vec<_> = report.stopped.iter().map(|stop| (stop.reason, stop.receives)).collect();
        assert_eq!(told, [("order", 29), ("unexpected", 20), ("phase", 1)]);
        assert!(report.advice.contains("any-source receives"), "{}", report.advice);
        let text = report.text();
        assert!(text.starts_with("nic        50.0 % of 100 receives"), "{text}");
        assert!(text.contains("29.0 % not, 29, because an earlier receive"), "{text}");
        assert_eq!(text.lines().count(), 5);
    }

    #[test]
    fn without_a_reason_there_is_no_remedy() {
        let mut counters = Counters::default();
        assert_eq!(NicReport::new(1, None, &counters).advice, "nothing was received");
        counters.hardware = 3;
        let all = NicReport::new(1, None, &counters);
        assert!(all.stopped.is_empty() && all.advice.contains("all of this application"));
    }
}
