//! The allocation of a context id by members of which some may die: all living members get the id,
//! or none.

use std::sync::Arc;

use tagmatch::Buffer;

use crate::alloc::{Allocation, OwnedId, Progress};
use crate::creation::{conclude, round};
use crate::driver::{Agree, Channel, Machine, MachineIo};
use crate::error::Error;
use crate::life::Life;
use crate::net::Net;
use crate::plans::Exchange;

/// The rounds of an allocation, with an agreement after each round: all living members go on to the
/// next round, or none does.
pub(super) struct AgreedAllocation {
    life: Arc<Life>,
    channel: Channel,
    allocation: Allocation,
    contribution: u64,
    stage: AllocateStage,
}

enum AllocateStage {
    /// Waits for the operation's turn. No id is offered before that.
    Waiting,
    Reducing(Box<Exchange>),
    Agreeing(Result<Buffer, Error>, Agree),
}

impl AgreedAllocation {
    /// `contribution`: 63 bits. The bitwise AND of all contributions is part of the result.
    pub(super) fn new(
        life: &Arc<Life>,
        channel: Channel,
        allocation: Allocation,
        contribution: u64,
    ) -> Self {
        let life = Arc::clone(life);
        let stage = AllocateStage::Waiting;
        AgreedAllocation { life, channel, allocation, contribution, stage }
    }

    fn begin_round<N: Net>(&mut self, io: &mut MachineIo<'_, N>) {
        let round = round(io, &self.channel, &mut self.allocation);
        self.stage = AllocateStage::Reducing(Box::new(round));
    }
}

impl<N: Net> Machine<N> for AgreedAllocation {
    /// The id, unless this process is ignored, and the bitwise AND of the contributions.
    type Output = (Option<OwnedId>, u64);

    fn step(&mut self, io: &mut MachineIo<'_, N>) -> Option<Result<Self::Output, Error>> {
        loop {
            match &mut self.stage {
                AllocateStage::Waiting if !self.channel.has_turn() => return None,
                AllocateStage::Waiting => self.begin_round(io),
                AllocateStage::Reducing(exchange) => {
                    let reduced = exchange.step(io)?;
                    let flags = self.contribution << 1 | u64::from(reduced.is_ok());
                    self.stage = AllocateStage::Agreeing(reduced, Agree::new(&self.life, flags));
                }
                AllocateStage::Agreeing(reduced, agree) => {
                    let agreed = match agree.step(io)? {
                        Ok(decision) => decision.flags,
                        Err(error) => return Some(Err(error)),
                    };
                    let all = match reduced {
                        Ok(all) if agreed & 1 == 1 => all,
                        Ok(_) => return Some(Err(Error::ProcessFailed { rank: None })),
                        Err(error) => return Some(Err(error.clone())),
                    };
                    return match conclude(&mut self.allocation, all) {
                        Ok(Progress::Again) => {
                            self.begin_round(io);
                            io.ft.step_again();
                            // The next round may have to wait for another machine, which must be
                            // stepped first.
                            None
                        }
                        Ok(Progress::Done(id)) => Some(Ok((id, agreed >> 1))),
                        Err(error) => Some(Err(error)),
                    };
                }
            }
        }
    }
}
