//! What a trace tells of the program that it was recorded from.

use serde::Serialize;
use tagmatch_results::show::show_count;
use tagmatch_trace::{Fidelity, Stop, Trace};

/// The part of the report about a trace that a worker recorded.
#[derive(Serialize)]
pub(super) struct Recording {
    #[serde(skip_serializing_if = "String::is_empty")]
    about: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<Fidelity>,
    #[serde(skip_serializing_if = "is_zero")]
    repeated_probes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<&'static str>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Recording {
    pub(super) fn new(trace: &Trace, recorded: Option<Fidelity>) -> Self {
        let stopped = trace.stop.map(|stop| match stop {
            Stop::Full => "the trace had the greatest length that it was to have",
            Stop::NoSpace => "there was no space for the trace",
        });
        let about = trace.about.clone();
        let repeated_probes = trace.repeated_probes;
        Self { about, recorded, repeated_probes, stopped }
    }

    /// How many outcomes differ from the program's own.
    pub(super) fn differing(&self) -> u64 {
        self.recorded.map_or(0, |recorded| recorded.differing)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// The lines of the report.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, text: &str| out += &format!("{name:<10} {text}\n");
        if !self.about.is_empty() {
            line("program", &self.about);
        }
        match self.recorded {
            Some(Fidelity { compared, differing: 0, .. }) => {
                let all = show_count(compared);
                line("recorded", &format!("all {all} outcomes are those that the program had"));
            }
            Some(Fidelity { compared, differing, first }) => line(
                "recorded",
                &format!(
                    "{} of {} outcomes are not those that the program had, operation {} first: a \
                     defect of tagmatch or of the program's NIC",
                    show_count(differing),
                    show_count(compared),
                    show_count(first),
                ),
            ),
            None => {}
        }
        if self.repeated_probes > 0 {
            let times = show_count(self.repeated_probes);
            line(
                "polling",
                &format!("{times} probes repeated one that found nothing; not counted"),
            );
        }
        if let Some(why) = self.stopped {
            line("stopped", &format!("the program went on, but {why}"));
        }
        out
    }
}
