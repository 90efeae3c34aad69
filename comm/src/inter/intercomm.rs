//! The handle of an intercommunicator.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::alloc::OwnedId;
use crate::comm::{Comm, CommInfo, CommOrigin, ErrorHandler};
use crate::context_id::ContextId;
use crate::driver::{Channel, MachineIo};
use crate::error::Error;
use crate::group::Group;
use crate::life::{Life, epoch};
use crate::net::Net;
use crate::remote::{RemoteGroup, RemoteRanks};

/// The error handler of an intercommunicator, shared by all its handles.
pub(super) type HandlerSlot<N> = Arc<Mutex<ErrorHandler<InterComm<N>>>>;

/// The parts from which the handle of a new intercommunicator is made.
pub(crate) struct InterParts {
    pub(super) id: OwnedId,
    pub(super) local: Arc<Group>,
    pub(super) rank: u32,
    pub(super) remote: RemoteGroup,
    pub(super) life: Arc<Life>,
}

/// The values from which the parts of an intercommunicator are made.
pub(super) struct InterOrigin<'a> {
    /// The id of the local group.
    pub(super) id: OwnedId,
    /// The channel of the local group.
    pub(super) local: &'a Channel,
    pub(super) remote: RemoteGroup,
    /// Whether the local group comes first in the order of both groups.
    pub(super) is_first: bool,
    /// Values that no other intercommunicator has.
    pub(super) name: [u64; 3],
    /// The group that all processes of both groups are in, if it is larger.
    pub(super) whole: Option<&'a Group>,
}

impl InterOrigin<'_> {
    pub(super) fn make<N: Net>(self, io: &mut MachineIo<'_, N>) -> InterParts {
        let InterOrigin { id, local, remote, is_first, name, whole } = self;
        let own = &local.group;
        let others = &remote.group;
        let [first, second] = if is_first { [own, others] } else { [others, own] };
        let split = first.size();
        let both = Arc::new(first.union(second));
        let (ranks, before) = if is_first { (split..both.size(), 0) } else { (0..split, split) };
        let context = if is_first { id.id() } else { remote.id };
        let epoch = epoch(&name, &both, whole.unwrap_or(&both));
        let life = Life::new(context, epoch, &both, before + local.own);
        let ranks = RemoteRanks { ranks, context: remote.id };
        let life = Arc::new(life.between(id.id(), ranks));
        io.ft.register(io.net, &life);
        InterParts { id, local: Arc::clone(own), rank: local.own, remote, life }
    }
}

/// An intercommunicator. This process is a member of the *local* group; the other group is the
/// *remote* one. Ranks in the calls of an intercommunicator are ranks in the remote group. Clones
/// are handles of the same intercommunicator.
///
/// It is freed when the last of its clones, requests, held messages and [local](Self::local)
/// communicators is dropped. The context id of each group then goes back to that group.
///
/// Layers can't override its collective operations. They may override those of
/// [`local`](Self::local), and those of the result of [`merge`](Self::merge).
pub struct InterComm<N: Net> {
    pub(super) comm: Comm<N>,
    pub(super) remote: Arc<RemoteGroup>,
    pub(super) handler: HandlerSlot<N>,
}

impl<N: Net> InterComm<N> {
    /// `parent`: the communicator, or the local side of the intercommunicator, that it was made of.
    pub(super) fn new(parent: &Comm<N>, parts: InterParts) -> Self {
        let InterParts { id, local, rank, remote, life } = parts;
        let remote = Arc::new(remote);
        let info = CommInfo { id: id.id(), group: local, rank };
        let bound = parent.inner.bound.tables.unpatched();
        let owned = Some(Arc::new(id));
        let both = Some(Arc::clone(&remote));
        let origin = CommOrigin { info, life, owned, bound, remote: both };
        let comm = Comm::new(parent.driver(), origin);
        InterComm { comm, remote, handler: Arc::default() }
    }

    /// The number of processes in the remote group.
    pub fn remote_size(&self) -> u32 {
        self.remote.group.size()
    }

    /// The remote group.
    pub fn remote_group(&self) -> &Group {
        &self.remote.group
    }

    /// The context id in which the remote group receives.
    pub fn remote_id(&self) -> ContextId {
        self.remote.id
    }

    /// Drops this handle.
    pub fn free(self) {}

    /// The communicator of the local group. Every call returns the same one. Its id is derived from
    /// the id of the intercommunicator, so this needs neither an allocation nor the other members.
    ///
    /// # Errors
    /// A layer has refused the communicator.
    pub fn local(&self) -> Result<Comm<N>, Error> {
        if let Some(local) = self.comm.inner.local.get() {
            return Ok(local.clone());
        }
        let CommInfo { id, group, rank } = self.comm.info().clone();
        let id = self.comm.driver().settings.ids.localcomm(id)?;
        let epoch = epoch(&[self.life().key.epoch], &group, &self.life().group);
        let life = Life::new(id, epoch, &group, rank);
        let info = CommInfo { id, group, rank };
        let made = self.comm.make(info, life, self.comm.inner.owned.clone())?;
        // If another thread has made the communicator in the meantime, this returns that one.
        Ok(self.comm.inner.local.get_or_init(|| made).clone())
    }

    /// The state of both groups, which has the members of both in one order, the same on both
    /// sides.
    pub(super) fn life(&self) -> &Arc<Life> {
        &self.comm.inner.life
    }

    /// Whether the local group comes first in that order.
    pub(super) fn is_first(&self) -> bool {
        self.life().group.process(0) == self.group().process(0)
    }

    /// The ranks of the remote group in that order.
    pub(super) fn remote_ranks(&self) -> Range<u32> {
        if self.is_first() {
            self.size()..self.size() + self.remote_size()
        } else {
            0..self.remote_size()
        }
    }

    /// The channel of the next collective operation of both groups.
    pub(super) fn channel(&self) -> Channel {
        self.comm.numbered(self.outside())
    }

    /// A channel over both groups that is not numbered as a collective operation.
    pub(super) fn outside(&self) -> Channel {
        let context = self.comm.driver().settings.ids.collective(self.remote.id);
        let remote = Some(RemoteRanks { ranks: self.remote_ranks(), context });
        let life = self.life();
        Channel { group: Arc::clone(&life.group), own: life.own, remote, ..self.comm.outside(0) }
    }
}

impl<N: Net> Clone for InterComm<N> {
    fn clone(&self) -> Self {
        InterComm {
            comm: self.comm.clone(),
            remote: Arc::clone(&self.remote),
            handler: Arc::clone(&self.handler),
        }
    }
}

impl<N: Net> fmt::Debug for InterComm<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id();
        let remote = self.remote_id();
        let rank = self.rank();
        let size = self.size();
        let others = self.remote_size();
        write!(f, "InterComm({id} and {remote}, rank {rank} of {size}, with {others})")
    }
}
