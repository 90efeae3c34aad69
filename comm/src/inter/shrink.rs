//! Shrinking: an intercommunicator of the living members of both groups.
//!
//! 1. Both groups agree on which members are dead.
//! 2. Each group allocates an id among its living members. All living members of a group have it,
//!    or none has.
//! 3. Both groups agree on the outcome in each group. If a group has no id because another member
//!    has died, both groups start again. If not, all members have the same result: two ids, or an
//!    error.

use std::ops::Range;
use std::sync::Arc;

use super::allocate::AgreedAllocation;
use super::attributes::handler_in;
use super::intercomm::{InterComm, InterOrigin, InterParts};
use crate::alloc::{Allocator, OwnedId, Role};
use crate::comm::{CollRequest, Collective};
use crate::creation::number;
use crate::driver::{Agree, Channel, Machine, MachineIo};
use crate::error::Error;
use crate::ft::Value;
use crate::group::Group;
use crate::ids::{ContextId, IdLayout, Sub};
use crate::life::{Life, epoch};
use crate::net::Net;
use crate::remote::RemoteGroup;

/// A value in the epochs of shrinks: it tells them from everything else that is made of an
/// intercommunicator.
const SHRINK: u64 = u64::MAX - 3;

impl<N: Net> InterComm<N> {
    /// Creates an intercommunicator of the living members of both groups, in their order. It has no
    /// process whose failure any of them had seen before. The result is the same at all living
    /// members. The call also works on a revoked intercommunicator, and after more failures.
    /// Collective over both groups.
    ///
    /// # Errors
    /// [`Error::GroupFailed`]: no member of the remote group lives. [`Error::Exhausted`] or
    /// [`Error::Fragmented`] in one of the groups. The error is the same at all living members of
    /// both groups.
    pub fn shrink(&self) -> Collective<'_, N, InterComm<N>> {
        Collective::begun_by(|| self.start_shrink())
    }

    fn start_shrink(&self) -> CollRequest<N, InterComm<N>> {
        let ids = self.comm.driver().settings.ids;
        let union = self.life();
        let group = &self.comm.inner.info.group;
        // The shrink has agreements of its own, beside those that the members have under way.
        let made = union.made(&union.group, u32::MAX - 1);
        let origin = epoch(&[union.key.epoch, made, SHRINK], &union.group, &union.group);
        let context = if self.is_first() { self.id() } else { self.remote.id };
        let both = Arc::new(Life::new(context, origin, &union.group, union.own));
        let of_local = epoch(&[origin], group, &union.group);
        let local = Arc::new(Life::new(self.id(), of_local, group, self.rank()));
        self.comm.driver().register(&both);
        self.comm.driver().register(&local);
        // No other operation uses this context while the intercommunicator lives.
        let context = ids.collective(ids.sub(self.id(), Sub::Merging));
        let channel = Channel { context, life: None, ..self.comm.outside(0) };
        let stage = InterShrinkStage::Counting(Agree::new(&both, u64::MAX));
        let shrink = InterShrinkMachine {
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
        let handler = Arc::clone(&self.handler);
        self.comm.start_then(shrink, move |parent, made| {
            let made = InterComm::new(parent, made);
            made.set_error_handler(handler_in(&handler));
            Ok(made)
        })
    }
}

struct InterShrinkMachine {
    ids: IdLayout,
    allocator: Allocator,
    /// The agreements of this shrink: of both groups, and of the local group.
    both: Arc<Life>,
    local: Arc<Life>,
    /// The ranks of the remote group among both groups.
    remote: Range<u32>,
    /// The channel of the members of the local group that are agreed to be alive.
    channel: Channel,
    /// The members of the remote group that are agreed to be alive.
    others: Arc<Group>,
    attempts: u32,
    stage: InterShrinkStage,
}

enum InterShrinkStage {
    Counting(Agree),
    Allocating(AgreedAllocation),
    Comparing(Result<OwnedId, Error>, Agree),
}

/// The position of the kind of an outcome, above the id, which has at most 22 bits.
const KIND_AT: u32 = 30;

/// The outcome of the allocation in a group, as one half of the flags of an agreement. The bitwise
/// AND of two outcomes is the worse one. 0: no id, because a member has died.
fn to_bits(outcome: Result<ContextId, &Error>) -> u32 {
    match outcome {
        Ok(id) => 3 << KIND_AT | id.bits(),
        Err(Error::Fragmented { .. }) => 2 << KIND_AT,
        Err(Error::Exhausted { .. }) => 1 << KIND_AT,
        Err(_) => 0,
    }
}

/// Parses one half of the flags; `None`: no id, because a member has died. If no member of a group
/// has contributed, all bits are set, which is not a valid id.
fn parse(bits: u32, layout: IdLayout) -> Result<Option<ContextId>, Error> {
    let ids = layout.ids();
    match bits >> KIND_AT {
        1 => Err(Error::Exhausted { ids }),
        2 => Err(Error::Fragmented { ids }),
        3 => {
            let id = layout.parse(bits & ((1 << KIND_AT) - 1));
            Ok(id.ok().filter(|id| !layout.is_derived(*id)))
        }
        _ => Ok(None),
    }
}

impl InterShrinkMachine {
    fn is_first(&self) -> bool {
        self.remote.start > 0
    }

    /// The living processes among these ranks.
    fn living(&self, decision: &Value, ranks: Range<u32>) -> Arc<Group> {
        let process = |rank| self.both.group.process(rank);
        Arc::new(Group::new(decision.living(ranks).filter_map(process)))
    }

    /// Begins step 2.
    fn allocate(&mut self, decision: &Value) -> Result<InterShrinkStage, Error> {
        let all = self.both.group.size();
        let local = if self.is_first() { 0..self.remote.start } else { self.remote.end..all };
        let members = self.living(decision, local);
        self.others = self.living(decision, self.remote.clone());
        if self.others.size() == 0 {
            return Err(Error::GroupFailed);
        }
        let own = self.both.group.process(self.both.own);
        // A living process that is agreed to be dead is not among the members.
        let own = own.and_then(|own| members.rank(own));
        self.channel.own = own.ok_or(Error::ProcessFailed { rank: None })?;
        self.channel.group = members;
        self.channel.tag = number(&self.both, self.attempts, self.channel.tags);
        // Each attempt after the first one takes another death.
        if self.attempts > all {
            return Err(Error::NotOffered);
        }
        self.attempts += 1;
        let Channel { context, tag, .. } = self.channel;
        // Each attempt is a creation of its own, so that an id that one attempt has allocated in
        // vain is free for the next.
        let attempt = [self.both.key.epoch, self.attempts.into()];
        let birth = epoch(&attempt, &self.both.group, &self.both.group);
        let both = self.channel.group.union(&self.others);
        let allocation = self.allocator.begin(context, tag, Role::Member);
        let allocation = allocation.over(&self.channel.group).for_groups(birth, &Arc::new(both));
        Ok(InterShrinkStage::Allocating(AgreedAllocation::new(
            &self.local,
            self.channel.clone(),
            allocation,
            0,
        )))
    }

    /// Begins step 3.
    fn compare(&self, outcome: Result<OwnedId, Error>) -> InterShrinkStage {
        let (own, others) = if self.is_first() { (0, u32::BITS) } else { (u32::BITS, 0) };
        let has = u64::from(to_bits(outcome.as_ref().map(OwnedId::id)));
        let flags = has << own | u64::from(u32::MAX) << others;
        InterShrinkStage::Comparing(outcome, Agree::new(&self.both, flags))
    }

    /// The ids of the first and the second group, if both have one.
    fn conclude(&self, flags: u64) -> Result<Option<[ContextId; 2]>, Error> {
        let half = |at: u32| parse((flags << (u32::BITS - at) >> u32::BITS) as u32, self.ids);
        let both = [half(0), half(u32::BITS)];
        if both.contains(&Ok(None)) {
            return Ok(None);
        }
        let [first, second] = both;
        Ok(first?.zip(second?).map(<[ContextId; 2]>::from))
    }

    fn make<N: Net>(
        &self,
        io: &mut MachineIo<'_, N>,
        id: OwnedId,
        both: [ContextId; 2],
    ) -> InterParts {
        let name = [self.both.key.epoch, both[0].bits().into(), both[1].bits().into()];
        let is_first = self.is_first();
        let remote = both[usize::from(is_first)];
        let remote = RemoteGroup { id: remote, group: Arc::clone(&self.others) };
        let whole = Some(&*self.both.group);
        InterOrigin { id, local: &self.channel, remote, is_first, name, whole }.make(io)
    }
}

impl<N: Net> Machine<N> for InterShrinkMachine {
    type Output = InterParts;

    fn step(&mut self, io: &mut MachineIo<'_, N>) -> Option<Result<InterParts, Error>> {
        loop {
            self.stage = match &mut self.stage {
                InterShrinkStage::Counting(agree) => {
                    let decision = agree.step(io)?;
                    match decision.and_then(|decision| self.allocate(&decision)) {
                        Ok(stage) => stage,
                        Err(error) => return Some(Err(error)),
                    }
                }
                InterShrinkStage::Allocating(allocate) => {
                    let outcome = allocate.step(io)?;
                    if let Err(error @ Error::Net(_)) = outcome {
                        // The next attempt would fail in the same way.
                        io.ft.lack(&error);
                        return Some(Err(error));
                    }
                    self.compare(outcome.and_then(|(id, _)| id.ok_or(Error::NotOffered)))
                }
                InterShrinkStage::Comparing(outcome, agree) => {
                    let agreed = agree.step(io)?;
                    let outcome = std::mem::replace(outcome, Err(Error::AlreadyTaken));
                    match agreed.and_then(|decision| self.conclude(decision.flags)) {
                        Ok(None) => InterShrinkStage::Counting(Agree::new(&self.both, u64::MAX)),
                        Ok(Some(both)) => {
                            return Some(outcome.map(|id| self.make(io, id, both)));
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
    fn the_outcome_of_a_group_is_the_worst_outcome_of_its_members() {
        let ids = IdLayout::BITS_16;
        let id = ids.id(77).unwrap();
        let exhausted = Error::Exhausted { ids: ids.ids() };
        let fragmented = Error::Fragmented { ids: ids.ids() };
        let died = Error::ProcessFailed { rank: None };
        let outcomes = [
            (Err(&died), Ok(None)),
            (Err(&exhausted), Err(exhausted.clone())),
            (Err(&fragmented), Err(fragmented.clone())),
            (Ok(id), Ok(Some(id))),
        ];
        for (has, parsed) in outcomes {
            assert_eq!(parse(to_bits(has), ids), parsed);
            assert_eq!(parse(to_bits(has) & to_bits(Ok(id)), ids), parsed);
        }
        // No contribution, and impossible values.
        for bits in [u32::MAX, 3 << KIND_AT | 1, 1 << 20] {
            assert_eq!(parse(bits, ids), Ok(None));
        }
    }
}
