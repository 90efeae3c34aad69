//! Counters of the shadow.

use crate::config::Why;

/// Event counts since the start, and gauges of the current state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Receives that the NIC matched.
    pub hardware: u64,
    /// Receives that software matched, by reason, in the order of [`Why::ALL`].
    pub software: [u64; Why::ALL.len()],
    /// Entries added.
    pub added: u64,
    /// Entries that were deleted because they missed their phase.
    pub again: u64,
    /// Unexpected messages of the list that took a receive whose entry was then withdrawn.
    pub withdrawn: u64,
    /// Messages that had to wait until the NIC had answered a delete.
    pub waited: u64,
    /// Messages that came past the list, and whose receive was in the list.
    pub past_list: u64,
    /// Deletes that the NIC executed after the entry had matched.
    pub lost: u64,
    /// Sync operations sent.
    pub synced: u64,
    /// Operations that the NIC refused.
    pub refused: u64,
    /// Gauge: receives that are posted.
    pub receives: usize,
    /// Gauge: receives in software that may still be added to the NIC's list.
    pub waiting: usize,
    /// Gauge: slots in use.
    pub slots: usize,
    /// Whether the list is broken. A broken list gets no more receives.
    pub broken: bool,
}
