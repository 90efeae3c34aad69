//! Shrinking: a communicator of the living members.

use std::sync::Arc;

use tagmatch::{Buffer, TagLayout};

use super::allocating::{conclude, round};
use super::create::Created;
use crate::alloc::{Allocation, Allocator, Progress, Role};
use crate::comm::{CollRequest, Collective, Comm};
use crate::driver::{Agree, Channel, Machine, MachineIo, Settings};
use crate::error::Error;
use crate::ft::Value;
use crate::group::Group;
use crate::ids::Sub;
use crate::life::{Life, epoch};
use crate::net::Net;
use crate::plans::Exchange;

impl<N: Net> Comm<N> {
    /// Creates a communicator of the living members, in their order. It has no process whose
    /// failure any member had seen before. The result is the same at all living members. The call
    /// also works on a revoked communicator, and after more failures.
    ///
    /// # Errors
    /// [`Error::Exhausted`] or [`Error::Fragmented`], the same at all living members.
    pub fn shrink(&self) -> Collective<'_, N, Comm<N>> {
        Collective::begun_by(|| self.start_shrink())
    }

    fn start_shrink(&self) -> CollRequest<N, Comm<N>> {
        let Settings { ids, tags, .. } = self.driver().settings;
        // The shrink has agreements of its own, beside those that the members have under way.
        let life = &self.inner.life;
        let origin = [life.key.epoch, life.made(self.group(), u32::MAX), u64::MAX];
        let epoch = epoch(&origin, self.group(), self.group());
        let life = Life::new(self.id(), epoch, &life.group, life.own);
        let life = Arc::new(life);
        self.driver().register(&life);
        // The messages of the shrink are sent in this communicator's id, without its life.
        self.inner.life.used().settle_by_asking();
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
        let shrink =
            ShrinkMachine { life, allocator, channel, attempts: 0, allocation: None, stage };
        let own = self.group().process(self.rank());
        self.start_then(shrink, move |parent, created| {
            let comm = created.finish(parent, own, &origin, parent.group())?;
            comm.set_error_handler(parent.error_handler());
            Ok(comm)
        })
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
    /// The allocation of the agreed members.
    allocation: Option<Allocation>,
    stage: ShrinkStage,
}

enum ShrinkStage {
    Counting(Agree),
    Reducing(Box<Exchange>),
    Concluding { reduced: Result<Buffer, Error>, agree: Agree },
}

impl ShrinkMachine {
    fn allocate<N: Net>(&mut self, io: &mut MachineIo<'_, N>, decision: &Value) -> ShrinkStage {
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
        let members = &self.channel.group;
        let creation = self.life.key.epoch;
        let name = epoch(&[creation], members, all);
        let allocation = self.allocator.begin(context, tag, Role::Member).over(members);
        let allocation = allocation.for_members([creation, name], members);
        self.reduce(io, allocation)
    }

    fn reduce<N: Net>(
        &mut self,
        io: &mut MachineIo<'_, N>,
        mut allocation: Allocation,
    ) -> ShrinkStage {
        let round = Box::new(round(io, &self.channel, &mut allocation));
        self.allocation = Some(allocation);
        ShrinkStage::Reducing(round)
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
            match &mut self.stage {
                ShrinkStage::Counting(agree) => match agree.step(io)? {
                    Ok(decision) => self.stage = self.allocate(io, &decision),
                    Err(error) => return Some(Err(error)),
                },
                ShrinkStage::Reducing(round) => {
                    let reduced = round.step(io)?;
                    if let Err(error @ Error::Net(_)) = reduced {
                        // The next round would fail in the same way. The others go on when this
                        // process has left the job.
                        io.ft.lack(&error);
                        return Some(Err(error));
                    }
                    let agree = Agree::new(&self.life, u64::from(reduced.is_ok()));
                    self.stage = ShrinkStage::Concluding { reduced, agree };
                }
                ShrinkStage::Concluding { reduced, agree } => {
                    let agreed = match agree.step(io)? {
                        Ok(decision) => decision.flags,
                        Err(error) => return Some(Err(error)),
                    };
                    let mut allocation = self.allocation.take()?;
                    let Some(all) = reduced.as_ref().ok().filter(|_| agreed == 1) else {
                        self.stage = ShrinkStage::Counting(Agree::new(&self.life, u64::MAX));
                        continue;
                    };
                    return match conclude(&mut allocation, all) {
                        // The next round may have to wait for another machine, which must be
                        // stepped first.
                        Ok(Progress::Again) => {
                            self.stage = self.reduce(io, allocation);
                            io.ft.step_again();
                            None
                        }
                        Ok(Progress::Done(id)) => {
                            let members = Arc::clone(&self.channel.group);
                            Some(id.map(|id| Created { id, members }).ok_or(Error::NotOffered))
                        }
                        Err(error) => Some(Err(error)),
                    };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::IdLayout;
    use crate::net::ProcessId;

    #[test]
    fn each_attempt_of_a_shrink_has_messages_of_its_own() {
        let group = Arc::new(Group::new([0, 1].map(ProcessId)));
        let life = Life::new(IdLayout::BITS_16.world(), 7 << 32, &group, 0);
        let tag = |attempt| number(&life, attempt, TagLayout::MPI);
        assert_eq!([0, 1, 2].map(tag), [7, 8, 9]);
    }
}
