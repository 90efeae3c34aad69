//! What the allocations of one process hold of its mask, and the steps of one of them.

use crate::error::Error;
use crate::ids::{ContextId, IdLayout, IdMask, next_of};

use super::Role;
use super::resting::Resting;

/// In the flag word: the process offered every free id that no later round of another allocation holds.
const OFFERED_ALL: u32 = 1;
/// In the flag word: some id of its mask is free, or rests.
const ANY_FREE: u32 = 2;
/// In the flag word: of every id that rests in the process it is known whether another process uses it.
const SETTLED: u32 = 4;

/// Most ids that a first round holds.
const HELD_MAX: u32 = 8;
/// A first round holds ids only if at least so many are free that no other allocation holds.
const PLENTY: u32 = 32;

/// Orders the allocations of one process: by the parent's context, then by tag. All processes order them
/// alike, whoever asks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) parent: ContextId,
    pub(crate) tag: u32,
}

/// Tells the allocations of one process apart. Those with the same key began in the same order everywhere,
/// as collective calls on one communicator do.
type Ticket = u64;

/// An allocation whose first round has failed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Waiting {
    key: Key,
    ticket: Ticket,
}

/// The ids that an allocation offers in its round: no other allocation of the process offers them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    ticket: Ticket,
    words: Vec<u32>,
    is_first: bool,
}

/// The mask of a process, and who holds which part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Claims {
    pub(crate) mask: IdMask,
    /// Words from the first on that a first round may offer.
    eager_words: usize,
    /// [`HELD_MAX`] and [`PLENTY`], but in tests of a few ids.
    pub(crate) held_max: u32,
    pub(crate) plenty: u32,
    held: Vec<Held>,
    /// Sorted: only the first one offers anything.
    waiting: Vec<Waiting>,
    tickets: Ticket,
    pub(crate) resting: Resting,
}

/// One allocation in one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    key: Key,
    role: Role,
    ticket: Ticket,
    is_first: bool,
    /// The sweep from which on answers about resting ids count: it begins when all members have begun the
    /// allocation, and so have freed what they free before it.
    sweep: Option<u64>,
}

impl Attempt {
    pub(crate) fn role(&self) -> Role {
        self.role
    }
}

/// How a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Round {
    /// No id yet: another round.
    Again,
    /// The id; none for a process that is ignored.
    Done(Option<ContextId>),
}

impl Claims {
    pub(crate) fn new(layout: IdLayout, eager_words: usize) -> Result<Self, Error> {
        if eager_words >= layout.words() {
            let max = u32::try_from(layout.words() - 1).unwrap_or(u32::MAX);
            return Err(Error::Layout { what: "eager words, which leave one of the mask", max });
        }
        Ok(Claims {
            mask: IdMask::new(layout),
            eager_words,
            held_max: HELD_MAX,
            plenty: PLENTY,
            held: Vec::new(),
            waiting: Vec::new(),
            tickets: 0,
            resting: Resting::default(),
        })
    }

    pub(crate) fn begin(&mut self, key: Key, role: Role) -> Attempt {
        self.tickets += 1;
        Attempt { key, role, ticket: self.tickets, is_first: true, sweep: None }
    }

    /// What the process contributes to the attempt's next round: a bit for each id that it could take, and a
    /// word of flags. A first round is about the eager words alone.
    pub(crate) fn offer(&mut self, attempt: &Attempt) -> Vec<u32> {
        let words = self.words_of(attempt);
        if attempt.role == Role::Ignored {
            return vec![u32::MAX; words + 1];
        }
        let is_head = self.waiting.first().is_some_and(|first| first.ticket == attempt.ticket);
        let is_later = !attempt.is_first && is_head;
        let is_alone = !self.held.iter().any(|held| !held.is_first);
        let mut offer = if attempt.is_first {
            self.promise(words)
        } else if is_head {
            self.unheld()
        } else {
            vec![0; words]
        };
        if offer.iter().any(|word| *word != 0) {
            let Attempt { ticket, is_first, .. } = *attempt;
            self.held.push(Held { ticket, words: offer.clone(), is_first });
        }
        let rests = self.resting.count();
        let is_settled = self.resting.is_settled(attempt.sweep);
        let flags = [
            (OFFERED_ALL, is_later && is_alone),
            (ANY_FREE, self.mask.free_count() + rests > 0),
            (SETTLED, is_settled),
        ];
        offer.push(flags.into_iter().filter(|(_, is)| *is).map(|(flag, _)| flag).sum());
        offer
    }

    /// Takes in the bitwise AND of all offers of a round. After an error, and after [`Round::Done`], the
    /// attempt holds nothing any more.
    pub(crate) fn conclude(&mut self, attempt: &mut Attempt, all: &[u32]) -> Result<Round, Error> {
        let words = self.words_of(attempt);
        let held = self.release(attempt);
        let Some(flags) = all.get(words).filter(|_| all.len() == words + 1) else {
            self.abandon(attempt);
            return Err(Error::NotOffered);
        };
        let ignored = attempt.role == Role::Ignored;
        if let Some(prefix) = next_of(&all[..words]) {
            self.unlist(attempt);
            if ignored {
                return Ok(Round::Done(None));
            }
            let (word, bit) = ((prefix / u32::BITS) as usize, 1 << (prefix % u32::BITS));
            let offered = ignored || held.is_some_and(|words| words[word] & bit != 0);
            let id = self.mask.take(prefix).filter(|_| offered).ok_or(Error::NotOffered)?;
            return Ok(Round::Done(Some(id).filter(|_| !ignored)));
        }
        let offered_all = flags & OFFERED_ALL != 0;
        if offered_all && flags & SETTLED != 0 {
            self.unlist(attempt);
            let ids = self.mask.layout().ids();
            let fragmented = flags & ANY_FREE != 0;
            return Err(if fragmented {
                Error::Fragmented { ids }
            } else {
                Error::Exhausted { ids }
            });
        }
        attempt.is_first = false;
        if !ignored {
            self.list(attempt);
            if offered_all && attempt.sweep.is_none() {
                attempt.sweep = Some(self.resting.want());
            }
        }
        Ok(Round::Again)
    }

    /// Ends an attempt whatever its state: it holds nothing any more.
    pub(crate) fn abandon(&mut self, attempt: &Attempt) {
        self.release(attempt);
        self.unlist(attempt);
    }

    /// Whether no allocation holds anything.
    #[cfg(test)]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }

    fn words_of(&self, attempt: &Attempt) -> usize {
        if attempt.is_first { self.eager_words } else { self.mask.words().len() }
    }

    /// The free ids that no other allocation holds.
    fn unheld(&self) -> Vec<u32> {
        let mut free = self.mask.words().to_vec();
        for held in &self.held {
            free.iter_mut().zip(&held.words).for_each(|(free, held)| *free &= !held);
        }
        free
    }

    /// What a first round offers: the first few free ids of the eager words. It may wait for long for members
    /// that have not begun. So it holds few ids, and none once ids are scarce: other allocations go on.
    fn promise(&self, words: usize) -> Vec<u32> {
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

    fn release(&mut self, attempt: &Attempt) -> Option<Vec<u32>> {
        let at = self.held.iter().position(|held| held.ticket == attempt.ticket)?;
        Some(self.held.swap_remove(at).words)
    }

    fn unlist(&mut self, attempt: &Attempt) {
        self.waiting.retain(|waiting| waiting.ticket != attempt.ticket);
    }

    fn list(&mut self, attempt: &Attempt) {
        if self.waiting.iter().any(|waiting| waiting.ticket == attempt.ticket) {
            return;
        }
        let waiting = Waiting { key: attempt.key, ticket: attempt.ticket };
        let at = self.waiting.partition_point(|other| *other < waiting);
        self.waiting.insert(at, waiting);
    }
}
