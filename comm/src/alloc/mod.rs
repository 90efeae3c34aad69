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
//! 4. An id that was freed *rests* until no process sends in it any more (`ft/rest.rs`). The rounds
//!    of later allocations find that out (`settling.rs`). An allocation fails only if all members
//!    know which of their resting ids are still used by other processes. Those ids count as taken.
//!
//! This is MPICH's algorithm (`src/mpi/comm/contextid.c`), except for three things. A first round
//! holds few ids: MPICH's holds all of them, and an allocation may wait for one that can't begin.
//! Points 3 and 4 are new. And the flags of the round tell exhaustion from fragmentation, for which
//! MPICH needs another reduction.

mod id_use;
mod resting;
mod settling;
mod shared_mask;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::error::Error;
use crate::group::Group;
use crate::ids::{ContextId, IdLayout};

pub(crate) use id_use::IdUse;
pub(crate) use resting::{FreedId, RestState, Senders};
pub(crate) use settling::ClosedUse;
use shared_mask::{AllocationState, Priority, SharedMask};
pub use shared_mask::{Progress, Role, combine};

/// The context ids of one process. Clones share the same ids, and threads may share an allocator.
#[derive(Clone, Debug)]
pub struct Allocator(Arc<AllocatorState>);

#[derive(Debug)]
struct AllocatorState {
    mask: Mutex<SharedMask>,
    /// By name, the uses of ids that this process takes part in, or may still take part in.
    uses: Mutex<HashMap<u64, Weak<IdUse>>>,
}

impl Allocator {
    /// An allocator whose ids are all free. First rounds offer ids of the first `eager_words` words
    /// of the mask; MPICH's default is 2.
    ///
    /// # Errors
    /// There is no word of the mask beside the eager words.
    pub fn new(layout: IdLayout, eager_words: usize) -> Result<Self, Error> {
        Ok(Self::of(SharedMask::new(layout, eager_words)?))
    }

    fn of(mask: SharedMask) -> Self {
        Allocator(Arc::new(AllocatorState { mask: Mutex::new(mask), uses: Mutex::default() }))
    }

    /// Begins an allocation. All members of the parent must begin it, with the same tag. If several
    /// allocations on one parent are under way at once, they need different tags, or must begin in
    /// the same order at all members.
    pub fn begin(&self, parent: ContextId, tag: u32, role: Role) -> Allocation {
        let state = self.shared().begin(Priority { parent, tag }, role);
        Allocation { allocator: self.clone(), state, senders: None, used: None }
    }

    /// The use of an id with this name, if this process takes part in it, or may still do so.
    pub(crate) fn used(&self, name: u64) -> Option<Arc<IdUse>> {
        self.uses().get(&name).and_then(Weak::upgrade)
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
        shared.resting.end(prefix);
        let id = shared.free.layout().id(prefix);
        let freed = id.map(|id| shared.free.free(id));
        debug_assert_eq!(freed, Some(Ok(())), "a resting id is allocated");
    }

    /// The errors in the books, once nothing allocates or has an id any more.
    pub(crate) fn audit(&self) -> Vec<String> {
        self.shared().audit()
    }

    fn shared(&self) -> MutexGuard<'_, SharedMask> {
        // A panic while the lock is held can only come from a failed allocation of memory.
        self.0.mask.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn uses(&self) -> MutexGuard<'_, HashMap<u64, Weak<IdUse>>> {
        self.0.uses.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// The use of the id, if its members settle it by their allocations.
    used: Option<Arc<IdUse>>,
}

impl Allocation {
    /// The processes that take part. The rounds of the allocation settle ids that rest in them.
    pub(crate) fn over(mut self, processes: &Arc<Group>) -> Self {
        self.state.over = Some(Arc::clone(processes));
        self
    }

    /// Sets the members of the communicator that the id is for, and names of its creation and of
    /// the communicator, which are the same at all of them. They settle the id together after they
    /// have freed it.
    pub(crate) fn for_members(self, [creation, name]: [u64; 2], group: &Arc<Group>) -> Self {
        let mut allocation = self.for_groups(creation, group);
        if allocation.senders.is_some() {
            let used = IdUse::new(name, group);
            let mut uses = allocation.allocator.uses();
            uses.retain(|_, used| used.strong_count() > 0);
            uses.insert(name, Arc::downgrade(&used));
            drop(uses);
            allocation.used = Some(used);
        }
        allocation
    }

    /// As [`for_members`](Self::for_members), for an intercommunicator, whose groups have ids of
    /// their own: when the id is freed, it rests until these processes say that they are done with
    /// it.
    pub(crate) fn for_groups(mut self, creation: u64, group: &Arc<Group>) -> Self {
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

    /// This process's operand in the reduction of the next round. The reduction is [`combine`].
    pub fn offer(&mut self) -> Vec<u32> {
        self.allocator.shared().offer(&mut self.state)
    }

    /// Takes in the [combination](combine) of the operands of all processes.
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
        let used = self.used.clone();
        OwnedId { id, allocator: self.allocator.clone(), senders, used, is_traced: true }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let mut shared = self.allocator.shared();
        shared.abandon(&mut self.state);
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
    /// The use of the id, if its members settle it by their allocations.
    used: Option<Arc<IdUse>>,
    /// Whether all processes that may send in the id are known.
    is_traced: bool,
}

impl OwnedId {
    /// The id.
    pub fn id(&self) -> ContextId {
        self.id
    }

    /// The use of the id, if its members settle it by their allocations.
    pub(crate) fn used(&self) -> Option<&Arc<IdUse>> {
        self.used.as_ref()
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
        let used = self.used.take().filter(|used| !used.is_stray());
        shared.resting.add(FreedId { prefix, senders, used });
    }
}
