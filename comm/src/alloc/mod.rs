//! Collective allocation of context ids.
//!
//! All members of a parent communicator look for an id that is free in each of them. Each offers the free
//! ids of its mask, a reduction by bitwise AND leaves those that all have, and all take the first of
//! these. A process may be at several allocations at once, from several threads or non-blocking calls,
//! and must not offer one id to two of them. So an allocation holds the part of the mask that it offers
//! until its round is over; one that finds it held offers nothing, and there is another round.
//!
//! 1. The first round is about the *eager* words alone, the first few of the mask: short, and mostly
//!    enough. It also makes sure that all members have begun. Until they have, which may depend on anything
//!    that this process does next, the round holds what it offers. So it offers a few ids only, and none once
//!    ids are scarce: allocations that begin later find the others.
//! 2. Later rounds are about the whole mask. All members make progress in them, so they end whatever the
//!    program does. Only the first of a list offers anything, and all processes order their lists alike: by the
//!    parent's context, then by tag. So of all allocations under way the least is first everywhere, and
//!    succeeds once the rounds are over that others have begun.
//! 3. Only a process that has offered all ids that no later round of another allocation holds can say that it
//!    has no id; only when all say so, the allocation fails, everywhere with the same error. An id that a first
//!    round holds counts as taken: to wait for that round could be to wait for oneself.
//! 4. An id that was freed *rests* until no process sends in it any more (`ft/rest.rs`). An allocation fails
//!    only when all members know which of their resting ids are still used elsewhere: those count as taken.
//!
//! This is MPICH's algorithm (src/mpi/comm/contextid.c), but for the few ids of a first round, where MPICH holds
//! all of them and an allocation may wait for one that can't begin; for points 3 and 4; and in that the flags of
//! the round tell exhaustion from fragmentation, where MPICH needs another reduction.

mod claims;
#[cfg(test)]
mod explore;
mod resting;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::group::Group;
use crate::ids::{ContextId, IdLayout};

use claims::{Attempt, Claims, Key, Round};
pub(crate) use resting::{Freed, Resting, Senders};

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
        Allocation { allocator: self.clone(), attempt, senders: None }
    }

    /// Ids that no communicator of this process has. Of some of them other processes may not be done yet: those
    /// are not offered before they are.
    pub fn free_count(&self) -> u32 {
        let claims = self.claims();
        claims.mask.free_count() + claims.resting.count()
    }

    /// What rests, for who asks others about it.
    pub(crate) fn resting<R>(&self, with: impl FnOnce(&mut Resting) -> R) -> R {
        with(&mut self.claims().resting)
    }

    /// An id is as free as before it was allocated.
    pub(crate) fn end_rest(&self, prefix: u32) {
        let mut claims = self.claims();
        claims.resting.end();
        let id = claims.mask.layout().id(prefix);
        let freed = id.map(|id| claims.mask.free(id));
        debug_assert_eq!(freed, Some(Ok(())), "a resting id is allocated");
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
    /// Who will send in the id.
    senders: Option<Senders>,
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
    /// The id will be that of a communicator of these members, all of which give the allocation the same name. It
    /// rests, once it is freed, until they are done with it.
    pub(crate) fn for_members(mut self, birth: u64, group: &Arc<Group>) -> Self {
        if self.attempt.role() == Role::Member {
            self.allocator.claims().resting.enter(birth);
            self.senders = Some(Senders { birth, group: Arc::clone(group) });
        }
        self
    }

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
            Round::Done(id) => Progress::Done(id.map(|id| self.own(id))),
        })
    }

    fn own(&self, id: ContextId) -> OwnedId {
        if let Some(Senders { birth, .. }) = self.senders {
            self.allocator.claims().resting.enter(birth);
        }
        let senders = self.senders.iter().cloned().collect();
        OwnedId { id, allocator: self.allocator.clone(), senders, is_traced: true }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let mut claims = self.allocator.claims();
        claims.abandon(&self.attempt);
        if let Some(Senders { birth, .. }) = self.senders {
            claims.resting.leave(birth);
        }
    }
}

/// An allocated id; dropping it gives it back.
#[derive(Debug)]
pub struct OwnedId {
    id: ContextId,
    allocator: Allocator,
    /// Those with which it was allocated first; none for an allocator without a transport.
    senders: Vec<Senders>,
    /// Whether all who may send in it are known.
    is_traced: bool,
}

impl OwnedId {
    /// The id.
    pub fn id(&self) -> ContextId {
        self.id
    }

    /// From now on others may be told of the id whom this process does not know.
    pub(crate) fn lose_track(&mut self) {
        self.is_traced = false;
    }

    /// Nobody was told of the id after all.
    pub(crate) fn keep_track(&mut self) {
        self.is_traced = true;
    }

    /// It is known who was told of the id.
    pub(crate) fn trace(&mut self, birth: u64, group: &Arc<Group>) {
        self.is_traced = true;
        self.senders.push(Senders { birth, group: Arc::clone(group) });
    }
}

impl Drop for OwnedId {
    fn drop(&mut self) {
        let mut claims = self.allocator.claims();
        let Some(Senders { birth, .. }) = self.senders.first() else {
            let freed = claims.mask.free(self.id);
            debug_assert_eq!(freed, Ok(()), "an owned id is allocated");
            return;
        };
        claims.resting.leave(*birth);
        let prefix = claims.mask.layout().prefix(self.id);
        let senders = std::mem::take(&mut self.senders);
        let senders = if self.is_traced { senders } else { Vec::new() };
        claims.resting.add(Freed { prefix, senders });
    }
}
