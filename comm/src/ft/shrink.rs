//! Shrinking: a communicator of those who live.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use tagmatch::TagLayout;

use crate::alloc::{Allocation, Allocator, Progress, Role};
use crate::coll::Exchange;
use crate::comm::{Comm, Created, conclude, round};
use crate::driver::{Channel, Driver, Machine, Pending, Port, Request, ResultSlot, Settings};
use crate::error::Error;
use crate::group::Group;
use crate::ids::Sub;
use crate::net::{Net, ProcessId};

use super::agree::Value;
use super::{Agree, Life, epoch};

/// A communicator of those who live that is being made.
pub type ShrinkRequest<N> = Request<N, Shrinking<N>>;

impl<N: Net> Comm<N> {
    /// A communicator of the members that live, in their order: none is in it whose failure any
    /// member had seen before. The same at all who live; revocation does not touch it, nor do more
    /// failures. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::Exhausted`] or [`Error::Fragmented`], the same at all who live.
    pub fn shrink(&self) -> Result<Comm<N>, Error> {
        self.ishrink().wait()
    }

    /// The same, without blocking.
    pub fn ishrink(&self) -> ShrinkRequest<N> {
        let Settings { ids, tags, .. } = self.driver().settings;
        // Agreements of its own, whatever others the members have under way.
        let life = &self.inner.life;
        let origin = [life.key.epoch, life.made(self.group(), u32::MAX), u64::MAX];
        let epoch = epoch(&origin, self.group(), self.group());
        let life = Life::new(self.id(), epoch, &life.group, life.own);
        let life = Arc::new(life);
        self.driver().register(&life);
        let channel = Channel {
            group: Arc::clone(&self.inner.info.group),
            own: self.rank(),
            // Of no communicator that lives beside this one: its messages meet no others.
            context: ids.collective(ids.sub(self.id(), Sub::Merging)),
            tag: 0,
            tags,
            life: None,
            remote: None,
            turn: None,
        };
        let stage = Stage::Counting(Agree::new(&life, u64::MAX));
        let allocator = self.driver().allocator.clone();
        let shrink = Shrink { life, allocator, channel, attempts: 0, stage };
        let own = self.group().process(self.rank());
        let slot = self.driver().start(shrink);
        Request::new(Shrinking { slot, own, origin, parent: self.clone() })
    }
}

/// What a [`ShrinkRequest`] waits for.
pub struct Shrinking<N: Net> {
    slot: Arc<ResultSlot<Created>>,
    own: Option<ProcessId>,
    origin: [u64; 3],
    parent: Comm<N>,
}

impl<N: Net> Pending<N> for Shrinking<N> {
    type Output = Result<Comm<N>, Error>;

    fn driver(&self) -> &Arc<Driver<N>> {
        self.parent.driver()
    }

    fn test(&mut self) -> Option<Self::Output> {
        let created = self.slot.take()?;
        let whole = self.parent.group();
        let finish = |created: Created| created.finish(&self.parent, self.own, &self.origin, whole);
        let made = created.and_then(finish);
        if let Ok(made) = &made {
            made.set_error_handler(self.parent.error_handler());
        }
        Some(self.parent.raise(made))
    }
}

/// 1. Agree on who is dead.
/// 2. One round of an allocation among the others. This may fail at some of them.
/// 3. Agree on whether it has failed at any: then another one has died, and all begin again. Else
///    all have the same: an id, none, or another round.
struct Shrink {
    life: Arc<Life>,
    allocator: Allocator,
    channel: Channel,
    attempts: u32,
    stage: Stage,
}

enum Stage {
    Counting(Agree),
    Reducing { allocation: Allocation, round: Box<Exchange> },
    Concluding { allocation: Allocation, reduced: Result<Vec<u8>, Error>, agree: Agree },
    Over,
}

impl Shrink {
    fn count(&self) -> Stage {
        Stage::Counting(Agree::new(&self.life, u64::MAX))
    }

    fn allocate(&mut self, decision: &Value) -> Stage {
        let all = &self.life.group;
        let members = decision.living(0..all.size());
        let members = Group::new(members.filter_map(|rank| all.process(rank)));
        // One that is wrongly said to be dead is with those of whom it knows nothing: alone.
        let own = all.process(self.life.own);
        self.channel.own = own.and_then(|own| members.rank(own)).unwrap_or(0);
        self.channel.group = Arc::new(members);
        self.channel.tag = number(&self.life, self.attempts, self.channel.tags);
        self.attempts = self.attempts.wrapping_add(1);
        let Channel { context, tag, .. } = self.channel;
        let allocation = self.allocator.begin(context, tag, Role::Member);
        self.reduce(allocation.for_members(self.life.key.epoch, &self.channel.group))
    }

    fn reduce(&self, mut allocation: Allocation) -> Stage {
        let round = Box::new(round(&self.channel, &mut allocation));
        Stage::Reducing { allocation, round }
    }
}

/// The number of a shrink's messages: those of an attempt that failed, or of another shrink, have
/// others.
pub(crate) fn number(life: &Life, attempts: u32, tags: TagLayout) -> u32 {
    let first = u32::try_from(life.key.epoch >> 32).unwrap_or(0);
    first.wrapping_add(attempts) & ((1 << (tags.tag_bits() - 2)) - 1)
}

impl Value {
    /// Those of these ranks that have contributed, and that nobody knew to be dead.
    pub(crate) fn living(&self, ranks: Range<u32>) -> impl Iterator<Item = u32> {
        let is_dead = |rank: u32| self.dead.contains(rank) || !self.contributors.contains(rank);
        ranks.filter(move |rank| !is_dead(*rank))
    }
}

impl<N: Net> Machine<N> for Shrink {
    type Output = Created;

    fn step(&mut self, port: &mut Port<'_, N>) -> Option<Result<Created, Error>> {
        loop {
            // Each waits where it is, or goes on.
            match mem::replace(&mut self.stage, Stage::Over) {
                Stage::Counting(mut agree) => match agree.step(port) {
                    Some(decision) => self.stage = self.allocate(&decision),
                    None => {
                        self.stage = Stage::Counting(agree);
                        return None;
                    }
                },
                Stage::Reducing { allocation, mut round } => match round.step(port) {
                    Some(reduced) => {
                        let agree = Agree::new(&self.life, u64::from(reduced.is_ok()));
                        self.stage = Stage::Concluding { allocation, reduced, agree };
                    }
                    None => {
                        self.stage = Stage::Reducing { allocation, round };
                        return None;
                    }
                },
                Stage::Concluding { mut allocation, reduced, mut agree } => {
                    let Some(decision) = agree.step(port) else {
                        self.stage = Stage::Concluding { allocation, reduced, agree };
                        return None;
                    };
                    match reduced {
                        Ok(all) if decision.flags == 1 => {
                            match conclude(&mut allocation, &all) {
                                // What this one waits for may be another machine, which must have
                                // its turn.
                                Ok(Progress::Again) => {
                                    self.stage = self.reduce(allocation);
                                    port.ft.expect();
                                    return None;
                                }
                                Ok(Progress::Done(id)) => {
                                    let members = Arc::clone(&self.channel.group);
                                    let id = id.ok_or(Error::NotOffered);
                                    return Some(id.map(|id| Created { id, members }));
                                }
                                Err(error) => return Some(Err(error)),
                            }
                        }
                        _ => self.stage = self.count(),
                    }
                }
                Stage::Over => return Some(Err(Error::AlreadyTaken)),
            }
        }
    }
}
