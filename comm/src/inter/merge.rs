//! Both groups as one.

use std::sync::Arc;

use crate::alloc::Role;
use crate::comm::{Comm, Created};
use crate::driver::{Driver, Machine, MachineIo, Pending, Request, ResultSlot};
use crate::error::Error;
use crate::ft::{Life, epoch};
use crate::group::Group;
use crate::ids::Sub;
use crate::net::{Net, ProcessId};

use super::allocate::AgreedAllocation;
use super::intercomm::InterComm;

/// A communicator of both groups that is being created.
pub type MergeRequest<N> = Request<N, Merging<N>>;

/// A value in the epochs of merges: it tells them from the epochs of duplicates.
const MERGE: u64 = u64::MAX - 2;

impl<N: Net> InterComm<N> {
    /// Creates a communicator of both groups. The group that gives `high` as `false` comes first.
    /// If both groups give the same, they stand in the order of the intercommunicator. All members
    /// of a group must give the same. Collective over both groups; blocks.
    ///
    /// # Errors
    /// No context id is free in all members of both groups, or a process is down. The error is the
    /// same at all living members of both groups.
    pub fn merge(&self, high: bool) -> Result<Comm<N>, Error> {
        self.imerge(high).wait()
    }

    /// The non-blocking form of [`merge`](Self::merge).
    pub fn imerge(&self, high: bool) -> MergeRequest<N> {
        let driver = self.comm.driver();
        let channel = self.channel();
        let (both, life) = (&channel.group, self.life());
        let origin = [life.key.epoch, life.made(both, u32::MAX), MERGE];
        let key = epoch(&origin, both, both);
        let (own, remote) = (self.id(), self.remote_id());
        let first = if self.is_first() { own } else { remote };
        let attempt = Arc::new(Life::new(first, key, both, channel.own));
        driver.register(&attempt);
        // All processes of both groups must order this allocation alike among their others.
        let place = driver.settings.ids.sub(first, Sub::Merging);
        let allocation = driver.allocator.begin(place, (key >> 32) as u32, Role::Member);
        let allocation = allocation.for_members(key, both);
        // One bit for each group. The members of the other group leave it set.
        let flags =
            if self.is_first() { 0b10 | u64::from(high) } else { 0b01 | u64::from(high) << 1 };
        let sizes = [self.size(), self.remote_size()];
        let split = if self.is_first() { sizes[0] } else { sizes[1] };
        let members = Arc::clone(both);
        let allocate = AgreedAllocation::new(&attempt, channel, allocation, flags);
        let slot = driver.start(MergeMachine { allocate, members, split });
        let own = self.group().process(self.rank());
        let merging = Merging { slot, own, origin, parent: self.clone() };
        Request::new(merging)
    }
}

struct MergeMachine {
    allocate: AgreedAllocation,
    /// The members of both groups, in the order of the intercommunicator.
    members: Arc<Group>,
    /// The size of the first group.
    split: u32,
}

impl<N: Net> Machine<N> for MergeMachine {
    type Output = Created;

    fn step(&mut self, io: &mut MachineIo<'_, N>) -> Option<Result<Created, Error>> {
        let (id, flags) = match self.allocate.step(io)? {
            Ok(allocated) => allocated,
            Err(error) => return Some(Err(error)),
        };
        let first_is_high = flags == 0b01;
        let mut members = self.members.processes().to_vec();
        if first_is_high {
            members.rotate_left(self.split as usize);
        }
        Some(Ok(Created { id, members: Arc::new(Group::new(members)) }))
    }
}

/// What a [`MergeRequest`] waits for.
pub struct Merging<N: Net> {
    slot: Arc<ResultSlot<Created>>,
    own: Option<ProcessId>,
    origin: [u64; 3],
    parent: InterComm<N>,
}

impl<N: Net> Pending<N> for Merging<N> {
    type Output = Result<Comm<N>, Error>;

    fn driver(&self) -> &Arc<Driver<N>> {
        self.parent.comm.driver()
    }

    fn test(&mut self) -> Option<Self::Output> {
        let created = self.slot.take()?;
        let parent = &self.parent;
        let whole = &parent.life().group;
        let finish = |created: Created| created.finish(&parent.comm, self.own, &self.origin, whole);
        Some(created.and_then(finish))
    }
}
