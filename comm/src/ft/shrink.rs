//! Shrinking: a communicator of the living members.

use std::mem;
use std::sync::Arc;

use tagmatch::TagLayout;

use crate::alloc::{Allocation, Allocator, Progress, Role};
use crate::coll::Exchange;
use crate::comm::{Comm, Created, conclude, round};
use crate::driver::{Channel, Driver, Machine, MachineIo, Pending, Request, ResultSlot, Settings};
use crate::error::Error;
use crate::group::Group;
use crate::ids::Sub;
use crate::net::{Net, ProcessId};

use super::agree::Value;
use super::agreeing::Agree;
use super::key::epoch;
use super::life::Life;

/// A communicator of the living members that is being created.
pub type ShrinkRequest<N> = Request<N, Shrinking<N>>;

impl<N: Net> Comm<N> {
    /// Creates a communicator of the living members, in their order. It has no process whose
    /// failure any member had seen before. The result is the same at all living members. The call
    /// also works on a revoked communicator, and after more failures. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::Exhausted`] or [`Error::Fragmented`], the same at all living members.
    pub fn shrink(&self) -> Result<Comm<N>, Error> {
        self.ishrink().wait()
    }

    /// The non-blocking form of [`shrink`](Self::shrink).
    pub fn ishrink(&self) -> ShrinkRequest<N> {
        let Settings { ids, tags, .. } = self.driver().settings;
        // The shrink has agreements of its own, beside those that the members have under way.
        let life = &self.inner.life;
        let origin = [life.key.epoch, life.made(self.group(), u32::MAX), u64::MAX];
        let epoch = epoch(&origin, self.group(), self.group());
        let life = Life::new(self.id(), epoch, &life.group, life.own);
        let life = Arc::new(life);
        self.driver().register(&life);
        let channel = Channel {
            group: Arc::clone(&self.inner.info.group),
            own: self.rank(),
            // No other operation uses this context while the communicator lives.
            context: ids.collective(ids.sub(self.id(), Sub::Merging)),
            tag: 0,
            tags,
            life: None,
            remote: None,
            turn: None,
        };
        let stage = ShrinkStage::Counting(Agree::new(&life, u64::MAX));
        let allocator = self.driver().allocator.clone();
        let shrink = ShrinkMachine { life, allocator, channel, attempts: 0, stage };
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

/// 1. Agree on which members are dead.
/// 2. Carry out one round of an allocation among the others. It may fail at some of them.
/// 3. Agree on whether the round has failed at any member. If it has, another member has died, and
///    all start again. If not, all have the same outcome: an id, no id, or another round.
struct ShrinkMachine {
    life: Arc<Life>,
    allocator: Allocator,
    channel: Channel,
    attempts: u32,
    stage: ShrinkStage,
}

enum ShrinkStage {
    Counting(Agree),
    Reducing { allocation: Allocation, round: Box<Exchange> },
    Concluding { allocation: Allocation, reduced: Result<Vec<u8>, Error>, agree: Agree },
    Over,
}

impl ShrinkMachine {
    fn count(&self) -> ShrinkStage {
        ShrinkStage::Counting(Agree::new(&self.life, u64::MAX))
    }

    fn allocate(&mut self, decision: &Value) -> ShrinkStage {
        let all = &self.life.group;
        let members = decision.living(0..all.size());
        let members = Group::new(members.filter_map(|rank| all.process(rank)));
        // A living process that is agreed to be dead is not among the members. It goes on alone.
        let own = all.process(self.life.own);
        self.channel.own = own.and_then(|own| members.rank(own)).unwrap_or(0);
        self.channel.group = Arc::new(members);
        self.channel.tag = number(&self.life, self.attempts, self.channel.tags);
        self.attempts = self.attempts.wrapping_add(1);
        let Channel { context, tag, .. } = self.channel;
        let allocation = self.allocator.begin(context, tag, Role::Member);
        self.reduce(allocation.for_members(self.life.key.epoch, &self.channel.group))
    }

    fn reduce(&self, mut allocation: Allocation) -> ShrinkStage {
        let round = Box::new(round(&self.channel, &mut allocation));
        ShrinkStage::Reducing { allocation, round }
    }
}

/// The tag of the messages of one attempt of a shrink. Other attempts and other shrinks have other
/// tags.
pub(crate) fn number(life: &Life, attempts: u32, tags: TagLayout) -> u32 {
    let first = u32::try_from(life.key.epoch >> 32).unwrap_or(0);
    first.wrapping_add(attempts) & ((1 << (tags.tag_bits() - 2)) - 1)
}

impl<N: Net> Machine<N> for ShrinkMachine {
    type Output = Created;

    fn step(&mut self, io: &mut MachineIo<'_, N>) -> Option<Result<Created, Error>> {
        loop {
            // A stage that has to wait puts itself back.
            match mem::replace(&mut self.stage, ShrinkStage::Over) {
                ShrinkStage::Counting(mut agree) => match agree.step(io) {
                    Some(decision) => self.stage = self.allocate(&decision),
                    None => {
                        self.stage = ShrinkStage::Counting(agree);
                        return None;
                    }
                },
                ShrinkStage::Reducing { allocation, mut round } => match round.step(io) {
                    Some(reduced) => {
                        let agree = Agree::new(&self.life, u64::from(reduced.is_ok()));
                        self.stage = ShrinkStage::Concluding { allocation, reduced, agree };
                    }
                    None => {
                        self.stage = ShrinkStage::Reducing { allocation, round };
                        return None;
                    }
                },
                ShrinkStage::Concluding { mut allocation, reduced, mut agree } => {
                    let Some(decision) = agree.step(io) else {
                        self.stage = ShrinkStage::Concluding { allocation, reduced, agree };
                        return None;
                    };
                    match reduced {
                        Ok(all) if decision.flags == 1 => {
                            match conclude(&mut allocation, &all) {
                                // The next round may have to wait for another machine, which
                                // must be stepped first.
                                Ok(Progress::Again) => {
                                    self.stage = self.reduce(allocation);
                                    io.ft.expect();
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
                ShrinkStage::Over => return Some(Err(Error::AlreadyTaken)),
            }
        }
    }
}
