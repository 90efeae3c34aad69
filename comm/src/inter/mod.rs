//! Intercommunicators: two groups of processes, each of which speaks to the other.
//!
//! An intercommunicator has a pair of context ids. Each group receives in the one that it has allocated for
//! itself, and sends in the other's; so neither needs an id that is free in all processes.

mod allocate;
mod bridge;
mod card;
mod coll;
mod connect;
mod create;
mod ft;
mod kept;
mod making;
mod merge;
mod p2p;
mod shrink;
mod spawn;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::comm::{Comm, CommInfo};
use crate::driver::Channel;
use crate::error::Error;
use crate::ft::{Life, epoch};
use crate::group::Group;
use crate::ids::ContextId;
use crate::net::Net;
use crate::remote::{RemoteGroup, RemoteRanks};

use kept::Handler;
use making::Made;

pub use coll::InterRoot;
pub use connect::{OpenPort, PortName};
pub use create::{InterRequest, Uniformity};
pub use ft::InterAgreed;
pub use merge::MergeRequest;
pub use shrink::InterShrinkRequest;

/// An intercommunicator: a group of which this process is a member, the *local* one, and another, the
/// *remote* one. Ranks in its calls are those of remote processes. Clones are the same.
///
/// It is freed when the last of its clones, requests, held messages and [local](Self::local) communicators is
/// gone; the context id of each group goes back to that group.
///
/// There is no create and no split of an intercommunicator, which MPI has: an intercommunicator of parts is made of a
/// part of each group, by [`Comm::create_inter`].
///
/// It goes beneath all layers: they may override the collective operations of [`local`](Self::local) and of
/// what [`merge`](Self::merge) gives.
pub struct InterComm<N: Net> {
    comm: Comm<N>,
    remote: Arc<RemoteGroup>,
    handler: Handler<N>,
}

impl<N: Net> InterComm<N> {
    /// `parent`: the communicator, or a group's part of the intercommunicator, that it was made of.
    fn new(parent: &Comm<N>, made: Made) -> Self {
        let Made { id, local, rank, remote, life } = made;
        let remote = Arc::new(remote);
        let info = CommInfo { id: id.id(), group: local, rank };
        let bound = parent.inner.bound.tables.unpatched();
        let (owned, both) = (Some(Arc::new(id)), Some(Arc::clone(&remote)));
        let comm = Comm::new(parent.driver(), info, life, owned, bound, both);
        InterComm { comm, remote, handler: Arc::default() }
    }

    /// This process's rank in the local group.
    pub fn rank(&self) -> u32 {
        self.comm.rank()
    }

    /// How many processes the local group has.
    pub fn size(&self) -> u32 {
        self.comm.size()
    }

    /// The local group.
    pub fn group(&self) -> &Group {
        self.comm.group()
    }

    /// How many processes the remote group has.
    pub fn remote_size(&self) -> u32 {
        self.remote.group.size()
    }

    /// The remote group.
    pub fn remote_group(&self) -> &Group {
        &self.remote.group
    }

    /// The context id in which this process receives.
    pub fn id(&self) -> ContextId {
        self.comm.id()
    }

    /// The context id in which the remote group receives.
    pub fn remote_id(&self) -> ContextId {
        self.remote.id
    }

    /// The name, for people; empty if none was given.
    pub fn name(&self) -> String {
        self.comm.name()
    }

    /// Gives it a name, in this process.
    pub fn set_name(&self, name: impl Into<String>) {
        self.comm.set_name(name);
    }

    /// Lets go of this handle.
    pub fn free(self) {}

    /// A communicator of the local group, always the same one. Its id is derived from that of the
    /// intercommunicator: it needs no allocation, nor the other members.
    ///
    /// # Errors
    /// A layer refused it.
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
        // Another thread may have been faster: then it is that one's.
        Ok(self.comm.inner.local.get_or_init(|| made).clone())
    }

    /// Of both groups: they are in one order there, the same on both sides.
    fn life(&self) -> &Arc<Life> {
        &self.comm.inner.life
    }

    /// Whether the local group comes first there.
    fn is_first(&self) -> bool {
        self.life().group.process(0) == self.group().process(0)
    }

    /// Ranks of the remote group among both.
    fn remote_ranks(&self) -> Range<u32> {
        if self.is_first() {
            self.size()..self.size() + self.remote_size()
        } else {
            0..self.remote_size()
        }
    }

    /// For the messages of the next collective operation of both groups.
    fn channel(&self) -> Channel {
        self.comm.numbered(self.outside())
    }

    /// The same without a number.
    fn outside(&self) -> Channel {
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
        let (id, remote) = (self.id(), self.remote_id());
        let (rank, size, others) = (self.rank(), self.size(), self.remote_size());
        write!(f, "InterComm({id} and {remote}, rank {rank} of {size}, with {others})")
    }
}
