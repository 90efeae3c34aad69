//! The state machine that creates an intercommunicator in one process.
//!
//! All members of a group go through the same steps to the end, even after a failure. So no process
//! waits for one that has given up.
//!
//! 1. The group allocates the context id in which it will receive. All living members have it, or
//!    none has.
//! 2. The leaders exchange the descriptions of their groups, or the reasons why there is none.
//! 3. Each leader broadcasts the other description, or the reason, in its group: first a head of
//!    fixed length, then the names of the members.
//!
//! With `Uniformity::None`, this is all. With `Uniformity::Eventual` (the algorithm published for
//! ULFM):
//!
//! 4. Each group agrees on whether all of its living members know the other group.
//! 5. The leaders exchange the results of these agreements.
//! 6. Each group agrees on whether its leader has received a yes, and no member has died. If not,
//!    the group revokes the intercommunicator.
//!
//! With `Uniformity::Strict`:
//!
//! 4. A process that knows the other group *joins* the agreement of both groups. A process that
//!    does not *refuses*: its attempt ends, and it contributes a 0 when it is invited
//!    (`ft/attempts.rs`).
//! 5. Both groups agree as one on whether all members have joined.

use std::sync::Arc;

use tagmatch::Buffer;

use super::accepting::Accepting;
use super::allocate::AgreedAllocation;
use super::description::{self, GroupDescription, HEAD};
use super::intercomm::{InterOrigin, InterParts};
use super::leader_link::{LeaderLink, LeaderSwap};
use super::uniformity::Uniformity;
use crate::alloc::OwnedId;
use crate::driver::{Agree, Channel, Machine, MachineIo};
use crate::error::Error;
use crate::ft::{Invitation, Value};
use crate::group::Group;
use crate::ids::IdLayout;
use crate::life::Life;
use crate::net::Net;
use crate::plans::{Exchange, algorithms};
use crate::remote::RemoteGroup;

/// The arguments of a creation.
pub(super) struct AttemptStart {
    pub(super) uniformity: Uniformity,
    pub(super) leader: u32,
    /// At the leader: the link to the other leader, and whether the local group comes first.
    pub(super) link: Result<(LeaderLink, bool), Error>,
    /// Set at a leader that waits for a call.
    pub(super) accepts: Option<Accepting>,
}

/// The arguments of a creation, and the facts about the local group that it needs.
pub(super) struct CreatePlan {
    pub(super) start: AttemptStart,
    pub(super) ids: IdLayout,
    /// The channel of the local group.
    pub(super) channel: Channel,
    /// The attempt of the local group.
    pub(super) life: Arc<Life>,
}

pub(super) struct Creating {
    plan: CreatePlan,
    stage: CreateStage,
    id: Option<OwnedId>,
    /// At the leader: the message to its group.
    told: Vec<u8>,
    /// The head of the leader's message.
    head: Result<Vec<u8>, Error>,
    made: Result<InterParts, Error>,
    invitation: Option<Invitation>,
}

enum CreateStage {
    /// Step 1.
    Allocating(AgreedAllocation),
    /// Step 2, at a leader that waits for a call.
    Accepting,
    /// Step 2.
    Describing(LeaderSwap),
    /// Step 3: the head.
    Telling(Exchange),
    /// Step 3: the names.
    Naming(Exchange),
    /// `Uniformity::Eventual`, step 4.
    Knowing(Agree),
    /// `Uniformity::Eventual`, step 5, and the result of step 4.
    Comparing(LeaderSwap, bool),
    /// `Uniformity::Eventual`, step 6.
    Concluding(Agree),
    /// `Uniformity::Strict`, step 5.
    AgreeingAsOne(Agree),
}

impl Creating {
    pub(super) fn new(plan: CreatePlan, allocate: AgreedAllocation) -> Self {
        Creating {
            plan,
            stage: CreateStage::Allocating(allocate),
            id: None,
            told: Vec::new(),
            head: Ok(Vec::new()),
            made: Err(Error::Leader),
            invitation: None,
        }
    }

    fn is_leader(&self) -> bool {
        self.plan.channel.own == self.plan.start.leader
    }

    /// The description of the local group, or the reason why there is none.
    fn own_description(&self, is_first: bool) -> Result<GroupDescription, Error> {
        let id = self.id.as_ref().ok_or_else(|| self.failure())?.id();
        let members = Group::clone(&self.plan.channel.group);
        if members.size() > description::MEMBERS_MAX {
            return Err(Error::Members);
        }
        Ok(GroupDescription { attempt: self.plan.life.key, id, is_first, members })
    }

    fn failure(&self) -> Error {
        self.made.as_ref().err().cloned().unwrap_or(Error::Leader)
    }

    /// Begins step 2 at the leader, and step 3 at the other members.
    fn meet<N: Net>(&mut self, io: &mut MachineIo<'_, N>) -> CreateStage {
        if !self.is_leader() {
            // The leader may tell the other group the id, and die before it tells its own group
            // which group that is.
            self.id.iter_mut().for_each(OwnedId::lose_track);
            return self.tell();
        }
        if self.plan.start.accepts.is_some() {
            return CreateStage::Accepting;
        }
        self.describe(io)
    }

    fn describe<N: Net>(&mut self, io: &mut MachineIo<'_, N>) -> CreateStage {
        let (link, is_first) = match &self.plan.start.link {
            Ok((link, is_first)) => (link, *is_first),
            Err(error) => {
                self.told = description::to_bytes(Err(error), self.plan.ids, io.net);
                description::put_untold(&mut self.told);
                return self.tell();
            }
        };
        let own = self.own_description(is_first);
        let own = description::to_bytes(own.as_ref(), self.plan.ids, io.net);
        self.id.iter_mut().for_each(OwnedId::lose_track);
        CreateStage::Describing(LeaderSwap::begin(link, &own, HEAD, description::names_length))
    }

    /// Checks the description that the leader has received from the other one.
    fn check<N: Net>(
        &self,
        swapped: Result<Vec<u8>, Error>,
        net: &mut N,
    ) -> Result<GroupDescription, Error> {
        let (link, is_first) = self.plan.start.link.as_ref().map_err(Error::clone)?;
        let own = self.own_description(*is_first)?;
        let described = description::parse(&swapped?, self.plan.ids, net)?;
        if described.members.intersection(&own.members).size() > 0 {
            return Err(Error::Overlap);
        }
        let members = u64::from(described.members.size()) + u64::from(own.members.size());
        if members > 1 << self.plan.channel.tags.source_bits().min(32) {
            return Err(Error::Members);
        }
        let is_its = link.process().is_some_and(|sender| described.members.rank(sender).is_some());
        if is_its && described.is_first != own.is_first {
            Ok(described)
        } else {
            Err(Error::Leader)
        }
    }

    fn tell(&self) -> CreateStage {
        CreateStage::Telling(self.broadcast(&self.told, HEAD))
    }

    /// Broadcasts the names of the other group's members. A process that has not received the head
    /// takes part, too, and passes the failure on.
    fn name(&self) -> CreateStage {
        let names = self.told.get(HEAD..).unwrap_or_default();
        let length = self.head.as_ref().map_or(0, |head| description::names_length(head));
        let failure = self.head.as_ref().err().cloned();
        CreateStage::Naming(self.broadcast(names, length).after(failure))
    }

    /// Broadcasts `length` bytes of the leader in the group.
    fn broadcast(&self, data: &[u8], length: usize) -> Exchange {
        let CreatePlan { channel, start, .. } = &self.plan;
        let mut data = data.to_vec();
        data.resize(length, 0);
        Exchange::new(channel.clone(), algorithms::broadcast(channel, start.leader, data), None)
    }

    /// The parts of the intercommunicator, if this process knows the other group.
    fn make<N: Net>(
        &mut self,
        io: &mut MachineIo<'_, N>,
        members: Result<Buffer, Error>,
    ) -> Result<InterParts, Error> {
        let mut id = self.id.take().ok_or_else(|| self.failure())?;
        let mut bytes = self.head.clone()?;
        if description::is_untold(&bytes) {
            id.keep_track();
        }
        bytes.extend_from_slice(&members?);
        let described = description::parse(&bytes, self.plan.ids, io.net);
        let GroupDescription { attempt, id: remote, is_first, members } =
            match &self.plan.start.link {
                // The leader knows its own error, which has more details than the message.
                Err(own) if self.is_leader() => described.map_err(|_| own.clone())?,
                _ => described?,
            };
        let channel = &self.plan.channel;
        let members = Arc::new(members);
        id.trace(attempt.epoch, &members);
        let both = [(self.plan.life.key, id.id()), (attempt, remote)];
        let [first, second] = if is_first { [both[1], both[0]] } else { both };
        let name = [first.0.epoch, second.0.epoch, second.1.bits().into()];
        let remote = RemoteGroup { id: remote, group: members };
        let is_second = !is_first;
        let origin =
            InterOrigin { id, local: channel, remote, is_first: is_second, name, whole: None };
        let made = origin.make(io);
        let split = if is_first { made.remote.group.size() } else { channel.size() };
        let members = Arc::clone(&made.life.group);
        self.invitation = Some(Invitation { attempts: [first.0, second.0], members, split });
        Ok(made)
    }

    /// Begins step 4; `None` if there is none.
    fn agree<N: Net>(&mut self, io: &mut MachineIo<'_, N>) -> Option<CreateStage> {
        match self.plan.start.uniformity {
            Uniformity::None => None,
            Uniformity::Eventual => {
                let flags = u64::from(self.made.is_ok());
                Some(CreateStage::Knowing(Agree::new(&self.plan.life, flags)))
            }
            Uniformity::Strict => self.agree_as_one(io),
        }
    }

    /// Begins step 5 of `Uniformity::Eventual`.
    fn compare(&self, known: bool) -> CreateStage {
        match &self.plan.start.link {
            Ok((link, _)) if self.is_leader() => {
                CreateStage::Comparing(LeaderSwap::begin(link, &[u8::from(known)], 1, |_| 0), known)
            }
            Err(_) if self.is_leader() => self.conclude(false),
            _ => self.conclude(true),
        }
    }

    fn conclude(&self, flag: bool) -> CreateStage {
        CreateStage::Concluding(Agree::new(&self.plan.life, flag.into()))
    }

    /// Begins steps 4 and 5 of `Uniformity::Strict`.
    fn agree_as_one<N: Net>(&mut self, io: &mut MachineIo<'_, N>) -> Option<CreateStage> {
        let (Ok(made), Some(invitation)) = (&self.made, self.invitation.take()) else {
            io.ft.refuse(io.net, self.plan.life.key);
            return None;
        };
        io.ft.join(io.net, &made.life, invitation);
        Some(CreateStage::AgreeingAsOne(Agree::new(&made.life, 1)))
    }

    /// The result. `agreed`: all members that it concerns have the intercommunicator.
    fn end(&mut self, agreed: bool) -> Result<InterParts, Error> {
        let made = std::mem::replace(&mut self.made, Err(Error::AlreadyTaken));
        let made = if agreed { made } else { made.and(Err(Error::ProcessFailed { rank: None })) };
        match self.plan.start.uniformity {
            Uniformity::None => made,
            _ => made.map_err(|cause| Error::NotCreated { cause: Box::new(cause) }),
        }
    }
}

/// Whether all members have contributed a 1.
fn is_yes_of_all(agreed: &Value) -> bool {
    agreed.flags == 1 && agreed.unacknowledged().is_empty()
}

impl<N: Net> Machine<N> for Creating {
    type Output = InterParts;

    fn step(&mut self, io: &mut MachineIo<'_, N>) -> Option<Result<InterParts, Error>> {
        loop {
            self.stage = match &mut self.stage {
                CreateStage::Allocating(allocate) => {
                    match allocate.step(io)? {
                        Ok((id, _)) => self.id = id,
                        Err(error) => self.made = Err(error),
                    }
                    self.meet(io)
                }
                CreateStage::Accepting => {
                    let called =
                        self.plan.start.accepts.as_ref().map(|accepting| accepting.step(io));
                    let called = called.unwrap_or(Some(Err(Error::NoPeer)))?;
                    self.plan.start.link = called.map(|link| (link, true));
                    self.describe(io)
                }
                CreateStage::Describing(swap) => {
                    let Ok((link, _)) = &self.plan.start.link else { return Some(self.end(false)) };
                    let swapped = swap.step(io, link)?;
                    if self.plan.start.accepts.is_some() && swapped == Err(Error::Port) {
                        // The caller has given up before it was told the id. There may be other
                        // calls.
                        self.id.iter_mut().for_each(OwnedId::keep_track);
                        self.stage = CreateStage::Accepting;
                        continue;
                    }
                    if let Err(error) = &swapped
                        && !link.is_answered()
                    {
                        // Giving up the link withdraws the call: the other group was not told the
                        // id, and never will be.
                        self.plan.start.link = Err(error.clone());
                        self.stage = self.describe(io);
                        continue;
                    }
                    // If the other leader has sent a reason, its group does not use the id that it
                    // was told.
                    // No process with other settings can use it.
                    let is_refused = match &swapped {
                        Ok(head) => description::is_refusal(head),
                        Err(error) => matches!(error, Error::UnequalSetting { .. }),
                    };
                    let described = self.check(swapped, io.net);
                    self.told = description::to_bytes(described.as_ref(), self.plan.ids, io.net);
                    if is_refused {
                        description::put_untold(&mut self.told);
                    }
                    self.tell()
                }
                CreateStage::Telling(exchange) => {
                    self.head = exchange.step(io)?.map(Buffer::into_vec);
                    self.name()
                }
                CreateStage::Naming(exchange) => {
                    let members = exchange.step(io)?;
                    self.made = self.make(io, members);
                    match self.agree(io) {
                        Some(stage) => stage,
                        None => return Some(self.end(true)),
                    }
                }
                CreateStage::Knowing(agree) => {
                    let known = agree.step(io)?.is_ok_and(|agreed| agreed.flags == 1);
                    self.compare(known)
                }
                CreateStage::Comparing(swap, known) => {
                    let Ok((link, _)) = &self.plan.start.link else { return Some(self.end(false)) };
                    let swapped = swap.step(io, link)?;
                    let agreed = *known && swapped.as_ref().map_or(*known, |said| said[..] == [1]);
                    self.conclude(agreed && swapped.is_ok())
                }
                CreateStage::Concluding(agree) => {
                    let is_made = agree.step(io)?.is_ok_and(|agreed| is_yes_of_all(&agreed));
                    if !is_made && let Ok(InterParts { life, .. }) = &self.made {
                        io.ft.revoke(io.net, life.key, Group::clone(&life.group));
                    }
                    return Some(self.end(is_made));
                }
                CreateStage::AgreeingAsOne(agree) => {
                    let is_made = agree.step(io)?.is_ok_and(|agreed| is_yes_of_all(&agreed));
                    return Some(self.end(is_made));
                }
            };
        }
    }
}
