//! Collective allocation of context ids.
//!
//! All members of a parent communicator look for an id that is free in each of them. Each offers the free
//! ids of its mask, a reduction by bitwise AND leaves those that all have, and all take the first of
//! these. A process may be at several allocations at once, from several threads or non-blocking calls,
//! and must not offer one id to two of them. So an allocation holds the part of the mask that it offers
//! until its round is over; one that finds it held offers nothing, and there is another round.
//!
//! 1. The first round is about the *eager* words alone, the first few of the mask: short, and mostly
//!    enough. It is also what makes sure that all members have begun.
//! 2. Later rounds are about the rest, the *base*. Only the first of a list may hold it, and all processes
//!    order their lists alike: by the parent's context, then by tag. So of all allocations under way the
//!    least is first everywhere, and succeeds once the rounds are over that others have begun.
//! 3. Where the base holds no common id, the next rounds are about base and eager words together, and
//!    first rounds leave the eager words alone. Only a process that holds all of its mask can say that it
//!    has no id; only when all say so, the allocation fails, everywhere with the same error.
//!
//! This is MPICH's algorithm (src/mpi/comm/contextid.c), but for point 3, without which it fails when
//! another thread holds the last ids; for its length of a first round; and in that the flags of the
//! round tell exhaustion from fragmentation, where MPICH needs another reduction.

mod claims;
#[cfg(test)]
mod explore;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::defect::Planted;
use crate::error::Error;
use crate::ids::{ContextId, IdLayout};

use claims::{Attempt, Claims, Key, Round};

/// Whether a process is to have the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It will be a member of the communicator.
    Member,
    /// It takes part in the reduction and burns no id.
    Ignored,
}

/// The context ids of one process. Clones are the same; threads may share it.
#[derive(Clone, Debug)]
pub struct Allocator(Arc<Mutex<Claims>>);

impl Allocator {
    /// All ids are free. `eager_words` words of the mask are offered in first rounds; MPICH's default is 2.
    ///
    /// # Errors
    /// The eager words leave no other word of the mask.
    pub fn new(layout: IdLayout, eager_words: usize) -> Result<Self, Error> {
        Ok(Allocator(Arc::new(Mutex::new(Claims::new(layout, eager_words)?))))
    }

    /// Begins an allocation. All members of the parent begin theirs, with the same tag; those of several
    /// at once on one parent differ in their tags, or begin everywhere in the same order.
    pub fn begin(&self, parent: ContextId, tag: u32, role: Role) -> Allocation {
        let attempt = self.claims().begin(Key { parent, tag }, role);
        Allocation { allocator: self.clone(), attempt }
    }

    /// Ids that this process has left.
    pub fn free_count(&self) -> u32 {
        self.claims().mask.free_count()
    }

    /// The same, with a bug.
    pub(crate) fn with(self, planted: Planted) -> Self {
        let mut claims = self.claims();
        claims.planted = planted;
        claims.mask.planted = planted;
        drop(claims);
        self
    }

    fn claims(&self) -> MutexGuard<'_, Claims> {
        // What panics while it holds the lock is memory that ran out.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An allocation under way. Dropping it, as when its reduction failed, leaves nothing held.
#[derive(Debug)]
pub struct Allocation {
    allocator: Allocator,
    attempt: Attempt,
}

/// How a round of an allocation ended.
#[derive(Debug)]
pub enum Progress {
    /// No id yet: another round.
    Again,
    /// All members have the id; a process that is ignored has none.
    Done(Option<OwnedId>),
}

impl Allocation {
    /// What this process contributes to the next round's bitwise AND.
    pub fn offer(&mut self) -> Vec<u32> {
        self.allocator.claims().offer(&self.attempt)
    }

    /// Takes in the bitwise AND of what all have offered.
    ///
    /// # Errors
    /// [`Error::Exhausted`] or [`Error::Fragmented`], the same one in all processes.
    /// [`Error::NotOffered`] if the reduction can't be right.
    pub fn conclude(&mut self, all: &[u32]) -> Result<Progress, Error> {
        let round = self.allocator.claims().conclude(&mut self.attempt, all)?;
        Ok(match round {
            Round::Again => Progress::Again,
            Round::Done(id) => {
                let own = |id| OwnedId { id, allocator: self.allocator.clone() };
                Progress::Done(id.map(own))
            }
        })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.allocator.claims().abandon(&self.attempt);
    }
}

/// An allocated id; dropping it gives it back.
#[derive(Debug)]
pub struct OwnedId {
    id: ContextId,
    allocator: Allocator,
}

impl OwnedId {
    /// The id.
    pub fn id(&self) -> ContextId {
        self.id
    }
}

impl Drop for OwnedId {
    fn drop(&mut self) {
        let freed = self.allocator.claims().mask.free(self.id);
        debug_assert_eq!(freed, Ok(()), "an owned id is allocated");
    }
}
