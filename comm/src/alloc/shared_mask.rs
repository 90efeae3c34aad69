//! The mask of one process, the parts of it that its allocations hold, and the steps of one
//! allocation.

use std::sync::Arc;

use super::resting::RestState;
use crate::error::{Error, in_range};
use crate::group::Group;
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
/// An allocation goes through as many later rounds before it asks about resting ids that its rounds
/// may settle.
const ROUNDS_UNASKED: u32 = 4;
/// The words of a round's operand that are added up: the sum of `settling.rs`.
const SUM_WORDS: usize = 2;

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
    /// The processes that take part, if the allocation settles resting ids.
    pub(crate) over: Option<Arc<Group>>,
    /// The resting ids that the sum of the round under way is about.
    summed: Vec<u32>,
    /// The number of later rounds that have ended, up to [`ROUNDS_UNASKED`].
    later: u32,
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

/// Combines the operands of two processes in a round, into the right one: the bitwise AND, and of
/// the last words the sum.
pub fn combine(left: &[u32], right: &mut [u32]) {
    let at = right.len().saturating_sub(SUM_WORDS);
    let sum_of = |words: &[u32]| {
        words.iter().rev().fold(0u64, |sum, word| sum << u32::BITS | u64::from(*word))
    };
    let sum = sum_of(left.get(at..).unwrap_or_default()).wrapping_add(sum_of(&right[at..]));
    right.iter_mut().zip(left).for_each(|(right, left)| *right &= left);
    right[at..].iter_mut().zip(halves(sum)).for_each(|(word, sum)| *word = sum);
}

fn halves(sum: u64) -> [u32; SUM_WORDS] {
    [sum & u64::from(u32::MAX), sum >> u32::BITS].map(|half| u32::try_from(half).unwrap_or(0))
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
        AllocationState {
            priority,
            role,
            ticket: self.tickets,
            is_first: true,
            over: None,
            summed: Vec::new(),
            later: 0,
            sweep: None,
        }
    }

    /// The process's operand in the allocation's next round: a bit for each id that it offers, a
    /// bit for each id that it has closed, a word of flags, and its part of the sum over resting
    /// ids (`settling.rs`). A first round is about the eager words only.
    pub(crate) fn offer(&mut self, state: &mut AllocationState) -> Vec<u32> {
        let words = self.words_of(state);
        let mut closed = vec![0; words];
        let mut sum = 0;
        if let Some(over) = &state.over {
            closed.copy_from_slice(&self.unheld()[..words]);
            self.resting.mark_closed(over, &mut closed);
            (sum, state.summed) = self.resting.sum(over);
        }
        let (mut offer, flags) = self.offer_ids(state, words);
        offer.extend(closed);
        offer.push(flags);
        offer.extend(halves(sum));
        offer
    }

    /// The ids that the process offers, and the flags.
    fn offer_ids(&mut self, state: &AllocationState, words: usize) -> (Vec<u32>, u32) {
        if state.role == Role::Ignored {
            return (vec![u32::MAX; words], u32::MAX);
        }
        let is_head = self.waiting.first().is_some_and(|first| first.ticket == state.ticket);
        let is_later = !state.is_first && is_head;
        let is_alone = !self.held.iter().any(|held| !held.is_first);
        let offer = if state.is_first {
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
        (offer, flags.into_iter().filter(|(_, is)| *is).map(|(flag, _)| flag).sum())
    }

    /// Takes in the [combination](combine) of all operands of a round. After an error, and after
    /// [`Progress::Done`], the allocation holds nothing.
    pub(crate) fn conclude(
        &mut self,
        state: &mut AllocationState,
        all: &[u32],
    ) -> Result<Progress<ContextId>, Error> {
        let words = self.words_of(state);
        let held = self.release(state);
        let parts = all.split_at_checked(words).and_then(|(ids, rest)| {
            let (closed, rest) = rest.split_at_checked(words)?;
            Some((ids, closed, <[u32; 1 + SUM_WORDS]>::try_from(rest).ok()?))
        });
        let Some((all, closed, [flags, low, high])) = parts else {
            self.abandon(state);
            return Err(Error::NotOffered);
        };
        if let Some(over) = &state.over {
            let sum = u64::from(high) << u32::BITS | u64::from(low);
            self.resting.take_in(over, closed, (sum, std::mem::take(&mut state.summed)));
        }
        let ignored = state.role == Role::Ignored;
        if let Some(prefix) = next_of(all) {
            self.unlist(state);
            if ignored {
                return Ok(Progress::Done(None));
            }
            let word = (prefix / u32::BITS) as usize;
            let bit = 1 << (prefix % u32::BITS);
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
        if std::mem::replace(&mut state.is_first, false) {
            self.resting.ask_about_others(state.over.as_ref());
        } else {
            state.later = ROUNDS_UNASKED.min(state.later + 1);
        }
        if !ignored {
            self.list(state);
            let may_settle = state.later < ROUNDS_UNASKED;
            if offered_all
                && state.sweep.is_none()
                && !(may_settle && self.resting.is_carried_by(state.over.as_ref()))
            {
                state.sweep = Some(self.resting.want());
            }
        }
        Ok(Progress::Again)
    }

    /// Ends an allocation at any point: it holds nothing any more.
    pub(crate) fn abandon(&mut self, state: &mut AllocationState) {
        self.release(state);
        self.unlist(state);
        // Other processes may know the sum, and have given these ids out again.
        for prefix in std::mem::take(&mut state.summed) {
            self.resting.stray(prefix);
        }
    }

    /// The errors in the books, once nothing allocates or has an id any more.
    pub(crate) fn audit(&self) -> Vec<String> {
        let free = self.free.free_count();
        let resting = self.resting.count();
        let ids = IdMask::new(self.free.layout()).free_count();
        let mut wrong = Vec::new();
        if free + resting != ids {
            wrong.push(format!("of {ids} ids {free} are free, {resting} rest"));
        }
        let left = [
            (self.held.len(), "parts of the mask are held"),
            (self.waiting.len(), "allocations wait"),
            (self.resting.creations(), "creations are under way"),
        ];
        let left = left.iter().filter(|(count, _)| *count > 0);
        wrong.extend(left.map(|(count, what)| format!("{count} {what}")));
        wrong
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
