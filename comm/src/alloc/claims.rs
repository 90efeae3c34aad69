//! What the allocations of one process hold of its mask, and the steps of one of them.

use crate::defect::{Defect, Planted};
use crate::error::Error;
use crate::ids::{ContextId, IdLayout, IdMask, next_of};

use super::Role;

/// In the flag word: the process offered all words behind the eager ones.
const OWNED_BASE: u32 = 1;
/// In the flag word: it offered the eager words.
const OWNED_EAGER: u32 = 2;
/// In the flag word: some id of its mask is free.
const ANY_FREE: u32 = 4;

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
    /// Everything else is known to hold no common id.
    wants_eager: bool,
}

/// The mask of a process, and who holds which part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Claims {
    pub(crate) mask: IdMask,
    /// Words from the first on that a first round may offer.
    eager_words: usize,
    eager: Option<Ticket>,
    base: Option<Ticket>,
    /// Sorted: the first one may hold the base.
    waiting: Vec<Waiting>,
    tickets: Ticket,
    pub(crate) planted: Planted,
}

/// One allocation in one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    key: Key,
    role: Role,
    ticket: Ticket,
    is_first: bool,
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
            eager: None,
            base: None,
            waiting: Vec::new(),
            tickets: 0,
            planted: Planted::default(),
        })
    }

    pub(crate) fn begin(&mut self, key: Key, role: Role) -> Attempt {
        self.tickets += 1;
        Attempt { key, role, ticket: self.tickets, is_first: true }
    }

    /// What the process contributes to the attempt's next round: a bit for each id that it could take, and a
    /// word of flags. A first round is about the eager words alone.
    pub(crate) fn offer(&mut self, attempt: &Attempt) -> Vec<u32> {
        let words = self.words_of(attempt);
        if attempt.role == Role::Ignored {
            return vec![u32::MAX; words + 1];
        }
        let is_head = self.waiting.first().is_some_and(|first| first.ticket == attempt.ticket);
        let is_head = is_head || self.planted.is(Defect::NoOrder);
        let wants_base = !attempt.is_first && is_head;
        let owns_base =
            wants_base && claim(&mut self.base, attempt.ticket, self.planted, Defect::ShareBase);
        let wants_eager = if attempt.is_first {
            !self.waiting.iter().any(|waiting| waiting.wants_eager)
        } else {
            owns_base && self.waiting.first().is_some_and(|first| first.wants_eager)
        };
        let owns_eager =
            wants_eager && claim(&mut self.eager, attempt.ticket, self.planted, Defect::ShareEager);
        let mut offer = vec![0; words + 1];
        let (eager, base) = offer.split_at_mut(self.eager_words);
        if owns_eager {
            eager.copy_from_slice(&self.mask.words()[..self.eager_words]);
        }
        if owns_base {
            let base_words = words - self.eager_words;
            base[..base_words].copy_from_slice(&self.mask.words()[self.eager_words..]);
        }
        let flags = [
            (OWNED_BASE, owns_base),
            (OWNED_EAGER, owns_eager || self.eager_words == 0),
            (ANY_FREE, self.mask.free_count() > 0),
        ];
        offer[words] = flags.into_iter().filter(|(_, is)| *is).map(|(flag, _)| flag).sum();
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
            if ignored && !self.planted.is(Defect::IgnoredTakes) {
                return Ok(Round::Done(None));
            }
            let is_eager = ((prefix / u32::BITS) as usize) < self.eager_words;
            let offered = ignored || if is_eager { held.eager } else { held.base };
            let id = self.mask.take(prefix).filter(|_| offered).ok_or(Error::NotOffered)?;
            return Ok(Round::Done(Some(id).filter(|_| !ignored)));
        }
        let looked_at_all = flags & OWNED_EAGER != 0 || self.planted.is(Defect::HastyExhaustion);
        if flags & OWNED_BASE != 0 && looked_at_all {
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
            self.list(attempt, flags & OWNED_BASE != 0);
        }
        Ok(Round::Again)
    }

    /// Ends an attempt whatever its state: it holds nothing any more.
    pub(crate) fn abandon(&mut self, attempt: &Attempt) {
        if !self.planted.is(Defect::KeepClaims) {
            self.release(attempt);
        }
        if !self.planted.is(Defect::StayListed) {
            self.unlist(attempt);
        }
    }

    /// Whether no allocation holds anything.
    #[cfg(test)]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.eager.is_none() && self.base.is_none() && self.waiting.is_empty()
    }

    fn words_of(&self, attempt: &Attempt) -> usize {
        if attempt.is_first { self.eager_words } else { self.mask.words().len() }
    }

    fn release(&mut self, attempt: &Attempt) -> Held {
        let is_own = |holder: &mut Option<Ticket>| {
            holder.take_if(|ticket| *ticket == attempt.ticket).is_some()
        };
        Held { eager: is_own(&mut self.eager), base: is_own(&mut self.base) }
    }

    fn unlist(&mut self, attempt: &Attempt) {
        self.waiting.retain(|waiting| waiting.ticket != attempt.ticket);
    }

    fn list(&mut self, attempt: &Attempt, knows_base: bool) {
        let found = self.waiting.iter_mut().find(|waiting| waiting.ticket == attempt.ticket);
        if let Some(waiting) = found {
            waiting.wants_eager |= knows_base;
            return;
        }
        let waiting = Waiting { key: attempt.key, ticket: attempt.ticket, wants_eager: knows_base };
        let at = self.waiting.partition_point(|other| *other < waiting);
        self.waiting.insert(at, waiting);
    }
}

/// Which parts of the mask an attempt held in a round.
struct Held {
    eager: bool,
    base: bool,
}

/// Takes a part of the mask, unless another allocation holds it.
fn claim(holder: &mut Option<Ticket>, ticket: Ticket, planted: Planted, shares: Defect) -> bool {
    if holder.is_some_and(|other| other != ticket) && !planted.is(shares) {
        return false;
    }
    *holder = Some(ticket);
    true
}
