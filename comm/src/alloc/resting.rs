//! Ids that this process has freed, and in which other processes may still send.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::group::Group;

/// Processes that may send in an id, while they have the communicator that the id was allocated
/// for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Senders {
    /// Names the creation that gives them the communicator.
    pub(crate) creation: u64,
    pub(crate) group: Arc<Group>,
}

/// An id that was freed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FreedId {
    pub(crate) prefix: u32,
    /// The processes that may still send in the id. Empty: they are not known, and the id is never
    /// offered again.
    pub(crate) senders: Vec<Senders>,
}

/// The state that allocations share with the service that asks about resting ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RestState {
    /// The number of resting ids, with those in `freed` and those that are never offered again.
    count: u32,
    /// The ids freed since the last call of [`take`](Self::take).
    freed: Vec<FreedId>,
    /// The creations that this process takes part in: for each, the number of its allocations under
    /// way and of its ids in use.
    creations: BTreeMap<u64, u32>,
    /// The latest sweep that has begun.
    begun: u64,
    /// The latest sweep that an allocation waits for.
    wanted: u64,
    /// The latest sweep in which all processes have answered about each id that rested when it
    /// began.
    settled: u64,
}

impl RestState {
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Whether the answers of this sweep have arrived. `None`: the sweep is not known yet.
    pub(crate) fn is_settled(&self, sweep: Option<u64>) -> bool {
        self.count == 0 || sweep.is_some_and(|sweep| self.settled >= sweep)
    }

    /// Asks for a sweep that begins later than now. Returns its number.
    pub(crate) fn want(&mut self) -> u64 {
        self.wanted = self.begun + 1;
        self.wanted
    }

    /// Adds a resting id.
    pub(crate) fn add(&mut self, freed: FreedId) {
        self.count += 1;
        self.freed.push(freed);
    }

    pub(crate) fn take(&mut self) -> Vec<FreedId> {
        std::mem::take(&mut self.freed)
    }

    /// An id has stopped to rest.
    pub(crate) fn end(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    /// Whether an allocation waits for a sweep that has not begun.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted > self.begun
    }

    /// Whether an allocation waits, or waited lately, for answers.
    pub(crate) fn is_awaited(&self) -> bool {
        self.wanted > self.settled
    }

    /// Begins a sweep. Returns its number.
    pub(crate) fn begin_sweep(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    pub(crate) fn settle(&mut self, sweep: u64) {
        self.settled = sweep;
    }

    pub(crate) fn enter_creation(&mut self, creation: u64) {
        *self.creations.entry(creation).or_default() += 1;
    }

    pub(crate) fn leave_creation(&mut self, creation: u64) {
        if let Some(count) = self.creations.get_mut(&creation) {
            *count -= 1;
            if *count == 0 {
                self.creations.remove(&creation);
            }
        }
    }

    /// Whether this process has, or may still get, the communicator of this creation.
    pub(crate) fn takes_part(&self, creation: u64) -> bool {
        self.creations.contains_key(&creation)
    }
}
