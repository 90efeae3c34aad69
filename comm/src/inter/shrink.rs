//! Shrinking: an intercommunicator of those of both groups who live.
//!
//! 1. All of both groups agree on who is dead.
//! 2. Each group allocates an id among those of it who live. All of a group that live have it, or none.
//! 3. All of both groups agree on what each of them has. If another death has kept one from an id, all begin
//!    again. Else all have the same: two ids, or an error.

use std::ops::Range;
use std::sync::Arc;

use crate::alloc::{Allocator, OwnedId, Role};
use crate::driver::{Channel, Driver, Machine, Pending, Port, Request, ResultSlot, Settings};
use crate::error::Error;
use crate::ft::{Agree, Life, Value, epoch, number};
use crate::group::Group;
use crate::ids::{ContextId, IdLayout, Sub};
use crate::net::Net;
use crate::remote::{RemoteGroup, RemoteRanks};

use super::InterComm;
use super::allocate::Allocate;
use super::making::Made;

/// An intercommunicator of those who live that is being made.
pub type InterShrinkRequest<N> = Request<N, InterShrinking<N>>;

/// Shrinks are numbered apart from what else is made of an intercommunicator.
const SHRINK: u64 = u64::MAX - 3;

impl<N: Net> InterComm<N> {
    /// An intercommunicator of those of both groups that live, in their order: none is in it whose failure any of
    /// them had seen before. The same at all who live; revocation does not touch it, nor do more failures.
    /// Collective over both; blocks.
    ///
    /// # Errors
    /// [`Error::GroupFailed`]: nobody of the remote group lives. [`Error::Exhausted`] or [`Error::Fragmented`]
    /// in one of the groups. Each is the same at all of both groups that live.
    pub fn shrink(&self) -> Result<InterComm<N>, Error> {
        self.ishrink().wait()
    }

    /// The same, without blocking.
    pub fn ishrink(&self) -> InterShrinkRequest<N> {
        let Settings { ids, tags, .. } = self.comm.driver().settings;
        let (union, group) = (self.life(), &self.comm.inner.info.group);
        // Agreements of its own, whatever others the members have under way.
        let made = union.made(&union.group, u32::MAX - 1);
        let origin = epoch(&[union.key.epoch, made, SHRINK], &union.group, &union.group);
        let context = if self.is_first() { self.id() } else { self.remote.id };
        let both = Arc::new(Life::new(context, origin, &union.group, union.own));
        let of_local = epoch(&[origin], group, &union.group);
        let local = Arc::new(Life::new(self.id(), of_local, group, self.rank()));
        self.comm.driver().register(&both);
        self.comm.driver().register(&local);
        let channel = Channel {
            group: Arc::clone(group),
            own: self.rank(),
            // Of nothing that lives beside this intercommunicator: its messages meet no others.
            context: ids.collective(ids.sub(self.id(), Sub::Merging)),
            tag: 0,
            tags,
            life: None,
            remote: None,
            turn: None,
        };
        let stage = Stage::Counting(Agree::new(&both, u64::MAX));
        let shrink = Shrink {
            ids,
            allocator: self.comm.driver().allocator.clone(),
            both,
            local,
            remote: self.remote_ranks(),
            channel,
            others: Arc::clone(&self.remote.group),
            attempts: 0,
            stage,
        };
        let slot = self.comm.driver().start(shrink);
        Request::new(InterShrinking { slot, parent: self.clone() })
    }
}

/// What an [`InterShrinkRequest`] waits for.
pub struct InterShrinking<N: Net> {
    slot: Arc<ResultSlot<Made>>,
    parent: InterComm<N>,
}

impl<N: Net> Pending<N> for InterShrinking<N> {
    type Output = Result<InterComm<N>, Error>;

    fn driver(&self) -> &Arc<Driver<N>> {
        self.parent.comm.driver()
    }

    fn test(&mut self) -> Option<Self::Output> {
        let made = self.slot.take()?.map(|made| InterComm::new(&self.parent.comm, made));
        if let Ok(made) = &made {
            made.set_error_handler(self.parent.error_handler());
        }
        Some(self.parent.comm.raise(made))
    }
}

struct Shrink {
    ids: IdLayout,
    allocator: Allocator,
    /// Of this shrink, in both groups and in the local one.
    both: Arc<Life>,
    local: Arc<Life>,
    /// The remote group's ranks among both.
    remote: Range<u32>,
    /// Those of the local group who live, as far as that is agreed on.
    channel: Channel,
    /// And those of the remote one.
    others: Arc<Group>,
    attempts: u32,
    stage: Stage,
}

enum Stage {
    Counting(Agree),
    Allocating(Allocate),
    Comparing(Result<OwnedId, Error>, Agree),
}

/// What a group has, as half of an agreement's flags. The bitwise AND with what a member does not have is that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Has {
    /// A member has died.
    Nothing,
    Exhausted,
    Fragmented,
    Id(ContextId),
}

impl Has {
    /// Where ids end: they have 22 bits at most.
    const KIND_AT: u32 = 30;

    fn of(outcome: &Result<OwnedId, Error>) -> Self {
        match outcome {
            Ok(id) => Has::Id(id.id()),
            Err(Error::Exhausted { .. }) => Has::Exhausted,
            Err(Error::Fragmented { .. }) => Has::Fragmented,
            Err(_) => Has::Nothing,
        }
    }

    fn to_bits(self) -> u32 {
        match self {
            Has::Nothing => 0,
            Has::Exhausted => 1 << Self::KIND_AT,
            Has::Fragmented => 2 << Self::KIND_AT,
            Has::Id(id) => 3 << Self::KIND_AT | id.bits(),
        }
    }

    /// Of a group of which nobody has contributed it is all ones, which is no id.
    fn parse(bits: u32, ids: IdLayout) -> Self {
        let id = ids.parse(bits & ((1 << Self::KIND_AT) - 1));
        match (bits >> Self::KIND_AT, id) {
            (1, _) => Has::Exhausted,
            (2, _) => Has::Fragmented,
            (3, Ok(id)) if !ids.is_derived(id) => Has::Id(id),
            _ => Has::Nothing,
        }
    }
}

impl Shrink {
    fn is_first(&self) -> bool {
        self.remote.start > 0
    }

    /// Those of these ranks among both who live.
    fn living(&self, decision: &Value, ranks: Range<u32>) -> Arc<Group> {
        let process = |rank| self.both.group.process(rank);
        Arc::new(Group::new(decision.living(ranks).filter_map(process)))
    }

    /// Step 2.
    fn allocate(&mut self, decision: &Value) -> Result<Stage, Error> {
        let all = self.both.group.size();
        let local = if self.is_first() { 0..self.remote.start } else { self.remote.end..all };
        let members = self.living(decision, local);
        self.others = self.living(decision, self.remote.clone());
        if self.others.size() == 0 {
            return Err(Error::GroupFailed);
        }
        let own = self.both.group.process(self.both.own);
        // One that is wrongly said to be dead.
        let own = own.and_then(|own| members.rank(own));
        self.channel.own = own.ok_or(Error::ProcessFailed { rank: None })?;
        self.channel.group = members;
        self.channel.tag = number(&self.both, self.attempts, self.channel.tags);
        // Each but the first one takes another death.
        if self.attempts > all {
            return Err(Error::NotOffered);
        }
        self.attempts += 1;
        let Channel { context, tag, .. } = self.channel;
        // Each attempt has a name of its own: what one has allocated in vain is free for the next.
        let attempt = [self.both.key.epoch, self.attempts.into()];
        let birth = epoch(&attempt, &self.both.group, &self.both.group);
        let both = self.channel.group.union(&self.others);
        let allocation = self.allocator.begin(context, tag, Role::Member);
        let allocation = allocation.for_members(birth, &Arc::new(both));
        Ok(Stage::Allocating(Allocate::new(&self.local, self.channel.clone(), allocation, 0)))
    }

    /// Step 3.
    fn compare(&self, outcome: Result<OwnedId, Error>) -> Stage {
        let (own, others) = if self.is_first() { (0, u32::BITS) } else { (u32::BITS, 0) };
        let has = u64::from(Has::of(&outcome).to_bits());
        let flags = has << own | u64::from(u32::MAX) << others;
        Stage::Comparing(outcome, Agree::new(&self.both, flags))
    }

    /// What both groups have: of the first and of the second one.
    fn conclude(&self, flags: u64) -> Result<Option<[ContextId; 2]>, Error> {
        let ids = self.ids.ids();
        let half = |at: u32| Has::parse((flags << (u32::BITS - at) >> u32::BITS) as u32, self.ids);
        match [half(0), half(u32::BITS)] {
            [Has::Nothing, _] | [_, Has::Nothing] => Ok(None),
            [Has::Exhausted, _] | [Has::Id(_), Has::Exhausted] => Err(Error::Exhausted { ids }),
            [Has::Fragmented, _] | [Has::Id(_), Has::Fragmented] => Err(Error::Fragmented { ids }),
            [Has::Id(first), Has::Id(second)] => Ok(Some([first, second])),
        }
    }

    fn make<N: Net>(&self, port: &mut Port<'_, N>, id: OwnedId, both: [ContextId; 2]) -> Made {
        let (local, others) = (&self.channel.group, &self.others);
        let [first, second] = if self.is_first() { [local, others] } else { [others, local] };
        let union = Arc::new(first.union(second));
        let parts = [self.both.key.epoch, both[0].bits().into(), both[1].bits().into()];
        let rank = if self.is_first() { 0 } else { others.size() } + self.channel.own;
        let epoch = epoch(&parts, &union, &self.both.group);
        let remote = both[usize::from(self.is_first())];
        let split = first.size();
        let ranks = if self.is_first() { split..union.size() } else { 0..split };
        let life = Life::new(both[0], epoch, &union, rank);
        let life = Arc::new(life.between(id.id(), RemoteRanks { ranks, context: remote }));
        port.ft.register(port.net, &life);
        let remote = RemoteGroup { id: remote, group: Arc::clone(others) };
        Made { id, local: Arc::clone(local), rank: self.channel.own, remote, life }
    }
}

impl<N: Net> Machine<N> for Shrink {
    type Output = Made;

    fn step(&mut self, port: &mut Port<'_, N>) -> Option<Result<Made, Error>> {
        loop {
            self.stage = match &mut self.stage {
                Stage::Counting(agree) => {
                    let decision = agree.step(port)?;
                    match self.allocate(&decision) {
                        Ok(stage) => stage,
                        Err(error) => return Some(Err(error)),
                    }
                }
                Stage::Allocating(allocate) => {
                    let outcome = allocate.step(port)?;
                    self.compare(outcome.map(|(id, _)| id))
                }
                Stage::Comparing(outcome, agree) => {
                    let flags = agree.step(port)?.flags;
                    let outcome = std::mem::replace(outcome, Err(Error::AlreadyTaken));
                    match self.conclude(flags) {
                        Ok(None) => Stage::Counting(Agree::new(&self.both, u64::MAX)),
                        Ok(Some(both)) => {
                            return Some(outcome.map(|id| self.make(port, id, both)));
                        }
                        Err(error) => return Some(Err(error)),
                    }
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_group_has_is_what_all_of_it_have() {
        let ids = IdLayout::BITS_16;
        let id = Has::Id(ids.id(77).unwrap());
        for has in [Has::Nothing, Has::Exhausted, Has::Fragmented, id] {
            assert_eq!(Has::parse(has.to_bits(), ids), has);
            assert_eq!(Has::parse(has.to_bits() & id.to_bits(), ids), has);
        }
        // Nobody has said anything, or what can't be.
        for bits in [u32::MAX, 3 << Has::KIND_AT | 1, 1 << 20] {
            assert_eq!(Has::parse(bits, ids), Has::Nothing);
        }
    }
}
