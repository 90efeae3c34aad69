//! Counts of where receives were matched, for JSON and for the control channel.

use serde::{Deserialize, Serialize};
use tagmatch::{Counters, NotOffloaded};

use crate::config::is_zero;

/// Counts of where receives were matched. `hardware + posted + unexpected + by_device` are all of
/// them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matching {
    /// By a NIC.
    pub hardware: u64,
    /// By a posted receive in software.
    pub posted: u64,
    /// By an unexpected message.
    pub unexpected: u64,
    /// By a device that doesn't say where; absent if 0.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub by_device: u64,
    /// Those of `posted` that no NIC matched, by reason.
    #[serde(with = "NotOffloadedInJson")]
    pub not_offloaded: NotOffloaded,
    /// Events of a NIC's list that break its rules; absent if 0.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub list_faults: u64,
    /// States that can't be, which the processes have met: bugs of tagmatch. Absent if 0.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub bugs: u64,
    /// Messages that left over a network, beside shared memory; absent if 0.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub sent_beyond: u64,
    /// Long messages that went through the devices' own buffers, since memory could not be
    /// registered for them; absent if 0.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub unregistered: u64,
}

/// Receives among `posted` that no NIC matched, by reason; absent if 0.
#[derive(Serialize, Deserialize)]
#[serde(remote = "NotOffloaded", deny_unknown_fields, default = "NotOffloaded::default")]
struct NotOffloadedInJson {
    #[serde(skip_serializing_if = "is_zero")]
    too_small: u64,
    #[serde(skip_serializing_if = "is_zero")]
    list_full: u64,
    #[serde(skip_serializing_if = "is_zero")]
    order: u64,
    #[serde(skip_serializing_if = "is_zero")]
    source: u64,
    #[serde(skip_serializing_if = "is_zero")]
    memory: u64,
    #[serde(skip_serializing_if = "is_zero")]
    slices: u64,
    #[serde(skip_serializing_if = "is_zero")]
    phase: u64,
    #[serde(skip_serializing_if = "is_zero")]
    off: u64,
}

impl From<Counters> for Matching {
    fn from(counters: Counters) -> Self {
        let Counters { hardware, posted, unexpected, by_device, .. } = counters;
        let Counters { not_offloaded, list_faults, bugs, sent_beyond, unregistered, .. } = counters;
        Self {
            hardware,
            posted,
            unexpected,
            by_device,
            not_offloaded,
            list_faults,
            bugs,
            sent_beyond,
            unregistered,
        }
    }
}

impl Matching {
    /// How many counts there are.
    pub const COUNTS: usize = 16;

    /// All counts, in an order that every process of this version knows.
    pub fn counts(mut self) -> [u64; Self::COUNTS] {
        self.places().map(|count| *count)
    }

    /// The counts of [`counts`](Self::counts).
    pub fn of_counts(counts: [u64; Self::COUNTS]) -> Self {
        let mut matching = Self::default();
        matching.places().into_iter().zip(counts).for_each(|(place, count)| *place = count);
        matching
    }

    fn places(&mut self) -> [&mut u64; Self::COUNTS] {
        let reasons = &mut self.not_offloaded;
        [
            &mut self.hardware,
            &mut self.posted,
            &mut self.unexpected,
            &mut self.by_device,
            &mut reasons.too_small,
            &mut reasons.list_full,
            &mut reasons.order,
            &mut reasons.source,
            &mut reasons.memory,
            &mut reasons.slices,
            &mut reasons.phase,
            &mut reasons.off,
            &mut self.list_faults,
            &mut self.bugs,
            &mut self.sent_beyond,
            &mut self.unregistered,
        ]
    }

    /// Adds counts of another side or row.
    pub fn add(&mut self, more: &Self) {
        *self = self.merged(more, u64::saturating_add);
    }

    /// The difference to earlier counts.
    pub fn since(self, before: &Self) -> Self {
        self.merged(before, u64::saturating_sub)
    }

    fn merged(&self, other: &Self, with: fn(u64, u64) -> u64) -> Self {
        let ours = self.counts();
        let theirs = other.counts();
        Self::of_counts(std::array::from_fn(|at| with(ours[at], theirs[at])))
    }
}

/// The matches that the NIC below a worker counted during a test: those of all processes that use
/// the NIC.
/// They are no part of [`Matching`], which has the receives of the processes that measure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct NicCounted {
    /// The NIC's name.
    pub nic: String,
    /// Messages that met a posted receive.
    pub posted: u64,
    /// Messages that came before their receive.
    pub unexpected: u64,
    /// Messages that the NIC left to software to match.
    pub in_software: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matching() -> Matching {
        let not_offloaded = NotOffloaded { off: 19, ..NotOffloaded::default() };
        Matching { posted: 19, unexpected: 1, not_offloaded, ..Matching::default() }
    }

    #[test]
    fn sums_and_differences() {
        let mut sum = matching();
        sum.add(&matching());
        assert_eq!((sum.posted, sum.unexpected, sum.not_offloaded.off), (38, 2, 38));
        assert_eq!(sum.since(&matching()), matching());
        let all = std::array::from_fn(|at| at as u64);
        assert_eq!(Matching::of_counts(all).counts(), all);
        let faulty = Matching { list_faults: 2, ..matching() };
        let mut counters = Counters::default();
        counters.bugs = 3;
        let buggy = Matching::from(counters);
        assert!(serde_json::to_string(&buggy).unwrap().ends_with(",\"bugs\":3}"));
        assert!(!serde_json::to_string(&sum).unwrap().contains("list_faults"));
        assert!(serde_json::to_string(&faulty).unwrap().ends_with(",\"list_faults\":2}"));
        assert_eq!(faulty.since(&matching()).list_faults, 2);
        assert_eq!(
            serde_json::from_str::<Matching>(&serde_json::to_string(&sum).unwrap()).unwrap(),
            sum
        );
    }
}
