//! Making communicators out of others.

use std::sync::Arc;

use crate::alloc::{Allocator, OwnedId, Role};
use crate::coll::{Exchange, algorithms};
use crate::driver::{Channel, Driver, Machine, Pending, Port, Request, ResultSlot};
use crate::error::Error;
use crate::ft::{Key, Life, epoch};
use crate::group::Group;
use crate::ids::ContextId;
use crate::net::{Net, ProcessId};

use super::allocating::Allocating;
use super::attributes::Attributes;
use super::communicator::Comm;
use super::info::CommInfo;

/// A communicator that is being made, or none for a process that is not to be in it.
pub type CommRequest<N> = Request<N, Creation<N>>;

/// A duplicate that is being made.
pub type DupRequest<N> = Request<N, Duplication<N>>;

impl<N: Net> Comm<N> {
    /// A communicator of the same members, whose messages are apart. Collective; blocks.
    ///
    /// # Errors
    /// There is no context id left, the same error in all members; or a member is down.
    pub fn dup(&self) -> Result<Comm<N>, Error> {
        self.idup().wait()
    }

    /// The same, without blocking.
    pub fn idup(&self) -> DupRequest<N> {
        let attributes = Some(self.copy_attributes());
        let members = Some(Arc::clone(&self.inner.info.group));
        let creation = self.create_from(self.channel(), 0, members);
        Request::new(Duplication { creation, attributes })
    }

    /// One communicator for each colour, of the members that gave it, ordered by key, then by rank.
    /// Who gives none gets none, and loses no context id. Collective; blocks.
    ///
    /// # Errors
    /// As for [`dup`](Self::dup).
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Comm<N>>, Error> {
        self.isplit(color, key).wait()
    }

    /// The same, without blocking.
    pub fn isplit(&self, color: Option<u32>, key: i32) -> CommRequest<N> {
        let channel = self.channel();
        let own = Choice { color, key };
        let gather =
            Exchange::new(channel.clone(), algorithms::allgather(&channel, own.to_bytes()), None);
        self.create_with(channel, Stage::Choosing(gather))
    }

    /// A communicator of those members that are in the group; all members of a group give the same. Others
    /// get none. Collective over this communicator; blocks.
    ///
    /// # Errors
    /// As for [`dup`](Self::dup); [`Error::Group`] if the group is not a part of this one.
    pub fn create(&self, group: &Group) -> Result<Option<Comm<N>>, Error> {
        self.icreate(group)?.wait()
    }

    /// The same, without blocking.
    ///
    /// # Errors
    /// [`Error::Group`].
    pub fn icreate(&self, group: &Group) -> Result<CommRequest<N>, Error> {
        self.check(group)?;
        let own = self.group().process(self.rank());
        let is_member = own.is_some_and(|own| group.rank(own).is_some());
        let members = is_member.then(|| Arc::new(group.clone()));
        let creation = self.create_from(self.channel(), 0, members);
        Ok(Request::new(creation))
    }

    /// A communicator of a group of members, without the others. Collective over the group; blocks. Threads
    /// that do this at once, with groups that have a process in common, differ in their tags.
    ///
    /// # Errors
    /// As for [`create`](Self::create); [`Error::Group`] also if the caller is not in the group.
    pub fn create_group(&self, group: &Group, tag: u32) -> Result<Comm<N>, Error> {
        self.icreate_group(group, tag)?.wait()
    }

    /// The same, without blocking.
    ///
    /// # Errors
    /// [`Error::Group`], [`Error::Tag`].
    pub fn icreate_group(&self, group: &Group, tag: u32) -> Result<DupRequest<N>, Error> {
        self.check(group)?;
        let own = self.group().process(self.rank()).ok_or(Error::Group)?;
        let rank = group.rank(own).ok_or(Error::Group)?;
        // A field of its own, apart from the numbers of collective operations.
        let settings = self.driver().settings;
        let apart = 1 << (settings.tags.tag_bits() - 2);
        if tag >= apart {
            return Err(Error::Tag { tag, max: apart - 1 });
        }
        let group = Arc::new(group.clone());
        let context = settings.ids.collective(self.id());
        let made = self.inner.life.made(&group, tag);
        let channel = Channel {
            group: Arc::clone(&group),
            own: rank,
            context,
            tag: tag | apart,
            tags: settings.tags,
            life: Some(Arc::clone(&self.inner.life)),
            remote: None,
            turn: None,
        };
        let creation = self.create_from(channel, made, Some(group));
        Ok(Request::new(Duplication { creation, attributes: None }))
    }

    fn check(&self, group: &Group) -> Result<(), Error> {
        let is_part = group.difference(self.group()).size() == 0;
        if is_part { Ok(()) } else { Err(Error::Group) }
    }

    /// `made`: how often this was done before, where the channel doesn't tell.
    fn create_from(&self, channel: Channel, made: u64, members: Option<Arc<Group>>) -> Creation<N> {
        let begun = self.begin(&channel, made);
        let stage = begun.allocate(&channel, members, None);
        self.creation(begun, channel, stage)
    }

    fn create_with(&self, channel: Channel, stage: Stage) -> CommRequest<N> {
        let begun = self.begin(&channel, 0);
        Request::new(self.creation(begun, channel, stage))
    }

    fn begin(&self, channel: &Channel, made: u64) -> Begun {
        let origin = [self.inner.life.key.epoch, channel.call(), made];
        let allocator = self.driver().allocator.clone();
        Begun { allocator, parent: self.id(), whole: Arc::clone(&self.inner.info.group), origin }
    }

    fn creation(&self, begun: Begun, channel: Channel, stage: Stage) -> Creation<N> {
        let origin = begun.origin;
        let slot = self.driver().start(Creating { begun, channel, stage });
        Creation { slot, origin, parent: self.clone() }
    }
}

/// What a member gives to a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    color: Option<u32>,
    key: i32,
}

impl Choice {
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
        Choice { color: (field(0) != 0).then(|| field(1)), key: field(2).cast_signed() }
    }
}

/// What a creation has from its parent.
struct Begun {
    allocator: Allocator,
    parent: ContextId,
    /// The parent's group.
    whole: Arc<Group>,
    /// What no other creation has in common with it.
    origin: [u64; 3],
}

/// What is under way in one process to make a communicator.
struct Creating {
    begun: Begun,
    channel: Channel,
    stage: Stage,
}

enum Stage {
    /// All members tell all what they choose.
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

impl Begun {
    /// Begins the allocation; `members` is none for a process that is to be ignored.
    fn allocate(
        &self,
        channel: &Channel,
        members: Option<Arc<Group>>,
        failure: Option<Error>,
    ) -> Stage {
        let role = if members.is_some() { Role::Member } else { Role::Ignored };
        let allocation = self.allocator.begin(self.parent, channel.tag, role);
        let epoch = epoch(&self.origin, &channel.group, &self.whole);
        let allocation = match &members {
            Some(members) => allocation.for_members(epoch, members),
            None => allocation,
        };
        let key = Key::new(self.parent, epoch);
        let allocating = Allocating::new(key, channel.clone(), allocation, failure);
        Stage::Allocating { allocating, members }
    }
}

impl Creating {
    /// The members of this process's colour.
    fn chosen(&self, all: &[u8]) -> Option<Arc<Group>> {
        let choices: Vec<Choice> = all.chunks(Choice::BYTES).map(Choice::parse).collect();
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

impl<N: Net> Machine<N> for Creating {
    type Output = Option<Created>;

    fn step(&mut self, port: &mut Port<'_, N>) -> Option<Result<Option<Created>, Error>> {
        if let Stage::Choosing(gather) = &mut self.stage {
            // Others may know all choices: a failure is told to them by the next round, so that they don't
            // wait for it.
            let (members, failure) = match gather.step(port)? {
                Ok(all) => (self.chosen(&all), None),
                Err(error) => (None, Some(error)),
            };
            self.stage = self.begun.allocate(&self.channel, members, failure);
        }
        let Stage::Allocating { allocating, members } = &mut self.stage else {
            return Some(Err(Error::AlreadyTaken));
        };
        let allocated = allocating.step(port)?;
        let members = members.take();
        self.stage = Stage::Over;
        Some(allocated.map(|id| {
            let both = id.zip(members);
            both.map(|(id, members)| Created { id, members })
        }))
    }
}

impl Created {
    /// The communicator, which has the layers of `parent`. No other communicator has its origin. Its members are all
    /// in the group `whole`.
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

/// A communicator that is being made.
pub struct Creation<N: Net> {
    slot: Arc<ResultSlot<Option<Created>>>,
    /// What tells the new communicator's epoch.
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

/// A communicator that is being made, of which this process is certainly a member.
pub struct Duplication<N: Net> {
    creation: Creation<N>,
    /// Those of the parent that were copied when it was begun, if it is to have any.
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
