//! What a process did with its messages, as numbers of one row of the report.

use tagmatch::Counters;

/// The columns of the report's numbers, in order.
pub(crate) const COLUMNS: [&str; 20] = [
    "received",
    "nic",
    "posted",
    "unexpected",
    "off",
    "too_small",
    "source",
    "order",
    "list_full",
    "memory",
    "slices",
    "phase",
    "sent_eager",
    "sent_rendezvous",
    "truncated",
    "cancelled",
    "peer_faults",
    "posted_max",
    "unexpected_max",
    "bugs",
];

/// The columns from this one on are maxima; those before are sums.
const MAXIMA: usize = 17;

/// The numbers of a process, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row(pub(crate) [u64; COLUMNS.len()]);

impl Row {
    /// The numbers of a worker. `posted` and `unexpected`: the most receives that were posted at
    /// one time, and the most unexpected messages that were seen.
    pub(crate) fn of(counters: &Counters, posted: u64, unexpected: u64) -> Self {
        let c = counters;
        let why = &c.not_offloaded;
        Row([
            c.hardware + c.posted + c.unexpected + c.by_device,
            c.hardware,
            c.posted,
            c.unexpected,
            why.off,
            why.too_small,
            why.source,
            why.order,
            why.list_full,
            why.memory,
            why.slices,
            why.phase,
            c.eager_sent,
            c.rendezvous_sent,
            c.truncated,
            c.cancelled,
            c.peer_faults,
            posted,
            unexpected,
            c.bugs,
        ])
    }

    /// Adds the numbers of another worker, or of another process.
    pub(crate) fn add(&mut self, other: &Row) {
        for (index, (mine, other)) in self.0.iter_mut().zip(other.0).enumerate() {
            *mine = if index < MAXIMA { mine.saturating_add(other) } else { (*mine).max(other) };
        }
    }

    /// The number in a column.
    pub(crate) fn get(&self, column: &str) -> u64 {
        let found = COLUMNS.iter().position(|name| *name == column);
        found.map_or(0, |index| self.0[index])
    }
}
