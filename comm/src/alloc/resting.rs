//! Ids that no communicator of this process has any more, and that others may still send in.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::group::Group;

/// Processes that may send in an id, as far as they have the communicator that the id was allocated for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Senders {
    /// Names the allocation by which they got, or may get, the communicator.
    pub(crate) birth: u64,
    pub(crate) group: Arc<Group>,
}

/// An id that was freed, and who may still send in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Freed {
    pub(crate) prefix: u32,
    /// None: it is not known who, and the id stays out of use for good.
    pub(crate) senders: Vec<Senders>,
}

/// What allocations need to know of resting ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Resting {
    /// All that rest, those in `freed` and those that are never given out again among them.
    count: u32,
    /// Freed since the last call of [`take`](Self::take).
    freed: Vec<Freed>,
    /// Allocations under way, and ids of them that are in use, by the allocation's name.
    births: BTreeMap<u64, u32>,
    /// The latest sweep that has begun: other processes are asked about resting ids.
    begun: u64,
    /// The latest sweep that an allocation waits for.
    wanted: u64,
    /// The latest sweep from which on all have answered about each id that rested when it began.
    settled: u64,
}

impl Resting {
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// `sweep`: the first one whose answers count; none if it is not known yet.
    pub(crate) fn is_settled(&self, sweep: Option<u64>) -> bool {
        self.count == 0 || sweep.is_some_and(|sweep| self.settled >= sweep)
    }

    /// Asks for a sweep that begins later than now.
    pub(crate) fn want(&mut self) -> u64 {
        self.wanted = self.begun + 1;
        self.wanted
    }

    /// Lets an id rest.
    pub(crate) fn add(&mut self, freed: Freed) {
        self.count += 1;
        self.freed.push(freed);
    }

    pub(crate) fn take(&mut self) -> Vec<Freed> {
        std::mem::take(&mut self.freed)
    }

    /// One rests no more.
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

    /// A sweep begins: its number.
    pub(crate) fn sweep(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    pub(crate) fn settle(&mut self, sweep: u64) {
        self.settled = sweep;
    }

    pub(crate) fn enter(&mut self, birth: u64) {
        *self.births.entry(birth).or_default() += 1;
    }

    pub(crate) fn leave(&mut self, birth: u64) {
        if let Some(count) = self.births.get_mut(&birth) {
            *count -= 1;
            if *count == 0 {
                self.births.remove(&birth);
            }
        }
    }

    /// Whether this process has, or may still get, the communicator of this allocation.
    pub(crate) fn is_in(&self, birth: u64) -> bool {
        self.births.contains_key(&birth)
    }
}
