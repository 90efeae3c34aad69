//! Making intercommunicators.

use std::sync::Arc;

use crate::alloc::Role;
use crate::comm::Comm;
use crate::driver::{Channel, Driver, Pending, Request, ResultSlot, Settings};
use crate::error::Error;
use crate::ft::{Life, epoch};
use crate::ids::Sub;
use crate::net::Net;

use super::InterComm;
use super::allocate::Allocate;
use super::bridge::Bridge;
use super::connect::Accepting;
use super::kept::Bequest;
use super::making::{Made, Making, Plan};

/// An intercommunicator that is being made.
pub type InterRequest<N> = Request<N, InterCreation<N>>;

/// What the processes of both groups know of each other's result when an intercommunicator was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Uniformity {
    /// Nothing: after a failure, some may have it and others not.
    None,
    /// All of a group that live have the same result. If those of one have it and those of the other have
    /// not, then that was revoked: those who have it learn of that, in the end. Whoever needs to know at
    /// once needs [`Strict`](Self::Strict).
    Eventual,
    /// All of both groups that live have the same result.
    Strict,
}

/// The groups of attempts and of merges of one communicator are apart from what else is counted there.
pub(super) const ATTEMPT: u64 = u64::MAX - 1;

impl<N: Net> Comm<N> {
    /// An intercommunicator of this communicator's group and another one. Collective over both; blocks.
    ///
    /// `leader` is the rank of this group's leader, the same at all members. The leader gives what follows:
    /// `peer` is a communicator of both leaders, `remote_leader` the other one's rank there, and `tag` tells
    /// attempts apart that are under way at once between the same leaders.
    ///
    /// # Errors
    /// A group has no context id left, or a process is down; other processes may have another result. What
    /// the leader gives can't be; the groups have a process in common. The layout of context ids has no bit L.
    pub fn create_inter(
        &self,
        leader: u32,
        peer: Option<&Comm<N>>,
        remote_leader: u32,
        tag: u32,
    ) -> Result<InterComm<N>, Error> {
        self.icreate_inter(leader, peer, remote_leader, tag).wait()
    }

    /// The same, without blocking.
    pub fn icreate_inter(
        &self,
        leader: u32,
        peer: Option<&Comm<N>>,
        remote_leader: u32,
        tag: u32,
    ) -> InterRequest<N> {
        self.icreate_inter_as(Uniformity::None, leader, peer, remote_leader, tag)
    }

    /// The same, with a promise about others' results. All of both groups ask for the same one. Blocks.
    ///
    /// # Errors
    /// [`Error::NotCreated`], whatever the cause. It is the result of all of both groups that live, or, if the
    /// uniformity is but eventual, what others have is revoked.
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

    /// The same, without blocking.
    pub fn icreate_inter_as(
        &self,
        uniformity: Uniformity,
        leader: u32,
        peer: Option<&Comm<N>>,
        remote_leader: u32,
        tag: u32,
    ) -> InterRequest<N> {
        let bridge = peer.ok_or(Error::NoPeer).and_then(|peer| peer.bridge(remote_leader, tag));
        let accepts = None;
        let begun = |channel| Begun { uniformity, leader, bridge, accepts, channel };
        self.begin_inter(leader, peer, begun)
    }

    /// Begins an attempt, if what all members give can be.
    pub(super) fn begin_inter(
        &self,
        leader: u32,
        peer: Option<&Comm<N>>,
        begun: impl FnOnce(Channel) -> Begun,
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

    /// The way to another leader, whose messages are no others' of this communicator.
    fn bridge(&self, to: u32, tag: u32) -> Result<(Bridge, bool), Error> {
        let Settings { ids, tags, .. } = self.driver().settings;
        let (rank, size) = (to, self.size());
        let own = self.rank();
        // A field of its own, apart from the numbers of shrinks.
        let apart = 1 << (tags.tag_bits() - 2);
        if to >= size {
            return Err(Error::Rank { rank, size });
        }
        if tag >= apart {
            return Err(Error::Tag { tag, max: apart - 1 });
        }
        let context = ids.collective(ids.sub(self.id(), Sub::Merging));
        let channel = Channel { context, ..self.outside(tag | apart) };
        Ok((Bridge::Peer { channel, to }, own < to))
    }
}

/// What an attempt starts from.
pub(super) struct Begun {
    pub(super) uniformity: Uniformity,
    pub(super) leader: u32,
    pub(super) bridge: Result<(Bridge, bool), Error>,
    pub(super) accepts: Option<Accepting>,
    /// Of the local group.
    pub(super) channel: Channel,
}

impl Begun {
    /// `parent`: of whose group, context and history the attempt is; `peer`: what the leaders need besides.
    pub(super) fn start<N: Net>(self, parent: &Comm<N>, peer: Option<&Comm<N>>) -> InterRequest<N> {
        let Begun { uniformity, leader, bridge, accepts, channel } = self;
        let (driver, inner) = (parent.driver(), &parent.inner);
        let group = &channel.group;
        let made = inner.life.made(group, u32::MAX - 1);
        let attempt = epoch(&[inner.life.key.epoch, made, ATTEMPT], group, group);
        let life = Arc::new(Life::new(parent.id(), attempt, group, channel.own));
        driver.register(&life);
        let allocation = driver.allocator.begin(parent.id(), channel.tag, Role::Member);
        let allocation = allocation.for_members(attempt, group);
        let allocate = Allocate::new(&life, channel.clone(), allocation, 0);
        let plan = Plan { uniformity, ids: driver.settings.ids, channel, leader, life, bridge };
        let slot = driver.start(Making::new(plan, allocate, accepts));
        let (parent, peer) = (parent.clone(), peer.cloned());
        Request::new(InterCreation { slot, bequest: None, parent, _peer: peer })
    }
}

/// What an [`InterRequest`] waits for.
pub struct InterCreation<N: Net> {
    slot: Arc<ResultSlot<Made>>,
    /// Of a duplicate.
    bequest: Option<Bequest<N>>,
    parent: Comm<N>,
    _peer: Option<Comm<N>>,
}

impl<N: Net> InterCreation<N> {
    fn over(comm: &Comm<N>, error: Error) -> InterRequest<N> {
        let slot = ResultSlot::new(Some(Err(error)));
        Request::new(InterCreation { slot, bequest: None, parent: comm.clone(), _peer: None })
    }
}

impl<N: Net> Pending<N> for InterCreation<N> {
    type Output = Result<InterComm<N>, Error>;

    fn driver(&self) -> &Arc<Driver<N>> {
        self.parent.driver()
    }

    fn test(&mut self) -> Option<Self::Output> {
        let made = self.slot.take()?.map(|made| InterComm::new(&self.parent, made));
        Some(match self.bequest.take() {
            Some(bequest) => bequest.give(made),
            None => made,
        })
    }
}

impl<N: Net> InterComm<N> {
    /// An intercommunicator of the same groups, whose messages are apart, with the attributes and the error
    /// handler of this one. Collective over both; blocks.
    ///
    /// # Errors
    /// As for [`Comm::create_inter`].
    pub fn dup(&self) -> Result<InterComm<N>, Error> {
        self.idup().wait()
    }

    /// The same, without blocking.
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
        let bridge = Ok((Bridge::Peer { channel: both, to }, self.is_first()));
        let uniformity = Uniformity::None;
        let begun = Begun { uniformity, leader: 0, bridge, accepts: None, channel };
        let mut request = begun.start(&self.comm, None);
        request.pending.bequest = Some(Bequest::of(self));
        request
    }
}
