//! The mask of one process, the parts of it that its allocations hold, and the steps of one
//! allocation.

use super::resting::RestState;
use crate::error::{Error, in_range};
use crate::ids::{ContextId, IdLayout, IdMask, next_of};

/// The part of a process in an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The process will be a member of the communicator.
    Member,
    /// The process takes part in the reduction, and uses up no id.
    Ignored,
}

/// Flag: the process offered every free id that no later round of another allocation holds.
const OFFERED_ALL: u32 = 1;
/// Flag: some id of the mask is free, or rests.
const ANY_FREE: u32 = 2;
/// Flag: for every id that rests in the process, it is known whether another process uses it.
const SETTLED: u32 = 4;

/// The most ids that a first round holds.
const HELD_MAX: u32 = 8;
/// A first round holds ids only if at least this many are free and not held by another allocation.
const PLENTY: u32 = 32;

/// The order of the allocations of one process: by the parent's context, then by tag. It is the
/// same in all processes, in whatever order the allocations begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Priority {
    pub(crate) parent: ContextId,
    pub(crate) tag: u32,
}

/// Numbers the allocations of one process. Allocations with the same priority begin in the same
/// order in all processes, as collective calls on one communicator do.
type Ticket = u64;

/// An allocation whose first round has found no id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Queued {
    priority: Priority,
    ticket: Ticket,
}

/// The ids that an allocation offers in its current round. No other allocation of the process
/// offers them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Hold {
    ticket: Ticket,
    words: Vec<u32>,
    is_first: bool,
}

/// The mask of a process, and the parts of it that allocations hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SharedMask {
    pub(crate) free: IdMask,
    /// The number of words, from the first on, that a first round may offer.
    eager_words: usize,
    /// [`HELD_MAX`] and [`PLENTY`], except in tests with few ids.
    pub(crate) held_max: u32,
    pub(crate) plenty: u32,
    held: Vec<Hold>,
    /// Sorted. Only the first allocation offers ids.
    waiting: Vec<Queued>,
    tickets: Ticket,
    pub(crate) resting: RestState,
}

/// One allocation in one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AllocationState {
    priority: Priority,
    pub(crate) role: Role,
    ticket: Ticket,
    is_first: bool,
    /// The first sweep whose answers about resting ids count. It begins when all members have begun
    /// the allocation, and so have freed all ids that they free before it.
    sweep: Option<u64>,
}

/// How a round of an allocation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress<T> {
    /// No id yet: another round.
    Again,
    /// All members have the id. A process with [`Role::Ignored`] has none.
    Done(Option<T>),
}

impl SharedMask {
    pub(crate) fn new(layout: IdLayout, eager_words: usize) -> Result<Self, Error> {
        // One word of the mask must be left for further rounds.
        let max = layout.words() as u64 - 1;
        in_range("eager_words", eager_words as u64, 0, max)?;
        Ok(SharedMask {
            free: IdMask::new(layout),
            eager_words,
            held_max: HELD_MAX,
            plenty: PLENTY,
            held: Vec::new(),
            waiting: Vec::new(),
            tickets: 0,
            resting: RestState::default(),
        })
    }

    pub(crate) fn begin(&mut self, priority: Priority, role: Role) -> AllocationState {
        self.tickets += 1;
        AllocationState { priority, role, ticket: self.tickets, is_first: true, sweep: None }
    }

    /// The process's operand in the allocation's next round: a bit for each id that it
    /// offers, and a word of flags. A first round is about the eager words only.
    pub(crate) fn offer(&mut self, state: &AllocationState) -> Vec<u32> {
        let words = self.words_of(state);
        if state.role == Role::Ignored {
            return vec![u32::MAX; words + 1];
        }
        let is_head = self.waiting.first().is_some_and(|first| first.ticket == state.ticket);
        let is_later = !state.is_first && is_head;
        let is_alone = !self.held.iter().any(|held| !held.is_first);
        let mut offer = if state.is_first {
            self.first_offer(words)
        } else if is_head {
            self.unheld()
        } else {
            vec![0; words]
        };
        if offer.iter().any(|word| *word != 0) {
            let AllocationState { ticket, is_first, .. } = *state;
            self.held.push(Hold { ticket, words: offer.clone(), is_first });
        }
        let rests = self.resting.count();
        let is_settled = self.resting.is_settled(state.sweep);
        let flags = [
            (OFFERED_ALL, is_later && is_alone),
            (ANY_FREE, self.free.free_count() + rests > 0),
            (SETTLED, is_settled),
        ];
        offer.push(flags.into_iter().filter(|(_, is)| *is).map(|(flag, _)| flag).sum());
        offer
    }

    /// Takes in the bitwise AND of all offers of a round. After an error, and after
    /// [`Progress::Done`], the allocation holds nothing.
    pub(crate) fn conclude(
        &mut self,
        state: &mut AllocationState,
        all: &[u32],
    ) -> Result<Progress<ContextId>, Error> {
        let words = self.words_of(state);
        let held = self.release(state);
        let Some(flags) = all.get(words).filter(|_| all.len() == words + 1) else {
            self.abandon(state);
            return Err(Error::NotOffered);
        };
        let ignored = state.role == Role::Ignored;
        if let Some(prefix) = next_of(&all[..words]) {
            self.unlist(state);
            if ignored {
                return Ok(Progress::Done(None));
            }
            let (word, bit) = ((prefix / u32::BITS) as usize, 1 << (prefix % u32::BITS));
            let offered = held.is_some_and(|words| words[word] & bit != 0);
            let id = self.free.take(prefix).filter(|_| offered).ok_or(Error::NotOffered)?;
            return Ok(Progress::Done(Some(id)));
        }
        let offered_all = flags & OFFERED_ALL != 0;
        if offered_all && flags & SETTLED != 0 {
            self.unlist(state);
            let ids = self.free.layout().ids();
            let fragmented = flags & ANY_FREE != 0;
            return Err(if fragmented {
                Error::Fragmented { ids }
            } else {
                Error::Exhausted { ids }
            });
        }
        state.is_first = false;
        if !ignored {
            self.list(state);
            if offered_all && state.sweep.is_none() {
                state.sweep = Some(self.resting.want());
            }
        }
        Ok(Progress::Again)
    }

    /// Ends an allocation at any point: it holds nothing any more.
    pub(crate) fn abandon(&mut self, state: &AllocationState) {
        self.release(state);
        self.unlist(state);
    }

    /// Whether no allocation holds anything.
    #[cfg(test)]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }

    fn words_of(&self, state: &AllocationState) -> usize {
        if state.is_first { self.eager_words } else { self.free.words().len() }
    }

    /// The free ids that no other allocation holds.
    fn unheld(&self) -> Vec<u32> {
        let mut free = self.free.words().to_vec();
        for held in &self.held {
            free.iter_mut().zip(&held.words).for_each(|(free, held)| *free &= !held);
        }
        free
    }

    /// The offer of a first round: the first few free ids of the eager words. The round may have to
    /// wait long for members that have not begun. So it holds few ids, and none once ids are
    /// scarce: other allocations go on.
    fn first_offer(&self, words: usize) -> Vec<u32> {
        let mut free = self.unheld();
        let count: u32 = free.iter().map(|word| word.count_ones()).sum();
        free.truncate(words);
        let is_plenty = count >= self.plenty;
        let mut left = if is_plenty { self.held_max } else { 0 };
        for word in &mut free {
            let mut kept = 0;
            while left > 0 && *word != 0 {
                let highest = 1 << word.ilog2();
                kept |= highest;
                *word &= !highest;
                left -= 1;
            }
            *word = kept;
        }
        free
    }

    fn release(&mut self, state: &AllocationState) -> Option<Vec<u32>> {
        let at = self.held.iter().position(|held| held.ticket == state.ticket)?;
        Some(self.held.swap_remove(at).words)
    }

    fn unlist(&mut self, state: &AllocationState) {
        self.waiting.retain(|waiting| waiting.ticket != state.ticket);
    }

    fn list(&mut self, state: &AllocationState) {
        if self.waiting.iter().any(|waiting| waiting.ticket == state.ticket) {
            return;
        }
        let waiting = Queued { priority: state.priority, ticket: state.ticket };
        let at = self.waiting.partition_point(|other| *other < waiting);
        self.waiting.insert(at, waiting);
    }
}
