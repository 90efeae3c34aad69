//! Both groups as one.

use std::sync::Arc;

use super::allocate::AgreedAllocation;
use super::intercomm::InterComm;
use crate::alloc::Role;
use crate::comm::{CollRequest, Collective, Comm};
use crate::creation::Created;
use crate::driver::{Machine, MachineIo};
use crate::error::Error;
use crate::group::Group;
use crate::ids::Sub;
use crate::life::{Life, epoch};
use crate::net::Net;

/// A value in the epochs of merges: it tells them from the epochs of duplicates.
const MERGE: u64 = u64::MAX - 2;

impl<N: Net> InterComm<N> {
    /// Creates a communicator of both groups. The group that gives `high` as `false` comes first.
    /// If both groups give the same, they stand in the order of the intercommunicator. All members
    /// of a group must give the same. Collective over both groups.
    ///
    /// # Errors
    /// No context id is free in all members of both groups, or a process is down. The error is the
    /// same at all living members of both groups. [`Error::Revoked`]: the intercommunicator was
    /// revoked; then other members may have the communicator.
    pub fn merge(&self, high: bool) -> Collective<'_, N, Comm<N>> {
        Collective::begun_by(move || self.start_merge(high))
    }

    fn start_merge(&self, high: bool) -> CollRequest<N, Comm<N>> {
        let driver = self.comm.driver();
        let channel = self.channel();
        let both = &channel.group;
        let life = self.life();
        let origin = [life.key.epoch, life.made(both, u32::MAX), MERGE];
        let key = epoch(&origin, both, both);
        let own = self.id();
        let remote = self.remote_id();
        let first = if self.is_first() { own } else { remote };
        let attempt = Life::new(first, key, both, channel.own);
        let attempt = Arc::new(attempt.within(life));
        driver.register(&attempt);
        // All processes of both groups must order this allocation alike among their others.
        let place = driver.settings.ids.sub(first, Sub::Merging);
        let allocation = driver.allocator.begin(place, (key >> 32) as u32, Role::Member);
        let allocation = allocation.over(both).for_members([key; 2], both);
        // One bit for each group. The members of the other group leave it set.
        let flags =
            if self.is_first() { 0b10 | u64::from(high) } else { 0b01 | u64::from(high) << 1 };
        let sizes = [self.size(), self.remote_size()];
        let split = if self.is_first() { sizes[0] } else { sizes[1] };
        let members = Arc::clone(both);
        let allocate = AgreedAllocation::new(&attempt, channel, allocation, flags);
        let own = self.group().process(self.rank());
        self.comm.start_then(MergeMachine { allocate, members, split }, move |parent, created| {
            created.finish(parent, own, &origin, &parent.inner.life.group)
        })
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
            Ok((Some(id), flags)) => (id, flags),
            Ok((None, _)) => return Some(Err(Error::NotOffered)),
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
