//! The calls that create an intercommunicator by two leaders that share a communicator, and how
//! every creation starts.

use std::sync::Arc;

use crate::alloc::Role;
use crate::comm::Comm;
use crate::driver::{Channel, Driver, Pending, Request, ResultSlot, Settings};
use crate::error::Error;
use crate::ft::{Life, epoch};
use crate::ids::Sub;
use crate::net::Net;

use super::accepting::Accepting;
use super::allocate::AgreedAllocation;
use super::attributes::Inherited;
use super::creating::{CreatePlan, Creating};
use super::intercomm::{InterComm, InterParts};
use super::leader_link::LeaderLink;
use super::uniformity::Uniformity;

/// An intercommunicator that is being created.
pub type InterRequest<N> = Request<N, InterCreation<N>>;

/// A value in the epochs of attempts: it tells them from the epochs of everything else that is made
/// of the same communicator.
pub(super) const ATTEMPT: u64 = u64::MAX - 1;

impl<N: Net> Comm<N> {
    /// Creates an intercommunicator of this communicator's group and another group. Collective over
    /// both groups; blocks.
    ///
    /// `leader` is the rank of this group's leader, the same at all members. Only the leader's
    /// other arguments count: `peer` is a communicator of both leaders, `remote_leader` is the rank
    /// of the other leader in it, and `tag` tells attempts apart that are under way at the same
    /// time between the same leaders.
    ///
    /// # Errors
    /// A group has no context id left, or a process is down; other processes may have another
    /// result. An argument of the leader is invalid, the groups have a process in common, or the
    /// layout of context ids has no bit L.
    pub fn create_inter(
        &self,
        leader: u32,
        peer: Option<&Comm<N>>,
        remote_leader: u32,
        tag: u32,
    ) -> Result<InterComm<N>, Error> {
        self.icreate_inter(leader, peer, remote_leader, tag).wait()
    }

    /// The non-blocking form of the call.
    pub fn icreate_inter(
        &self,
        leader: u32,
        peer: Option<&Comm<N>>,
        remote_leader: u32,
        tag: u32,
    ) -> InterRequest<N> {
        self.icreate_inter_as(Uniformity::None, leader, peer, remote_leader, tag)
    }

    /// As [`create_inter`](Self::create_inter), with a promise about the results of the other
    /// processes. All members of both groups must ask for the same promise. Blocks.
    ///
    /// # Errors
    /// [`Error::NotCreated`], with the cause in it. If the uniformity is strict, all living members
    /// of both groups have this result. If it is eventual, the intercommunicator that others may
    /// have is revoked.
    pub fn create_inter_as(
        &self,
        uniformity: Uniformity,
        leader: u32,
        peer: Option<&Comm<N>>,
        remote_leader: u32,
        tag: u32,
    ) -> Result<InterComm<N>, Error> {
        self.icreate_inter_as(uniformity, leader, peer, remote_leader, tag).wait()
    }

    /// The non-blocking form of the call.
    pub fn icreate_inter_as(
        &self,
        uniformity: Uniformity,
        leader: u32,
        peer: Option<&Comm<N>>,
        remote_leader: u32,
        tag: u32,
    ) -> InterRequest<N> {
        let link = peer.ok_or(Error::NoPeer).and_then(|peer| peer.link(remote_leader, tag));
        let accepts = None;
        let begun = |channel| AttemptStart { uniformity, leader, link, accepts, channel };
        self.begin_inter(leader, peer, begun)
    }

    /// Begins an attempt, if the arguments of all members are valid.
    pub(super) fn begin_inter(
        &self,
        leader: u32,
        peer: Option<&Comm<N>>,
        begun: impl FnOnce(Channel) -> AttemptStart,
    ) -> InterRequest<N> {
        let size = self.size();
        let possible = if leader >= size {
            Err(Error::Rank { rank: leader, size })
        } else {
            self.driver().settings.ids.localcomm(self.id()).map(drop)
        };
        match possible {
            Ok(()) => begun(self.channel()).start(self, peer),
            Err(error) => InterCreation::over(self, error),
        }
    }

    /// The link to another leader in this communicator. Its messages are separate from all others
    /// of the communicator.
    fn link(&self, to: u32, tag: u32) -> Result<(LeaderLink, bool), Error> {
        let Settings { ids, tags, .. } = self.driver().settings;
        let (rank, size) = (to, self.size());
        let own = self.rank();
        // A bit of its own keeps these tags apart from the numbers of shrinks.
        let apart = 1 << (tags.tag_bits() - 2);
        if to >= size {
            return Err(Error::Rank { rank, size });
        }
        if tag >= apart {
            return Err(Error::Tag { tag, max: apart - 1 });
        }
        let context = ids.collective(ids.sub(self.id(), Sub::Merging));
        let channel = Channel { context, ..self.outside(tag | apart) };
        Ok((LeaderLink::Peer { channel, to }, own < to))
    }
}

/// The values with which an attempt starts.
pub(super) struct AttemptStart {
    pub(super) uniformity: Uniformity,
    pub(super) leader: u32,
    pub(super) link: Result<(LeaderLink, bool), Error>,
    pub(super) accepts: Option<Accepting>,
    /// The channel of the local group.
    pub(super) channel: Channel,
}

impl AttemptStart {
    /// Starts the attempt. `parent` gives the group, the context and the number of the attempt.
    /// `peer` is the communicator of the leaders, which must not be freed meanwhile.
    pub(super) fn start<N: Net>(self, parent: &Comm<N>, peer: Option<&Comm<N>>) -> InterRequest<N> {
        let AttemptStart { uniformity, leader, link, accepts, channel } = self;
        let (driver, inner) = (parent.driver(), &parent.inner);
        let group = &channel.group;
        let made = inner.life.made(group, u32::MAX - 1);
        let attempt = epoch(&[inner.life.key.epoch, made, ATTEMPT], group, group);
        let life = Arc::new(Life::new(parent.id(), attempt, group, channel.own));
        driver.register(&life);
        let allocation = driver.allocator.begin(parent.id(), channel.tag, Role::Member);
        let allocation = allocation.for_members(attempt, group);
        let allocate = AgreedAllocation::new(&life, channel.clone(), allocation, 0);
        let plan = CreatePlan { uniformity, ids: driver.settings.ids, channel, leader, life, link };
        let slot = driver.start(Creating::new(plan, allocate, accepts));
        let (parent, peer) = (parent.clone(), peer.cloned());
        Request::new(InterCreation { slot, inherited: None, parent, _peer: peer })
    }
}

/// What an [`InterRequest`] waits for.
pub struct InterCreation<N: Net> {
    slot: Arc<ResultSlot<InterParts>>,
    /// Set if the intercommunicator is a duplicate.
    inherited: Option<Inherited<N>>,
    parent: Comm<N>,
    _peer: Option<Comm<N>>,
}

impl<N: Net> InterCreation<N> {
    fn over(comm: &Comm<N>, error: Error) -> InterRequest<N> {
        let slot = ResultSlot::new(Some(Err(error)));
        Request::new(InterCreation { slot, inherited: None, parent: comm.clone(), _peer: None })
    }
}

impl<N: Net> Pending<N> for InterCreation<N> {
    type Output = Result<InterComm<N>, Error>;

    fn driver(&self) -> &Arc<Driver<N>> {
        self.parent.driver()
    }

    fn test(&mut self) -> Option<Self::Output> {
        let made = self.slot.take()?.map(|made| InterComm::new(&self.parent, made));
        Some(match self.inherited.take() {
            Some(inherited) => inherited.give(made),
            None => made,
        })
    }
}

impl<N: Net> InterComm<N> {
    /// Duplicates the intercommunicator: the same groups, with separate messages, and with the
    /// attributes and the error handler of this one. Collective over both groups; blocks.
    ///
    /// # Errors
    /// As for [`Comm::create_inter`].
    pub fn dup(&self) -> Result<InterComm<N>, Error> {
        self.idup().wait()
    }

    /// The non-blocking form of the call.
    pub fn idup(&self) -> InterRequest<N> {
        let both = self.channel();
        let ids = self.comm.driver().settings.ids;
        let inner = ids.localcomm(self.id());
        let Ok(context) = inner.map(|id| ids.collective(ids.sub(id, Sub::Merging))) else {
            return InterCreation::over(&self.comm, Error::NoLocalcomm);
        };
        let group = Arc::clone(&self.comm.inner.info.group);
        let channel = Channel { group, own: self.rank(), context, remote: None, ..both.clone() };
        let to = self.remote_ranks().start;
        let link = Ok((LeaderLink::Peer { channel: both, to }, self.is_first()));
        let uniformity = Uniformity::None;
        let begun = AttemptStart { uniformity, leader: 0, link, accepts: None, channel };
        let mut request = begun.start(&self.comm, None);
        request.pending.inherited = Some(Inherited::of(self));
        request
    }
}
