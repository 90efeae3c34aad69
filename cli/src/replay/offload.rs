//! How much of a trace a NIC would match, what stopped the rest, and what can be done about it.

use std::fmt::Write as _;

use serde::Serialize;
use tagmatch::Counters;

use super::ratio;
use crate::reasons::{Reason, reasons};
use crate::result::Matching;
use crate::units::show_count;

/// What came of a replay with a NIC.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Offload {
    /// Entries of the NIC's list.
    slots: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    /// Receives that got a message, those of matched probes included.
    received: u64,
    /// Of those, by the NIC.
    hardware: u64,
    hardware_percent: f64,
    /// What stopped the others, the most frequent first.
    stopped: Vec<Stop>,
    advice: String,
}

/// Receives that the NIC did not match, for one reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Stop {
    reason: &'static str,
    receives: u64,
    percent: f64,
    meaning: String,
    #[serde(skip)]
    remedy: String,
}

impl Offload {
    pub(super) fn new(slots: u32, seed: Option<u64>, counters: &Counters) -> Self {
        let matching = Matching::from(*counters);
        let hardware = matching.hardware;
        let received = hardware + matching.posted + matching.unexpected;
        let stopped = stops(&matching, received);
        let hardware_percent = 100.0 * ratio(hardware, received);
        let advice = match stopped.first() {
            None if received == 0 => "nothing was received".into(),
            None => "a NIC that matches takes all of this application".into(),
            Some(Stop { remedy, .. }) => format!("what would help most: {remedy}"),
        };
        Self { slots, seed, received, hardware, hardware_percent, stopped, advice }
    }

    /// Lines for people, each with its heading.
    pub(super) fn text(&self) -> String {
        let mut out = format!(
            "{:<10} {:.1} % of {} receives, {}, would be matched by a NIC of {} entries\n",
            "nic",
            self.hardware_percent,
            show_count(self.received),
            show_count(self.hardware),
            show_count(self.slots.into()),
        );
        for Stop { reason, receives, percent, meaning, .. } in &self.stopped {
            let receives = show_count(*receives);
            writeln!(
                out,
                "{:<10} {percent:.1} % not, {receives}, because {meaning} ({reason})",
                ""
            )
            .expect("a String takes all");
        }
        writeln!(out, "{:<10} {}", "nic advice", self.advice).expect("a String takes all");
        out
    }
}

/// Every reason that stopped receives.
fn stops(matching: &Matching, received: u64) -> Vec<Stop> {
    let mut stops = vec![Stop {
        reason: "unexpected",
        receives: matching.unexpected,
        percent: 0.0,
        meaning: "its message was there before it".into(),
        remedy: "receives posted before their messages come".into(),
    }];
    stops.extend(reasons().map(|Reason { name, meaning, remedy, count }| {
        let receives = count(&matching.not_offloaded);
        Stop { reason: name, receives, percent: 0.0, meaning, remedy }
    }));
    stops.retain(|stop| stop.receives > 0);
    for stop in &mut stops {
        stop.percent = 100.0 * ratio(stop.receives, received);
    }
    stops.sort_by_key(|stop| std::cmp::Reverse(stop.receives));
    stops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stopped_most_is_told_first_and_advised_on() {
        let mut counters = Counters::default();
        (counters.hardware, counters.posted, counters.unexpected) = (50, 30, 20);
        (counters.not_offloaded.order, counters.not_offloaded.phase) = (29, 1);
        let offload = Offload::new(127, Some(4), &counters);
        let told: Vec<_> =
            offload.stopped.iter().map(|stop| (stop.reason, stop.receives)).collect();
        assert_eq!(told, [("order", 29), ("unexpected", 20), ("phase", 1)]);
        assert!(offload.advice.contains("any-source receives"), "{}", offload.advice);
        let text = offload.text();
        assert!(text.starts_with("nic        50.0 % of 100 receives"), "{text}");
        assert!(text.contains("29.0 % not, 29, because an earlier receive"), "{text}");
        assert_eq!(text.lines().count(), 5);
    }

    #[test]
    fn nothing_stopped_nothing_to_do() {
        let mut counters = Counters::default();
        assert_eq!(Offload::new(1, None, &counters).advice, "nothing was received");
        counters.hardware = 3;
        let all = Offload::new(1, None, &counters);
        assert!(all.stopped.is_empty() && all.advice.contains("all of this application"));
    }
}
