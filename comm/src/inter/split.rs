//! The calls that make intercommunicators of parts of an intercommunicator: `create` and `split`.
//!
//! As in the other creations (`create_machine.rs`), a failure ends no step early:
//!
//! 1. The members of each group gather their choices: a colour and a key of each member.
//! 2. The leaders, the members of rank 0, exchange the choices of their groups. Each leader
//!    broadcasts the other group's choices in its group. So all members of both groups compute the
//!    same parts.
//! 3. Each group allocates one id for all of its parts. A member of no part uses up no id, except
//!    for the leader, which has to know the id. If some member doesn't know all choices, because a
//!    process has died, the group has no id.
//! 4. The leaders exchange the ids, or the reasons why there is none. Each leader broadcasts what
//!    it has received in its group.
//!
//! A member receives messages of its own part only. So the parts may share an id, as in MPICH,
//! though a member sends in the same context as members of other parts. The epochs of the parts
//! differ, because the ranks of their members are different ones.

use std::sync::Arc;

use tagmatch::Buffer;

use super::allocate::AgreedAllocation;
use super::attributes::handler_in;
use super::description::{self, HEAD};
use super::intercomm::{InterComm, InterOrigin, InterParts};
use super::leader_link::swap;
use crate::alloc::{Allocation, OwnedId, Role};
use crate::comm::{CollRequest, Collective};
use crate::creation::{SplitChoice, chosen};
use crate::driver::{Channel, Machine, MachineIo};
use crate::error::Error;
use crate::group::Group;
use crate::ids::{ContextId, IdLayout};
use crate::life::{Life, epoch};
use crate::net::Net;
use crate::plans::{Exchange, algorithms};
use crate::remote::RemoteGroup;

/// A value in the names of these creations: it tells them from everything else that is made of an
/// intercommunicator.
const SPLIT: u64 = u64::MAX - 4;

impl<N: Net> InterComm<N> {
    /// Makes an intercommunicator of a part of each group (`MPI_Comm_create`). All members of a
    /// group pass the same `group`, a part of the local group; its order is that of the ranks. A
    /// member that is not in it gets no intercommunicator, and nobody gets one if either group
    /// passes an empty one. Collective over both groups.
    ///
    /// # Errors
    /// As for [`split`](Self::split); [`Error::Group`] if the group has a process that is not a
    /// member of the local group.
    pub fn create(&self, group: &Group) -> Collective<'_, N, Option<InterComm<N>>> {
        let is_part = group.difference(self.group()).size() == 0;
        let rank = self.group().process(self.rank()).and_then(|own| group.rank(own));
        let choice = SplitChoice { color: rank.map(|_| 0), key: rank.unwrap_or(0).cast_signed() };
        Collective::begun_by(move || {
            if !is_part {
                return self.comm.ended(Err(Error::Group));
            }
            self.start_split(choice, true)
        })
    }

    /// Makes one intercommunicator for each colour, of the members of both groups that have passed
    /// this colour (`MPI_Comm_split`). In each group the ranks are ordered by key, then by the rank
    /// in this intercommunicator. A member gets no intercommunicator if it passes no colour, or one
    /// that no member of the other group passes. Collective over both groups.
    ///
    /// The intercommunicators have the same pair of context ids. They inherit the error handler,
    /// and no attributes.
    ///
    /// # Errors
    /// A group has no context id left, or a process is down. After a failure, other processes may
    /// have their intercommunicators.
    pub fn split(&self, color: Option<u32>, key: i32) -> Collective<'_, N, Option<InterComm<N>>> {
        Collective::begun_by(move || self.start_split(SplitChoice { color, key }, false))
    }

    /// `allocates`: this process takes part in the allocation of the id even if it gets no
    /// intercommunicator.
    fn start_split(
        &self,
        choice: SplitChoice,
        allocates: bool,
    ) -> CollRequest<N, Option<InterComm<N>>> {
        let both = self.channel();
        let channel = match self.local_channel(&both) {
            Ok(channel) => channel,
            Err(error) => return self.comm.ended(Err(error)),
        };
        let driver = self.comm.driver();
        let union = self.life();
        // Both groups compute the same name of the creation. So each process knows whether the
        // processes of the other group may still get the intercommunicator.
        let made = union.made(&union.group, u32::MAX - 2);
        let creation = epoch(&[union.key.epoch, made, SPLIT], &union.group, &union.group);
        let of_local = epoch(&[creation], &channel.group, &union.group);
        let life = Arc::new(Life::new(self.id(), of_local, &channel.group, channel.own));
        driver.register(&life);
        let allocation = driver.allocator.begin(self.id(), channel.tag, Role::Member);
        let allocation = allocation.over(&channel.group).for_groups(creation, &union.group);
        let plan = algorithms::allgather(&channel, choice.to_bytes());
        let stage = SplitStage::Gathering(Exchange::new(channel.clone(), plan, None));
        let split = SplittingInter {
            ids: driver.settings.ids,
            leader: self.remote_ranks().start,
            is_first: self.is_first(),
            others: Arc::clone(&self.remote.group),
            color: choice.color,
            allocates: allocates || channel.own == 0,
            creation,
            channel,
            both,
            life,
            allocation: Some(allocation),
            choices: Vec::new(),
            part: None,
            id: None,
            failure: None,
            stage,
        };
        let handler = Arc::clone(&self.handler);
        self.comm.start_then(split, move |parent, parts| {
            Ok(parts.map(|parts| {
                let made = InterComm::new(parent, parts);
                made.set_error_handler(handler_in(&handler));
                made
            }))
        })
    }
}

/// The state machine of one process.
struct SplittingInter {
    ids: IdLayout,
    /// The channel of the local group.
    channel: Channel,
    both: Channel,
    /// The rank of the other group's leader in `both`.
    leader: u32,
    /// Whether the local group comes first in `both`.
    is_first: bool,
    /// The other group.
    others: Arc<Group>,
    color: Option<u32>,
    /// Whether this process takes part in the allocation even if it is a member of no part.
    allocates: bool,
    /// The name of the creation, the same in both groups.
    creation: u64,
    /// The agreements of the local group.
    life: Arc<Life>,
    /// The allocation, until it begins.
    allocation: Option<Allocation>,
    /// The choices of the local group, as bytes.
    choices: Vec<u8>,
    /// The members of this process's part in the local group and in the other one.
    part: Option<[Arc<Group>; 2]>,
    id: Option<OwnedId>,
    /// The first error of this process.
    failure: Option<Error>,
    stage: SplitStage,
}

enum SplitStage {
    /// Step 1.
    Gathering(Exchange),
    /// Step 2, at a leader.
    SwappingChoices(Exchange),
    /// Step 2.
    TellingChoices(Exchange),
    /// Step 3.
    Allocating(AgreedAllocation),
    /// Step 4, at a leader.
    SwappingIds(Exchange),
    /// Step 4.
    TellingIds(Exchange),
}

impl SplittingInter {
    fn is_leader(&self) -> bool {
        self.channel.own == 0
    }

    fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// Sends the other leader these bytes, and receives `length` bytes from it.
    fn swap(&self, given: &[u8], length: usize) -> Exchange {
        swap(&self.both, self.leader, given, length)
    }

    /// Broadcasts `length` bytes of the leader in the group.
    fn broadcast(&self, mut data: Vec<u8>, length: usize) -> Exchange {
        data.resize(length, 0);
        Exchange::new(self.channel.clone(), algorithms::broadcast(&self.channel, 0, data), None)
    }

    /// The length of the other group's choices in bytes.
    fn remote_length(&self) -> usize {
        self.others.size() as usize * SplitChoice::BYTES
    }

    /// Begins step 2.
    fn exchange_choices(&self) -> SplitStage {
        if !self.is_leader() {
            return self.tell_choices(Vec::new());
        }
        let mut choices = self.choices.clone();
        choices.resize(self.channel.size() as usize * SplitChoice::BYTES, 0);
        let swap = self.swap(&choices, self.remote_length()).after(self.failure.clone());
        SplitStage::SwappingChoices(swap)
    }

    fn tell_choices(&self, choices: Vec<u8>) -> SplitStage {
        let broadcast = self.broadcast(choices, self.remote_length());
        SplitStage::TellingChoices(broadcast.after(self.failure.clone()))
    }

    /// Computes this process's part, and begins step 3.
    fn allocate(&mut self, theirs: Result<Buffer, Error>) -> Result<SplitStage, Error> {
        match (theirs, self.color) {
            (Err(error), _) => self.fail(error),
            (Ok(_), None) => {}
            (Ok(theirs), Some(color)) => {
                let own = chosen(&self.choices, color, &self.channel.group);
                let others = chosen(&theirs, color, &self.others);
                let is_whole = own.size() > 0 && others.size() > 0;
                self.part = is_whole.then(|| [own, others].map(Arc::new));
            }
        }
        if self.failure.is_some() {
            self.part = None;
        }
        let mut allocation = self.allocation.take().ok_or(Error::AlreadyTaken)?;
        if self.part.is_none() && (self.failure.is_some() || !self.allocates) {
            allocation.ignore();
        }
        // Only members of the part will send in the id to this process.
        let nobody = || Group::new([]);
        let members = self.part.as_ref().map_or_else(nobody, |[own, others]| own.union(others));
        allocation.narrow(&Arc::new(members));
        let knows = u64::from(self.failure.is_none());
        let channel = self.channel.clone();
        let allocate = AgreedAllocation::new(&self.life, channel, allocation, knows);
        Ok(SplitStage::Allocating(allocate))
    }

    /// Begins step 4.
    fn exchange_ids(&self) -> SplitStage {
        if !self.is_leader() {
            return self.tell_id(Vec::new());
        }
        SplitStage::SwappingIds(self.swap(&self.own_id(), HEAD))
    }

    /// The id of the local group, or the reason why there is none, as bytes.
    fn own_id(&self) -> Vec<u8> {
        match (&self.id, &self.failure) {
            (Some(id), None) => description::id_to_bytes(Ok(id.id()), self.ids),
            (_, failure) => {
                let error = failure.as_ref().unwrap_or(&Error::Leader);
                description::id_to_bytes(Err(error), self.ids)
            }
        }
    }

    fn tell_id(&self, id: Vec<u8>) -> SplitStage {
        SplitStage::TellingIds(self.broadcast(id, HEAD))
    }

    /// The result. `remote`: the id of the other group.
    fn make<N: Net>(
        &mut self,
        io: &mut MachineIo<'_, N>,
        remote: Result<ContextId, Error>,
    ) -> Result<Option<InterParts>, Error> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        let id = remote?;
        let Some([group, others]) = self.part.take() else { return Ok(None) };
        let own = self.id.take().ok_or(Error::NotOffered)?;
        let process = self.channel.group.process(self.channel.own).ok_or(Error::Group)?;
        let rank = group.rank(process).ok_or(Error::Group)?;
        let channel = Channel { group, own: rank, ..self.channel.clone() };
        let [first, second] = if self.is_first { [own.id(), id] } else { [id, own.id()] };
        let name = [self.creation, first.bits().into(), second.bits().into()];
        let remote = RemoteGroup { id, group: others };
        let whole = Some(&*self.both.group);
        let is_first = self.is_first;
        let origin = InterOrigin { id: own, local: &channel, remote, is_first, name, whole };
        Ok(Some(origin.make(io)))
    }
}

impl<N: Net> Machine<N> for SplittingInter {
    type Output = Option<InterParts>;

    fn step(&mut self, io: &mut MachineIo<'_, N>) -> Option<Result<Option<InterParts>, Error>> {
        loop {
            self.stage = match &mut self.stage {
                SplitStage::Gathering(exchange) => {
                    match exchange.step(io)? {
                        Ok(choices) => self.choices = choices.into_vec(),
                        Err(error) => self.fail(error),
                    }
                    self.exchange_choices()
                }
                SplitStage::SwappingChoices(exchange) => {
                    let theirs = exchange.step(io)?.map(Buffer::into_vec);
                    let theirs = theirs.unwrap_or_else(|error| {
                        self.fail(error);
                        Vec::new()
                    });
                    self.tell_choices(theirs)
                }
                SplitStage::TellingChoices(exchange) => {
                    let theirs = exchange.step(io)?;
                    match self.allocate(theirs) {
                        Ok(stage) => stage,
                        Err(error) => return Some(Err(error)),
                    }
                }
                SplitStage::Allocating(allocate) => {
                    match allocate.step(io)? {
                        Ok((id, 1)) => self.id = id,
                        Ok(_) => self.fail(Error::ProcessFailed { rank: None }),
                        Err(error) => self.fail(error),
                    }
                    self.exchange_ids()
                }
                SplitStage::SwappingIds(exchange) => {
                    let id = exchange.step(io)?.map(Buffer::into_vec);
                    let id =
                        id.unwrap_or_else(|error| description::id_to_bytes(Err(&error), self.ids));
                    self.tell_id(id)
                }
                SplitStage::TellingIds(exchange) => {
                    let id = exchange.step(io)?;
                    let remote = id.and_then(|id| description::parse_id(&id, self.ids));
                    return Some(self.make(io, remote));
                }
            };
        }
    }
}
