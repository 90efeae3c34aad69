//! The calls that create an intercommunicator by two leaders that share a communicator, and how
//! every creation starts.

use std::sync::Arc;

use super::allocate::AgreedAllocation;
use super::attributes::handler_in;
use super::create_machine::{AttemptStart, CreatePlan, Creating};
use super::intercomm::InterComm;
use super::leader_link::LeaderLink;
use super::uniformity::Uniformity;
use crate::alloc::Role;
use crate::comm::{CollRequest, Collective, Comm};
use crate::driver::{Channel, Settings};
use crate::error::Error;
use crate::ids::Sub;
use crate::life::{Life, epoch};
use crate::net::Net;

/// A value in the epochs of attempts: it tells them from the epochs of everything else that is made
/// of the same communicator.
pub(super) const ATTEMPT: u64 = u64::MAX - 1;

/// How the leader of a group reaches the leader of the other group, in [`Comm::create_inter`].
pub struct RemoteLeader<'a, N: Net> {
    /// A communicator of both leaders.
    pub peer: &'a Comm<N>,
    /// The rank of the other leader in it.
    pub rank: u32,
    /// Tells attempts apart that are under way at the same time between the same leaders.
    pub tag: u32,
}

impl<N: Net> RemoteLeader<'_, N> {
    /// The messages of the link are separate from all others of the communicator.
    fn link(&self) -> Result<(LeaderLink, bool), Error> {
        let RemoteLeader { peer, rank: to, tag } = *self;
        let Settings { ids, tags, .. } = peer.driver().settings;
        let size = peer.size();
        // A bit of its own keeps these tags apart from the numbers of shrinks.
        let apart = 1 << (tags.tag_bits() - 2);
        if to >= size {
            return Err(Error::Rank { rank: to, size });
        }
        if tag >= apart {
            return Err(Error::Tag { tag, max: apart - 1 });
        }
        let context = ids.collective(ids.sub(peer.id(), Sub::Merging));
        let channel = Channel { context, ..peer.outside(tag | apart) };
        Ok((LeaderLink::Peer { channel, to }, peer.rank() < to))
    }
}

impl<N: Net> Comm<N> {
    /// Creates an intercommunicator of this communicator's group and another group. Collective over
    /// both groups, whose members all pass the same uniformity.
    ///
    /// `leader` is the rank of this group's leader, the same at all members. `remote` says how the
    /// leader reaches the other one. What other members pass doesn't count.
    ///
    /// # Errors
    /// A group has no context id left, or a process is down. An argument of the leader is invalid,
    /// the groups have a process in common, or the layout of context ids has no bit L.
    ///
    /// With [`Uniformity::None`], other processes may have another result. Otherwise the error is
    /// [`Error::NotCreated`], with the cause in it. If the uniformity is strict, all living members
    /// of both groups have this result. If it is eventual, the intercommunicator that others may
    /// have is revoked.
    pub fn create_inter(
        &self,
        uniformity: Uniformity,
        leader: u32,
        remote: Option<RemoteLeader<'_, N>>,
    ) -> Collective<'_, N, InterComm<N>> {
        let peer = remote.as_ref().map(|remote| remote.peer.clone());
        let link = remote.ok_or(Error::NoPeer).and_then(|remote| remote.link());
        let begun = AttemptStart { uniformity, leader, link, accepts: None };
        Collective::begun_by(move || self.begin_inter(begun).keeping(peer))
    }

    /// Begins an attempt, if the arguments of all members are valid.
    pub(super) fn begin_inter(&self, begun: AttemptStart) -> CollRequest<N, InterComm<N>> {
        let rank = begun.leader;
        let size = self.size();
        if rank >= size {
            return self.ended(Err(Error::Rank { rank, size }));
        }
        match self.driver().settings.ids.localcomm(self.id()) {
            Ok(_) => begun.start(self, self.channel(), |_, made| Ok(made)),
            Err(error) => self.ended(Err(error)),
        }
    }
}

impl AttemptStart {
    /// Starts the attempt. `parent` gives the group, the context and the number of the attempt.
    /// `channel` is that of the local group. `finish` gets the intercommunicator.
    fn start<N: Net>(
        self,
        parent: &Comm<N>,
        channel: Channel,
        finish: impl FnOnce(&Comm<N>, InterComm<N>) -> Result<InterComm<N>, Error>
        + Send
        + Sync
        + 'static,
    ) -> CollRequest<N, InterComm<N>> {
        let driver = parent.driver();
        let inner = &parent.inner;
        let group = &channel.group;
        let made = inner.life.made(group, u32::MAX - 1);
        let attempt = epoch(&[inner.life.key.epoch, made, ATTEMPT], group, group);
        let life = Life::new(parent.id(), attempt, group, channel.own);
        // A member that gives up after a revocation may have another result than the others, so
        // only a creation without uniformity is given up.
        let life = Arc::new(match self.uniformity {
            Uniformity::None => life.within(&inner.life),
            Uniformity::Eventual | Uniformity::Strict => life,
        });
        driver.register(&life);
        let allocation = driver.allocator.begin(parent.id(), channel.tag, Role::Member);
        let allocation = allocation.over(group).for_groups(attempt, group);
        let allocate = AgreedAllocation::new(&life, channel.clone(), allocation, 0);
        let plan = CreatePlan { start: self, ids: driver.settings.ids, channel, life };
        parent.start_then(Creating::new(plan, allocate), |parent, made| {
            finish(parent, InterComm::new(parent, made))
        })
    }
}

impl<N: Net> InterComm<N> {
    /// Duplicates the intercommunicator: the same groups, with separate messages, and with the
    /// attributes and the error handler of this one. Collective over both groups.
    ///
    /// # Errors
    /// As for [`Comm::create_inter`] with [`Uniformity::None`].
    pub fn dup(&self) -> Collective<'_, N, InterComm<N>> {
        Collective::begun_by(|| self.start_dup())
    }

    /// A channel of the local group for the operation that has the channel `both`.
    pub(super) fn local_channel(&self, both: &Channel) -> Result<Channel, Error> {
        let ids = self.comm.driver().settings.ids;
        let context = ids.collective(ids.sub(ids.localcomm(self.id())?, Sub::Merging));
        let group = Arc::clone(&self.comm.inner.info.group);
        Ok(Channel { group, own: self.rank(), context, remote: None, ..both.clone() })
    }

    fn start_dup(&self) -> CollRequest<N, InterComm<N>> {
        let both = self.channel();
        let channel = match self.local_channel(&both) {
            Ok(channel) => channel,
            Err(error) => return self.comm.ended(Err(error)),
        };
        let to = self.remote_ranks().start;
        let link = Ok((LeaderLink::Peer { channel: both, to }, self.is_first()));
        let uniformity = Uniformity::None;
        let begun = AttemptStart { uniformity, leader: 0, link, accepts: None };
        let attributes = self.comm.copy_attributes();
        let handler = Arc::clone(&self.handler);
        begun.start(&self.comm, channel, move |_, made| {
            made.comm.take_attributes(attributes?);
            made.set_error_handler(handler_in(&handler));
            Ok(made)
        })
    }
}
