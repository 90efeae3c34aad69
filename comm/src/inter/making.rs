//! How an intercommunicator comes to be in one process.
//!
//! All of a group go through the same steps to their end, whatever fails on the way: so nobody waits for
//! one that has given up.
//!
//! 1. The group allocates the id that it will receive in. All who live have it, or none.
//! 2. The leaders swap their groups' cards, or say why they have none.
//! 3. Each leader tells its group what it has heard: first a head of fixed length, then the members' names.
//!
//! That is all where no uniformity is asked for. Uniform in the end (the algorithm that was published for
//! ULFM):
//!
//! 4. Each group agrees on whether all of it that live know the other one.
//! 5. The leaders swap what their groups have agreed on.
//! 6. Each group agrees on whether its leader has heard a yes, and nobody has died. If not, it revokes
//!    what it has.
//!
//! Uniform at once:
//!
//! 4. Who knows the other group *joins* the agreement of both. Who does not *refuses*, which is the end for
//!    it, and answers so whenever it is asked (`ft/union.rs`).
//! 5. Both groups agree as one on whether all of them have joined.

use std::sync::Arc;

use crate::alloc::OwnedId;
use crate::coll::{Exchange, algorithms};
use crate::driver::{Channel, Machine, Port};
use crate::error::Error;
use crate::ft::{Agree, Invitation, Life, epoch};
use crate::group::Group;
use crate::ids::IdLayout;
use crate::net::Net;
use crate::remote::{RemoteGroup, RemoteRanks};

use super::allocate::Allocate;
use super::bridge::{Bridge, Swap};
use super::card::{self, Card, HEAD};
use super::connect::Accepting;
use super::create::Uniformity;

/// An intercommunicator without its handle.
pub(crate) struct Made {
    pub(super) id: OwnedId,
    pub(super) local: Arc<Group>,
    pub(super) rank: u32,
    pub(super) remote: RemoteGroup,
    pub(super) life: Arc<Life>,
}

/// What does not change on the way.
pub(super) struct Plan {
    pub(super) uniformity: Uniformity,
    pub(super) ids: IdLayout,
    /// Of the local group.
    pub(super) channel: Channel,
    pub(super) leader: u32,
    /// Of the attempt, in the local group.
    pub(super) life: Arc<Life>,
    /// At the leader; and whether the local group comes first.
    pub(super) bridge: Result<(Bridge, bool), Error>,
}

pub(super) struct Making {
    plan: Plan,
    stage: Stage,
    id: Option<OwnedId>,
    accepts: Option<Accepting>,
    /// At the leader: what it tells.
    heard: Vec<u8>,
    /// What was told, as far as it came.
    head: Result<Vec<u8>, Error>,
    made: Result<Made, Error>,
    invitation: Option<Invitation>,
}

enum Stage {
    Allocating(Allocate),
    Accepting,
    Meeting(Swap),
    Telling(Exchange),
    Naming(Exchange),
    Knowing(Agree),
    Comparing(Swap, bool),
    Concluding(Agree),
    Uniting(Agree),
}

impl Making {
    /// `accepts`: at a leader that waits for the other one's call.
    pub(super) fn new(plan: Plan, allocate: Allocate, accepts: Option<Accepting>) -> Self {
        Making {
            plan,
            stage: Stage::Allocating(allocate),
            id: None,
            accepts,
            heard: Vec::new(),
            head: Ok(Vec::new()),
            made: Err(Error::Leader),
            invitation: None,
        }
    }

    fn is_leader(&self) -> bool {
        self.plan.channel.own == self.plan.leader
    }

    /// The local group's card, or why there is none.
    fn own_card(&self, is_first: bool) -> Result<Card, Error> {
        let id = self.id.as_ref().ok_or_else(|| self.failure())?.id();
        let members = Group::clone(&self.plan.channel.group);
        if members.size() > card::MEMBERS_MAX {
            return Err(Error::Members);
        }
        Ok(Card { attempt: self.plan.life.key, id, is_first, members })
    }

    fn failure(&self) -> Error {
        self.made.as_ref().err().cloned().unwrap_or(Error::Leader)
    }

    /// Step 2, at the leader; step 3 for others.
    fn meet<N: Net>(&mut self, port: &mut Port<'_, N>) -> Stage {
        if !self.is_leader() {
            // The leader may tell the other group, and then die before it says which one that is.
            self.id.iter_mut().for_each(OwnedId::lose_track);
            return self.tell();
        }
        if self.accepts.is_some() {
            return Stage::Accepting;
        }
        self.greet(port)
    }

    fn greet<N: Net>(&mut self, port: &mut Port<'_, N>) -> Stage {
        let (bridge, is_first) = match &self.plan.bridge {
            Ok((bridge, is_first)) => (bridge, *is_first),
            Err(error) => {
                self.heard = card::to_bytes(Err(error), self.plan.ids, port.net);
                card::put_untold(&mut self.heard);
                return self.tell();
            }
        };
        let own = self.own_card(is_first);
        let own = card::to_bytes(own.as_ref(), self.plan.ids, port.net);
        self.id.iter_mut().for_each(OwnedId::lose_track);
        Stage::Meeting(Swap::begin(port, bridge, &own, HEAD, card::names_length))
    }

    /// What the leader has heard from the other one, if it can be.
    fn check<N: Net>(&self, swapped: Result<Vec<u8>, Error>, net: &mut N) -> Result<Card, Error> {
        let (bridge, is_first) = self.plan.bridge.as_ref().map_err(Error::clone)?;
        let own = self.own_card(*is_first)?;
        let card = card::parse(&swapped?, self.plan.ids, net)?;
        if card.members.intersection(&own.members).size() > 0 {
            return Err(Error::Overlap);
        }
        let members = u64::from(card.members.size()) + u64::from(own.members.size());
        if members > 1 << self.plan.channel.tags.source_bits().min(32) {
            return Err(Error::Members);
        }
        let is_its = bridge.process().is_some_and(|sender| card.members.rank(sender).is_some());
        if is_its && card.is_first != own.is_first { Ok(card) } else { Err(Error::Leader) }
    }

    fn tell(&mut self) -> Stage {
        let Plan { channel, leader, .. } = &self.plan;
        let mut head = self.heard.clone();
        head.resize(HEAD, 0);
        let plan = algorithms::broadcast(channel, *leader, head);
        Stage::Telling(Exchange::new(channel.clone(), plan, None))
    }

    /// The other group's members. Who has not heard the head takes part all the same, and says so.
    fn name(&mut self) -> Stage {
        let Plan { channel, leader, .. } = &self.plan;
        let failure = self.head.as_ref().err().cloned();
        let length = self.head.as_ref().map_or(0, |head| card::names_length(head));
        let mut members = self.heard.get(HEAD..).unwrap_or_default().to_vec();
        members.resize(length, 0);
        let plan = algorithms::broadcast(channel, *leader, members);
        Stage::Naming(Exchange::new(channel.clone(), plan, None).after(failure))
    }

    /// What this process has of the intercommunicator now.
    fn make<N: Net>(
        &mut self,
        port: &mut Port<'_, N>,
        members: Result<Vec<u8>, Error>,
    ) -> Result<Made, Error> {
        let mut id = self.id.take().ok_or_else(|| self.failure())?;
        let mut bytes = self.head.clone()?;
        if card::is_untold(&bytes) {
            id.keep_track();
        }
        bytes.extend(members?);
        let card = card::parse(&bytes, self.plan.ids, port.net);
        let Card { attempt, id: remote, is_first, members } = match &self.plan.bridge {
            // What could not be said in a card is known here.
            Err(own) if self.is_leader() => card.map_err(|_| own.clone())?,
            _ => card?,
        };
        let own = &self.plan.life;
        let (local, other) = (Arc::clone(&self.plan.channel.group), Arc::new(members));
        id.trace(attempt.epoch, &other);
        let both = [(own.key, id.id(), &local), (attempt, remote, &other)];
        let [first, second] = if is_first { [both[1], both[0]] } else { both };
        let union = Arc::new(first.2.union(second.2));
        let parts = [first.0.epoch, second.0.epoch, second.1.bits().into()];
        let rank = if is_first { other.size() } else { 0 } + self.plan.channel.own;
        let attempts = [first.0, second.0];
        let split = first.2.size();
        let ranks = if is_first { 0..split } else { split..union.size() };
        let life = Life::new(first.1, epoch(&parts, &union, &union), &union, rank);
        let life = Arc::new(life.between(id.id(), RemoteRanks { ranks, context: remote }));
        port.ft.register(port.net, &life);
        self.invitation = Some(Invitation { attempts, members: union, split });
        let remote = RemoteGroup { id: remote, group: other };
        Ok(Made { id, local, rank: self.plan.channel.own, remote, life })
    }

    /// Step 4, if there is one.
    fn agree<N: Net>(&mut self, port: &mut Port<'_, N>) -> Option<Stage> {
        match self.plan.uniformity {
            Uniformity::None => None,
            Uniformity::Eventual => {
                let flags = u64::from(self.made.is_ok());
                Some(Stage::Knowing(Agree::new(&self.plan.life, flags)))
            }
            Uniformity::Strict => self.unite(port),
        }
    }

    /// Step 5 of the algorithm that is uniform in the end.
    fn compare<N: Net>(&self, port: &mut Port<'_, N>, known: bool) -> Stage {
        match &self.plan.bridge {
            Ok((bridge, _)) if self.is_leader() => {
                Stage::Comparing(Swap::begin(port, bridge, &[u8::from(known)], 1, |_| 0), known)
            }
            Err(_) if self.is_leader() => self.conclude(false),
            _ => self.conclude(true),
        }
    }

    fn conclude(&self, flag: bool) -> Stage {
        Stage::Concluding(Agree::new(&self.plan.life, flag.into()))
    }

    /// Steps 4 and 5 of the one that is uniform at once.
    fn unite<N: Net>(&mut self, port: &mut Port<'_, N>) -> Option<Stage> {
        let (Ok(made), Some(invitation)) = (&self.made, self.invitation.take()) else {
            port.ft.refuse(port.net, self.plan.life.key);
            return None;
        };
        port.ft.join(port.net, &made.life, invitation);
        Some(Stage::Uniting(Agree::new(&made.life, 1)))
    }

    /// The end: a yes is one for all who have it.
    fn end(&mut self, agreed: bool) -> Result<Made, Error> {
        let made = std::mem::replace(&mut self.made, Err(Error::AlreadyTaken));
        let made = if agreed { made } else { made.and(Err(Error::ProcessFailed { rank: None })) };
        match self.plan.uniformity {
            Uniformity::None => made,
            _ => made.map_err(|cause| Error::NotCreated { cause: Box::new(cause) }),
        }
    }
}

impl<N: Net> Machine<N> for Making {
    type Output = Made;

    fn step(&mut self, port: &mut Port<'_, N>) -> Option<Result<Made, Error>> {
        loop {
            self.stage = match &mut self.stage {
                Stage::Allocating(allocate) => {
                    match allocate.step(port)? {
                        Ok((id, _)) => self.id = Some(id),
                        Err(error) => self.made = Err(error),
                    }
                    self.meet(port)
                }
                Stage::Accepting => {
                    let called = self.accepts.as_ref().map(|accepting| accepting.step(port));
                    let called = called.unwrap_or(Some(Err(Error::NoPeer)))?;
                    self.plan.bridge = called.map(|bridge| (bridge, true));
                    self.greet(port)
                }
                Stage::Meeting(swap) => {
                    let Ok((bridge, _)) = &self.plan.bridge else { return Some(self.end(false)) };
                    let swapped = swap.step(port, bridge)?;
                    if self.accepts.is_some() && swapped == Err(Error::Port) {
                        // The caller has given up before it heard of the id. There may be others.
                        self.id.iter_mut().for_each(OwnedId::keep_track);
                        self.stage = Stage::Accepting;
                        continue;
                    }
                    if let Err(error) = &swapped
                        && !bridge.is_answered()
                    {
                        // The call is given up with its line: nobody has heard of the id, nor will.
                        self.plan.bridge = Err(error.clone());
                        self.stage = self.greet(port);
                        continue;
                    }
                    // A group without a card makes nothing, whatever it has heard.
                    let is_refused = swapped.as_ref().is_ok_and(|head| card::is_refusal(head));
                    let card = self.check(swapped, port.net);
                    self.heard = card::to_bytes(card.as_ref(), self.plan.ids, port.net);
                    if is_refused {
                        card::put_untold(&mut self.heard);
                    }
                    self.tell()
                }
                Stage::Telling(exchange) => {
                    self.head = exchange.step(port)?;
                    self.name()
                }
                Stage::Naming(exchange) => {
                    let members = exchange.step(port)?;
                    self.made = self.make(port, members);
                    match self.agree(port) {
                        Some(stage) => stage,
                        None => return Some(self.end(true)),
                    }
                }
                Stage::Knowing(agree) => {
                    let known = agree.step(port)?.flags == 1;
                    self.compare(port, known)
                }
                Stage::Comparing(swap, known) => {
                    let Ok((bridge, _)) = &self.plan.bridge else { return Some(self.end(false)) };
                    let swapped = swap.step(port, bridge)?;
                    let agreed = *known && swapped.as_ref().map_or(*known, |said| said[..] == [1]);
                    self.conclude(agreed && swapped.is_ok())
                }
                Stage::Concluding(agree) => {
                    let agreed = agree.step(port)?;
                    let is_whole = agreed.unacknowledged().is_empty();
                    let is_made = agreed.flags == 1 && is_whole;
                    if !is_made && let Ok(Made { life, .. }) = &self.made {
                        port.ft.revoke(port.net, life.key, Group::clone(&life.group));
                    }
                    return Some(self.end(is_made));
                }
                Stage::Uniting(agree) => {
                    let agreed = agree.step(port)?;
                    let is_made = agreed.flags == 1 && agreed.unacknowledged().is_empty();
                    return Some(self.end(is_made));
                }
            };
        }
    }
}
