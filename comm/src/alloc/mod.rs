//! Collective allocation of context ids.
//!
//! All members of a parent communicator look for an id that is free in each of them. Each member
//! offers free ids of its mask, a reduction by bitwise AND leaves the ids that all have offered,
//! and all take the first of these. A process may take part in several allocations at the same
//! time, from several threads or non-blocking calls, and must not offer an id to two of them. So an
//! allocation holds the part of the mask that it offers until its round is over. Another allocation
//! doesn't offer held ids, and may need another round.
//!
//! 1. The first round is about the *eager* words only, the first few words of the mask. It is
//!    short, and usually enough. It also waits until all members have begun. How long that takes
//!    may depend on anything that this process does next, and during this time the round holds the
//!    ids that it offers. So it offers only a few ids, and none once ids are scarce: allocations
//!    that begin later find the other ids.
//! 2. Later rounds are about the whole mask. All members make progress in them, so these rounds end
//!    whatever the program does. Allocations that need later rounds form a list, and only the first
//!    one offers ids. All processes order their lists alike: by the parent's context, then by tag.
//!    So the least of all allocations under way is first in all processes. It succeeds once the
//!    rounds that others have begun are over.
//! 3. A process may claim that it has no id only if it has offered all ids that no later round of
//!    another allocation holds. The allocation fails only if all members claim this, with the same
//!    error at all of them. An id that a first round holds counts as taken: this process may have
//!    to go on before that round can end, so waiting for the round could be waiting for itself.
//! 4. An id that was freed *rests* until no process sends in it any more (`ft/rest.rs`). An
//!    allocation fails only if all members know which of their resting ids are still used by other
//!    processes. Those ids count as taken.
//!
//! This is MPICH's algorithm (src/mpi/comm/contextid.c), except for three things. A first round
//! holds few ids: MPICH's holds all of them, and an allocation may wait for one that can't begin.
//! Points 3 and 4 are new. And the flags of the round tell exhaustion from fragmentation, for which
//! MPICH needs another reduction.

mod resting;
mod shared_mask;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::group::Group;
use crate::ids::{ContextId, IdLayout};

pub(crate) use resting::{FreedId, RestState, Senders};
use shared_mask::{AllocationState, Priority, SharedMask};
pub use shared_mask::{Progress, Role};

/// The context ids of one process. Clones share the same ids, and threads may share an allocator.
#[derive(Clone, Debug)]
pub struct Allocator(Arc<Mutex<SharedMask>>);

impl Allocator {
    /// An allocator whose ids are all free. First rounds offer ids of the first `eager_words` words
    /// of the mask; MPICH's default is 2.
    ///
    /// # Errors
    /// There is no word of the mask beside the eager words.
    pub fn new(layout: IdLayout, eager_words: usize) -> Result<Self, Error> {
        Ok(Allocator(Arc::new(Mutex::new(SharedMask::new(layout, eager_words)?))))
    }

    /// Begins an allocation. All members of the parent must begin it, with the same tag. If several
    /// allocations on one parent are under way at once, they need different tags, or must begin in
    /// the same order at all members.
    pub fn begin(&self, parent: ContextId, tag: u32, role: Role) -> Allocation {
        let state = self.shared().begin(Priority { parent, tag }, role);
        Allocation { allocator: self.clone(), state, senders: None }
    }

    /// The number of ids that no communicator of this process has. Some of them may rest: they are
    /// not offered until the other processes are done with them.
    pub fn free_count(&self) -> u32 {
        let shared = self.shared();
        shared.free.free_count() + shared.resting.count()
    }

    /// Gives access to the resting ids, for the service that asks other processes about them.
    pub(crate) fn with_rest<R>(&self, with: impl FnOnce(&mut RestState) -> R) -> R {
        with(&mut self.shared().resting)
    }

    /// Frees an id that has rested.
    pub(crate) fn end_rest(&self, prefix: u32) {
        let mut shared = self.shared();
        shared.resting.end();
        let id = shared.free.layout().id(prefix);
        let freed = id.map(|id| shared.free.free(id));
        debug_assert_eq!(freed, Some(Ok(())), "a resting id is allocated");
    }

    fn shared(&self) -> MutexGuard<'_, SharedMask> {
        // A panic while the lock is held can only come from a failed allocation of memory.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An allocation under way. Dropping it, for instance after its reduction has failed, releases all
/// that it holds.
#[derive(Debug)]
pub struct Allocation {
    allocator: Allocator,
    state: AllocationState,
    /// The processes that will send in the id.
    senders: Option<Senders>,
}

impl Allocation {
    /// Sets the members of the communicator that the id is for, and the name of its creation, which
    /// is the same at all of them. When the id is freed, it rests until these members are done with
    /// it.
    pub(crate) fn for_members(mut self, creation: u64, group: &Arc<Group>) -> Self {
        if self.state.role == Role::Member {
            self.allocator.shared().resting.enter_creation(creation);
            self.senders = Some(Senders { creation, group: Arc::clone(group) });
        }
        self
    }

    /// Sets another group of members, as soon as it is known.
    pub(crate) fn narrow(&mut self, group: &Arc<Group>) {
        if let Some(senders) = &mut self.senders {
            senders.group = Arc::clone(group);
        }
    }

    /// This process will not be a member after all, as it learns before the first round. Until the
    /// allocation is dropped it still takes part in the creation.
    pub(crate) fn ignore(&mut self) {
        self.state.role = Role::Ignored;
    }

    /// This process's operand in the bitwise AND of the next round.
    pub fn offer(&mut self) -> Vec<u32> {
        self.allocator.shared().offer(&self.state)
    }

    /// Takes in the bitwise AND of the contributions of all processes.
    ///
    /// # Errors
    /// [`Error::Exhausted`] or [`Error::Fragmented`], the same one in all processes.
    /// [`Error::NotOffered`] if the result of the reduction is impossible.
    pub fn conclude(&mut self, all: &[u32]) -> Result<Progress<OwnedId>, Error> {
        let round = self.allocator.shared().conclude(&mut self.state, all)?;
        Ok(match round {
            Progress::Again => Progress::Again,
            Progress::Done(id) => Progress::Done(id.map(|id| self.own(id))),
        })
    }

    fn own(&self, id: ContextId) -> OwnedId {
        if let Some(Senders { creation, .. }) = self.senders {
            self.allocator.shared().resting.enter_creation(creation);
        }
        let senders = self.senders.iter().cloned().collect();
        OwnedId { id, allocator: self.allocator.clone(), senders, is_traced: true }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let mut shared = self.allocator.shared();
        shared.abandon(&self.state);
        if let Some(Senders { creation, .. }) = self.senders {
            shared.resting.leave_creation(creation);
        }
    }
}

/// An allocated id. Dropping it frees the id.
#[derive(Debug)]
pub struct OwnedId {
    id: ContextId,
    allocator: Allocator,
    /// The processes that may send in the id; first those that took part in its allocation. Empty
    /// for an allocator without a transport.
    senders: Vec<Senders>,
    /// Whether all processes that may send in the id are known.
    is_traced: bool,
}

impl OwnedId {
    /// The id.
    pub fn id(&self) -> ContextId {
        self.id
    }

    /// From now on, processes that this one does not know may be told of the id.
    pub(crate) fn lose_track(&mut self) {
        self.is_traced = false;
    }

    /// No other process was told of the id after all.
    pub(crate) fn keep_track(&mut self) {
        self.is_traced = true;
    }

    /// It is known which processes were told of the id: the members of this group.
    pub(crate) fn trace(&mut self, creation: u64, group: &Arc<Group>) {
        self.is_traced = true;
        self.senders.push(Senders { creation, group: Arc::clone(group) });
    }
}

impl Drop for OwnedId {
    fn drop(&mut self) {
        let mut shared = self.allocator.shared();
        let Some(Senders { creation, .. }) = self.senders.first() else {
            let freed = shared.free.free(self.id);
            debug_assert_eq!(freed, Ok(()), "an owned id is allocated");
            return;
        };
        shared.resting.leave_creation(*creation);
        let prefix = shared.free.layout().prefix(self.id);
        let senders = std::mem::take(&mut self.senders);
        let senders = if self.is_traced { senders } else { Vec::new() };
        shared.resting.add(FreedId { prefix, senders });
    }
}
