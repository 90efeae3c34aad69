//! The calls that make a communicator out of another one: `dup`, `split`, `create` and
//! `create_group`.

use std::sync::Arc;

use tagmatch::Buffer;

use super::allocating::Allocating;
use super::choices::{SplitChoice, chosen};
use crate::alloc::{Allocator, OwnedId, Role};
use crate::coll::allgather_machine;
use crate::comm::{CollRequest, Collective, Comm, CommInfo};
use crate::context_id::ContextId;
use crate::driver::{Channel, Machine, MachineIo, numbers};
use crate::error::Error;
use crate::group::Group;
use crate::life::{Key, Life, epoch};
use crate::net::{Net, ProcessId};

impl<N: Net> Comm<N> {
    /// Makes a communicator of the same members, with a context id of its own: its messages match
    /// no others.
    ///
    /// # Errors
    /// No context id is left, which all members report alike; a member is down.
    pub fn dup(&self) -> Collective<'_, N, Comm<N>> {
        Collective::begun_by(|| {
            let attributes = self.copy_attributes();
            let members = Some(Arc::clone(&self.inner.info.group));
            self.create_from(self.channel(), 0, members, |comm| {
                let comm: Comm<N> = comm.ok_or(Error::Group)?;
                comm.take_attributes(attributes?);
                Ok(comm)
            })
        })
    }

    /// Makes one communicator for each colour, of the members that have passed this colour. Its
    /// ranks are ordered by key, then by the rank in this communicator. A member that passes no
    /// colour gets no communicator, and uses up no context id.
    ///
    /// # Errors
    /// As for [`dup`](Self::dup).
    pub fn split(&self, color: Option<u32>, key: i32) -> Collective<'_, N, Option<Comm<N>>> {
        Collective::begun_by(move || {
            let channel = self.channel();
            let own = SplitChoice { color, key };
            match allgather_machine(self, own.to_bytes(), &channel) {
                Ok(gather) => {
                    let stage = CreatingCommStage::Choosing(gather, color);
                    let request = self.creation(self.begin(&channel, 0), channel, stage, Ok);
                    // A thread that sleeps on the transport is not woken by shared memory.
                    self.driver().ring();
                    request
                }
                Err(error) => self.ended(Err(error)),
            }
        })
    }

    /// Makes a communicator of the members that are in `group`. All members of a group pass the
    /// same group. A member that is not in the group that it passes gets no communicator.
    /// Collective over this communicator.
    ///
    /// # Errors
    /// As for [`dup`](Self::dup); [`Error::Group`] if the group has a process that is not a member
    /// of this communicator.
    pub fn create(&self, group: &Group) -> Collective<'_, N, Option<Comm<N>>> {
        let own = self.group().process(self.rank());
        let is_member = own.is_some_and(|own| group.rank(own).is_some());
        let members = is_member.then(|| Arc::new(group.clone()));
        let checked = self.check(group);
        Collective::begun_by(move || match checked {
            Ok(()) => self.create_from(self.channel(), 0, members, Ok),
            Err(error) => self.ended(Err(error)),
        })
    }

    /// Makes a communicator of a group of members. Only the members of the group call this, so it
    /// is collective over the group alone. Two threads that do this at the same time, with groups
    /// that have a process in common, must pass different tags.
    ///
    /// # Errors
    /// As for [`create`](Self::create); [`Error::Group`] also if the caller is not in the group.
    /// [`Error::Tag`]: the tag is too large.
    pub fn create_group(&self, group: &Group, tag: u32) -> Collective<'_, N, Comm<N>> {
        let channel = self.channel_of(group, tag);
        Collective::begun_by(move || match channel {
            Ok(channel) => {
                let group = Arc::clone(&channel.group);
                let earlier = self.inner.life.made(&group, tag);
                self.create_from(channel, earlier, Some(group), |comm| comm.ok_or(Error::Group))
            }
            Err(error) => self.ended(Err(error)),
        })
    }

    /// The channel in which the members of a group make a communicator.
    fn channel_of(&self, group: &Group, tag: u32) -> Result<Channel, Error> {
        self.check(group)?;
        let own = self.group().process(self.rank()).ok_or(Error::Group)?;
        let own = group.rank(own).ok_or(Error::Group)?;
        // The tags of these messages have a bit set that no number of a collective operation has.
        let bit = numbers(self.driver().settings.tags);
        if tag >= bit {
            return Err(Error::Tag { tag, max: bit - 1 });
        }
        Ok(Channel { group: Arc::new(group.clone()), own, ..self.outside(tag | bit) })
    }

    fn check(&self, group: &Group) -> Result<(), Error> {
        let is_part = group.difference(self.group()).size() == 0;
        if is_part { Ok(()) } else { Err(Error::Group) }
    }

    /// Begins to allocate the context id of a communicator with these members; `None`: this process
    /// is not a member. `earlier`: how many communicators were made before over an equal channel,
    /// if the channel has no number.
    fn create_from<T>(
        &self,
        channel: Channel,
        earlier: u64,
        members: Option<Arc<Group>>,
        finish: impl FnOnce(Option<Comm<N>>) -> Result<T, Error> + Send + Sync + 'static,
    ) -> CollRequest<N, T> {
        let parent = self.begin(&channel, earlier);
        let stage = parent.allocate(&channel, members, None);
        self.creation(parent, channel, stage, finish)
    }

    fn begin(&self, channel: &Channel, earlier: u64) -> Parent {
        let origin = [self.inner.life.key.epoch, channel.call(), earlier];
        let allocator = self.driver().allocator.clone();
        Parent { allocator, id: self.id(), group: Arc::clone(&self.inner.info.group), origin }
    }

    /// Begins a creation. `finish` gets the communicator; `None` in a process that is not a member.
    fn creation<T>(
        &self,
        parent: Parent,
        channel: Channel,
        stage: CreatingCommStage<N>,
        finish: impl FnOnce(Option<Comm<N>>) -> Result<T, Error> + Send + Sync + 'static,
    ) -> CollRequest<N, T> {
        let origin = parent.origin;
        self.start_then(CreatingComm { parent, channel, stage }, move |parent, created| {
            let Some(created) = created else { return finish(None) };
            let own = parent.group().process(parent.rank());
            let comm = created.finish(parent, own, &origin, parent.group())?;
            comm.set_error_handler(parent.error_handler());
            finish(Some(comm))
        })
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
struct CreatingComm<N: Net> {
    parent: Parent,
    channel: Channel,
    stage: CreatingCommStage<N>,
}

enum CreatingCommStage<N: Net> {
    /// An allgather of the arguments that the members have passed to a split, and the own colour.
    Choosing(Box<dyn Machine<N, Output = Buffer>>, Option<u32>),
    Allocating {
        allocating: Box<Allocating>,
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
    fn allocate<N: Net>(
        &self,
        channel: &Channel,
        members: Option<Arc<Group>>,
        failure: Option<Error>,
    ) -> CreatingCommStage<N> {
        let role = if members.is_some() { Role::Member } else { Role::Ignored };
        let allocation = self.allocator.begin(self.id, channel.tag, role).over(&channel.group);
        let creation = epoch(&self.origin, &channel.group, &self.group);
        let allocation = match &members {
            Some(members) => {
                let name = epoch(&[creation], members, &self.group);
                allocation.for_members([creation, name], members)
            }
            None => allocation,
        };
        let key = Key::new(self.id, creation);
        let allocating = Box::new(Allocating::new(key, channel.clone(), allocation, failure));
        CreatingCommStage::Allocating { allocating, members }
    }
}

impl<N: Net> Machine<N> for CreatingComm<N> {
    type Output = Option<Created>;

    fn step(&mut self, io: &mut MachineIo<'_, N>) -> Option<Result<Option<Created>, Error>> {
        if let CreatingCommStage::Choosing(gather, color) = &mut self.stage {
            // Other members may have got all choices, and go on to the allocation. This member goes
            // there, too, and reports its failure in the first round: otherwise they would wait for
            // it.
            let (members, failure) = match gather.step(io)? {
                Ok(all) => {
                    let of = |color| Arc::new(chosen(&all, color, &self.channel.group));
                    (color.map(of), None)
                }
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
        let life = Life::new(info.id, epoch, &info.group, rank).using(id.used());
        parent.make(info, life, Some(Arc::new(id)))
    }
}
