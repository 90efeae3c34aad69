//! Ids that this process has freed, and in which other processes may still send: they rest.
//!
//! A *stray* is a resting id that its members don't settle by their allocations, so that they must
//! be asked. A *sweep* is one round of these questions.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::id_use::IdUse;
use super::settling::ClosedUse;
use crate::group::Group;

/// A sweep begins when this many ids have become strays since the last one, and an allocation finds
/// no id at once.
const SWEEP_AT: u32 = 16;

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
    /// The use that has ended. `None`: the members do not settle it by their allocations.
    pub(crate) used: Option<Arc<IdUse>>,
}

/// How an id that was freed becomes free.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum RestStage {
    /// This process has not closed the id yet.
    Open,
    /// The allocations of its members settle the id.
    Closed(ClosedUse),
    /// The other processes must be asked.
    Stray,
    /// All members have closed the id, and nothing in it can arrive any more.
    Settled,
}

/// The state that allocations share with the service that asks about resting ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RestState {
    /// The resting ids, with those in `freed` and those that are never offered again.
    resting: BTreeMap<u32, RestStage>,
    /// The ids freed since the last call of [`take`](Self::take).
    freed: Vec<FreedId>,
    /// How many ids have become strays since the last sweep began.
    fresh: u32,
    /// Whether an allocation has found no id at once, and there were enough strays for a sweep.
    asks: bool,
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
        u32::try_from(self.resting.len()).unwrap_or(u32::MAX)
    }

    /// Whether the answers of this sweep have arrived. `None`: the sweep is not known yet.
    pub(crate) fn is_settled(&self, sweep: Option<u64>) -> bool {
        self.resting.is_empty() || sweep.is_some_and(|sweep| self.settled >= sweep)
    }

    /// Asks for a sweep that begins later than now. Returns its number.
    pub(crate) fn want(&mut self) -> u64 {
        self.wanted = self.begun + 1;
        self.wanted
    }

    /// Adds a resting id.
    pub(crate) fn add(&mut self, freed: FreedId) {
        let is_stray = freed.used.is_none();
        self.resting
            .insert(freed.prefix, if is_stray { RestStage::Stray } else { RestStage::Open });
        self.fresh += u32::from(is_stray && !freed.senders.is_empty());
        self.freed.push(freed);
    }

    pub(crate) fn take(&mut self) -> Vec<FreedId> {
        std::mem::take(&mut self.freed)
    }

    /// An id has stopped to rest.
    pub(crate) fn end(&mut self, prefix: u32) {
        self.resting.remove(&prefix);
    }

    /// This process has closed an id towards all that it has sent to. Returns `false` if nothing
    /// comes of that, because the id is a stray.
    pub(crate) fn close(&mut self, prefix: u32, close: impl FnOnce() -> ClosedUse) -> bool {
        match self.resting.get_mut(&prefix) {
            Some(rest @ RestStage::Open) => {
                *rest = RestStage::Closed(close());
                true
            }
            _ => false,
        }
    }

    /// Notes how many closings of a use this process has received.
    pub(crate) fn receive(&mut self, name: u64, received: u32) {
        if let Some((_, used)) = self.closed().find(|(_, used)| used.name() == name) {
            used.receive(received);
        }
    }

    /// From now on, an id is settled by asking alone.
    pub(crate) fn stray(&mut self, prefix: u32) {
        if let Some(rest @ (RestStage::Open | RestStage::Closed(_))) = self.resting.get_mut(&prefix)
        {
            *rest = RestStage::Stray;
            self.fresh += 1;
        }
    }

    pub(crate) fn is_stray(&self, prefix: u32) -> bool {
        self.resting.get(&prefix) == Some(&RestStage::Stray)
    }

    pub(crate) fn has_settled(&self, prefix: u32) -> bool {
        self.resting.get(&prefix) == Some(&RestStage::Settled)
    }

    fn closed(&mut self) -> impl Iterator<Item = (u32, &mut ClosedUse)> {
        self.resting.iter_mut().filter_map(|(prefix, rest)| match rest {
            RestStage::Closed(used) => Some((*prefix, used)),
            _ => None,
        })
    }

    /// Sets the bits of the ids that this process has closed, and that the allocations of these
    /// processes can settle. There are as many words as the round is about.
    pub(crate) fn mark_closed(&mut self, over: &Arc<Group>, words: &mut [u32]) {
        for (prefix, used) in self.closed() {
            if let Some(word) = words.get_mut((prefix / u32::BITS) as usize)
                && used.is_carried_by(over)
            {
                *word |= 1 << (prefix % u32::BITS);
            }
        }
    }

    /// This process's part of the sum of a round of these processes, and the ids that it is about.
    pub(crate) fn sum(&mut self, over: &Arc<Group>) -> (u64, Vec<u32>) {
        let mut sum = 0u64;
        let mut summed = Vec::new();
        for (prefix, used) in self.closed() {
            if let Some(term) = used.term(over) {
                sum = sum.wrapping_add(term);
                summed.push(prefix);
            }
        }
        (sum, summed)
    }

    /// Takes in the result of a round of these processes: the bits of the ids that all have closed,
    /// and the sum over the ids in `summed`.
    pub(crate) fn take_in(
        &mut self,
        over: &Arc<Group>,
        closed: &[u32],
        (sum, summed): (u64, Vec<u32>),
    ) {
        for prefix in summed {
            let Some(rest) = self.resting.get_mut(&prefix) else { continue };
            let RestStage::Closed(used) = rest else { continue };
            if sum == 0 {
                *rest = RestStage::Settled;
            } else if used.fail() {
                self.stray(prefix);
            }
        }
        for (prefix, used) in self.closed() {
            if let Some(word) = closed.get((prefix / u32::BITS) as usize) {
                used.agree(over, word >> (prefix % u32::BITS) & 1 == 1);
            }
        }
    }

    /// Whether all resting ids can be settled by allocations of these processes.
    pub(crate) fn is_carried_by(&mut self, over: Option<&Arc<Group>>) -> bool {
        self.resting.values_mut().all(|rest| match rest {
            RestStage::Open | RestStage::Settled => true,
            RestStage::Closed(used) => over.is_some_and(|over| used.is_carried_by(over)),
            RestStage::Stray => false,
        })
    }

    /// An allocation of these processes has found no id at once. If there are many ids that such
    /// allocations can't settle, these become strays, and the other processes are asked.
    pub(crate) fn ask_about_others(&mut self, over: Option<&Arc<Group>>) {
        let closed = self.closed();
        let others: Vec<u32> = closed
            .filter_map(|(prefix, used)| {
                let is_carried = over.is_some_and(|over| used.is_carried_by(over));
                (!is_carried).then_some(prefix)
            })
            .collect();
        if self.fresh as usize + others.len() >= SWEEP_AT as usize {
            for prefix in others {
                self.stray(prefix);
            }
            self.asks = true;
        }
    }

    /// Whether an allocation waits, or waited lately, for answers.
    pub(crate) fn is_awaited(&self) -> bool {
        self.wanted > self.settled
    }

    /// Begins a sweep if there is a reason to, and returns its number. If an allocation waits for
    /// the sweep, the sweep is about all resting ids, which become strays.
    pub(crate) fn begin_sweep(&mut self) -> Option<u64> {
        let is_full = self.wanted > self.begun;
        if !(is_full || self.asks) {
            return None;
        }
        if is_full {
            let open =
                |rest: &&mut RestStage| matches!(rest, RestStage::Open | RestStage::Closed(_));
            self.resting.values_mut().filter(open).for_each(|rest| *rest = RestStage::Stray);
        }
        (self.fresh, self.asks) = (0, false);
        self.begun += 1;
        Some(self.begun)
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

    /// The number of creations that this process takes part in.
    pub(crate) fn creations(&self) -> usize {
        self.creations.len()
    }

    /// Whether this process has, or may still get, the communicator of this creation.
    pub(crate) fn takes_part(&self, creation: u64) -> bool {
        self.creations.contains_key(&creation)
    }
}
