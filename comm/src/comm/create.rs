//! The calls that make a communicator out of another one: `dup`, `split`, `create` and
//! `create_group`.

use std::sync::Arc;

use crate::alloc::{Allocator, OwnedId, Role};
use crate::coll::{Exchange, algorithms};
use crate::driver::{Channel, Driver, Machine, MachineIo, Pending, Request, ResultSlot, numbers};
use crate::error::Error;
use crate::ft::{Key, Life, epoch};
use crate::group::Group;
use crate::ids::ContextId;
use crate::net::{Net, ProcessId};

use super::allocating::Allocating;
use super::attributes::Attributes;
use super::communicator::Comm;
use super::info::CommInfo;

/// A request for a new communicator. The result is `None` in a process that is not a member of it.
pub type CommRequest<N> = Request<N, Creation<N>>;

/// A request for a new communicator of which this process is a member.
pub type DupRequest<N> = Request<N, Duplication<N>>;

impl<N: Net> Comm<N> {
    /// Makes a communicator of the same members, with a context id of its own: its messages match
    /// no others. Collective; blocks.
    ///
    /// # Errors
    /// No context id is left, which all members report alike; a member is down.
    pub fn dup(&self) -> Result<Comm<N>, Error> {
        self.idup().wait()
    }

    /// As [`dup`](Self::dup), without blocking.
    pub fn idup(&self) -> DupRequest<N> {
        let attributes = Some(self.copy_attributes());
        let members = Some(Arc::clone(&self.inner.info.group));
        let creation = self.create_from(self.channel(), 0, members);
        Request::new(Duplication { creation, attributes })
    }

    /// Makes one communicator for each colour, of the members that have passed this colour. Its
    /// ranks are ordered by key, then by the rank in this communicator. A member that passes no
    /// colour gets no communicator, and uses up no context id. Collective; blocks.
    ///
    /// # Errors
    /// As for [`dup`](Self::dup).
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Comm<N>>, Error> {
        self.isplit(color, key).wait()
    }

    /// As [`split`](Self::split), without blocking.
    pub fn isplit(&self, color: Option<u32>, key: i32) -> CommRequest<N> {
        let channel = self.channel();
        let own = SplitChoice { color, key };
        let gather =
            Exchange::new(channel.clone(), algorithms::allgather(&channel, own.to_bytes()), None);
        let parent = self.begin(&channel, 0);
        Request::new(self.creation(parent, channel, CreatingCommStage::Choosing(gather)))
    }

    /// Makes a communicator of the members that are in `group`. All members of a group pass the
    /// same group. A member that is not in the group that it passes gets no communicator.
    /// Collective over this communicator; blocks.
    ///
    /// # Errors
    /// As for [`dup`](Self::dup); [`Error::Group`] if the group has a process that is not a member
    /// of this communicator.
    pub fn create(&self, group: &Group) -> Result<Option<Comm<N>>, Error> {
        self.icreate(group)?.wait()
    }

    /// As [`create`](Self::create), without blocking.
    ///
    /// # Errors
    /// [`Error::Group`], as for [`create`](Self::create).
    pub fn icreate(&self, group: &Group) -> Result<CommRequest<N>, Error> {
        self.check(group)?;
        let own = self.group().process(self.rank());
        let is_member = own.is_some_and(|own| group.rank(own).is_some());
        let members = is_member.then(|| Arc::new(group.clone()));
        let creation = self.create_from(self.channel(), 0, members);
        Ok(Request::new(creation))
    }

    /// Makes a communicator of a group of members. Only the members of the group call this, so it
    /// is collective over the group alone. Blocks. Two threads that do this at the same time, with
    /// groups that have a process in common, must pass different tags.
    ///
    /// # Errors
    /// As for [`create`](Self::create); [`Error::Group`] also if the caller is not in the group.
    pub fn create_group(&self, group: &Group, tag: u32) -> Result<Comm<N>, Error> {
        self.icreate_group(group, tag)?.wait()
    }

    /// As [`create_group`](Self::create_group), without blocking.
    ///
    /// # Errors
    /// [`Error::Group`], as for [`create_group`](Self::create_group). [`Error::Tag`]: the tag is too large.
    pub fn icreate_group(&self, group: &Group, tag: u32) -> Result<DupRequest<N>, Error> {
        self.check(group)?;
        let own = self.group().process(self.rank()).ok_or(Error::Group)?;
        let rank = group.rank(own).ok_or(Error::Group)?;
        // The tags of these messages have a bit set that no number of a collective operation has.
        let bit = numbers(self.driver().settings.tags);
        if tag >= bit {
            return Err(Error::Tag { tag, max: bit - 1 });
        }
        let group = Arc::new(group.clone());
        let made = self.inner.life.made(&group, tag);
        let members = Arc::clone(&group);
        let channel = Channel { group: members, own: rank, ..self.outside(tag | bit) };
        let creation = self.create_from(channel, made, Some(group));
        Ok(Request::new(Duplication { creation, attributes: None }))
    }

    fn check(&self, group: &Group) -> Result<(), Error> {
        let is_part = group.difference(self.group()).size() == 0;
        if is_part { Ok(()) } else { Err(Error::Group) }
    }

    /// Begins to allocate the context id of a communicator with these members; `None`: this process
    /// is not a member. `made`: how many communicators were made before over an equal channel, if
    /// the channel has no number.
    fn create_from(&self, channel: Channel, made: u64, members: Option<Arc<Group>>) -> Creation<N> {
        let parent = self.begin(&channel, made);
        let stage = parent.allocate(&channel, members, None);
        self.creation(parent, channel, stage)
    }

    fn begin(&self, channel: &Channel, made: u64) -> Parent {
        let origin = [self.inner.life.key.epoch, channel.call(), made];
        let allocator = self.driver().allocator.clone();
        Parent { allocator, id: self.id(), group: Arc::clone(&self.inner.info.group), origin }
    }

    fn creation(&self, parent: Parent, channel: Channel, stage: CreatingCommStage) -> Creation<N> {
        let origin = parent.origin;
        let slot = self.driver().start(CreatingComm { parent, channel, stage });
        Creation { slot, origin, parent: self.clone() }
    }
}

/// The arguments that a member passes to a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SplitChoice {
    color: Option<u32>,
    key: i32,
}

impl SplitChoice {
    const BYTES: usize = 12;

    fn to_bytes(self) -> Vec<u8> {
        let fields = [u32::from(self.color.is_some()), self.color.unwrap_or(0), self.key as u32];
        fields.iter().flat_map(|field| field.to_le_bytes()).collect()
    }

    fn parse(bytes: &[u8]) -> Self {
        let field = |at: usize| {
            let bytes = bytes.get(4 * at..4 * at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u32::from_le_bytes)
        };
        SplitChoice { color: (field(0) != 0).then(|| field(1)), key: field(2).cast_signed() }
    }
}

/// The facts about the parent communicator that a creation needs.
struct Parent {
    allocator: Allocator,
    id: ContextId,
    group: Arc<Group>,
    /// Numbers that tell this creation apart from all others.
    origin: [u64; 3],
}

/// The state machine of one process that makes a communicator.
struct CreatingComm {
    parent: Parent,
    channel: Channel,
    stage: CreatingCommStage,
}

enum CreatingCommStage {
    /// An allgather of the arguments that the members have passed to a split.
    Choosing(Exchange),
    Allocating {
        allocating: Allocating,
        members: Option<Arc<Group>>,
    },
    Over,
}

/// A new communicator's id and members.
pub(crate) struct Created {
    pub(crate) id: OwnedId,
    pub(crate) members: Arc<Group>,
}

impl Parent {
    /// Begins the allocation of the context id. `members` is `None` in a process that is not a
    /// member of the new communicator. `failure`: an error that this process has to report to the
    /// others.
    fn allocate(
        &self,
        channel: &Channel,
        members: Option<Arc<Group>>,
        failure: Option<Error>,
    ) -> CreatingCommStage {
        let role = if members.is_some() { Role::Member } else { Role::Ignored };
        let allocation = self.allocator.begin(self.id, channel.tag, role);
        let epoch = epoch(&self.origin, &channel.group, &self.group);
        let allocation = match &members {
            Some(members) => allocation.for_members(epoch, members),
            None => allocation,
        };
        let key = Key::new(self.id, epoch);
        let allocating = Allocating::new(key, channel.clone(), allocation, failure);
        CreatingCommStage::Allocating { allocating, members }
    }
}

impl CreatingComm {
    /// The members that have chosen this process's colour, ordered by key, then by rank.
    fn chosen(&self, all: &[u8]) -> Option<Arc<Group>> {
        let choices: Vec<SplitChoice> =
            all.chunks(SplitChoice::BYTES).map(SplitChoice::parse).collect();
        let color = choices.get(self.channel.own as usize)?.color?;
        let mut members: Vec<(i32, u32)> = (0..)
            .zip(&choices)
            .filter(|(_, choice)| choice.color == Some(color))
            .map(|(rank, choice)| (choice.key, rank))
            .collect();
        members.sort_unstable();
        let process = |(_, rank): &(i32, u32)| self.channel.group.process(*rank);
        Some(Arc::new(Group::new(members.iter().filter_map(process))))
    }
}

impl<N: Net> Machine<N> for CreatingComm {
    type Output = Option<Created>;

    fn step(&mut self, io: &mut MachineIo<'_, N>) -> Option<Result<Option<Created>, Error>> {
        if let CreatingCommStage::Choosing(gather) = &mut self.stage {
            // Other members may have got all choices, and go on to the allocation. This member goes
            // there, too, and reports its failure in the first round: otherwise they would wait for
            // it.
            let (members, failure) = match gather.step(io)? {
                Ok(all) => (self.chosen(&all), None),
                Err(error) => (None, Some(error)),
            };
            self.stage = self.parent.allocate(&self.channel, members, failure);
        }
        let CreatingCommStage::Allocating { allocating, members } = &mut self.stage else {
            return Some(Err(Error::AlreadyTaken));
        };
        let allocated = allocating.step(io)?;
        let members = members.take();
        self.stage = CreatingCommStage::Over;
        Some(allocated.map(|id| {
            let both = id.zip(members);
            both.map(|(id, members)| Created { id, members })
        }))
    }
}

impl Created {
    /// Makes the communicator, with the layers of `parent`. `own` is this process. No other
    /// communicator has the same `origin`. All members are in the group `whole`.
    pub(crate) fn finish<N: Net>(
        self,
        parent: &Comm<N>,
        own: Option<ProcessId>,
        origin: &[u64],
        whole: &Group,
    ) -> Result<Comm<N>, Error> {
        let Created { id, members } = self;
        let rank = own.and_then(|own| members.rank(own)).ok_or(Error::Group)?;
        let epoch = epoch(origin, &members, whole);
        let info = CommInfo { id: id.id(), group: members, rank };
        let life = Life::new(info.id, epoch, &info.group, rank);
        parent.make(info, life, Some(Arc::new(id)))
    }
}

/// A communicator that is being made. A [`CommRequest`] waits for it.
pub struct Creation<N: Net> {
    slot: Arc<ResultSlot<Option<Created>>>,
    /// Numbers from which the new communicator's epoch is computed.
    origin: [u64; 3],
    parent: Comm<N>,
}

impl<N: Net> Pending<N> for Creation<N> {
    type Output = Result<Option<Comm<N>>, Error>;

    fn driver(&self) -> &Arc<Driver<N>> {
        self.parent.driver()
    }

    fn test(&mut self) -> Option<Self::Output> {
        let created = self.slot.take()?;
        let parent = &self.parent;
        let own = parent.group().process(parent.rank());
        let finish = |created: Created| created.finish(parent, own, &self.origin, parent.group());
        let made = created.and_then(|created| created.map(finish).transpose());
        if let Ok(Some(made)) = &made {
            made.set_error_handler(parent.error_handler());
        }
        Some(parent.raise(made))
    }
}

/// A communicator that is being made, and has this process as a member. A [`DupRequest`] waits for
/// it.
pub struct Duplication<N: Net> {
    creation: Creation<N>,
    /// The copies of the parent's attributes, made when the duplication began. `None`: the new
    /// communicator gets none.
    attributes: Option<Result<Attributes, Error>>,
}

impl<N: Net> Pending<N> for Duplication<N> {
    type Output = Result<Comm<N>, Error>;

    fn driver(&self) -> &Arc<Driver<N>> {
        self.creation.driver()
    }

    fn test(&mut self) -> Option<Self::Output> {
        let made = self.creation.test()?;
        let inherit = |comm: Comm<N>| match self.attributes.take() {
            None => Ok(comm),
            Some(copied) => {
                comm.take_attributes(self.creation.parent.raise(copied)?);
                Ok(comm)
            }
        };
        Some(made.and_then(|comm| comm.ok_or(Error::Group)).and_then(inherit))
    }
}
