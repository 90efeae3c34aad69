//! A context id for members of whom some may die: all who live get it, or none.

use std::sync::Arc;

use crate::alloc::{Allocation, OwnedId, Progress};
use crate::coll::Exchange;
use crate::comm::{conclude, round};
use crate::driver::{Channel, Machine, Port};
use crate::error::Error;
use crate::ft::{Agree, Life};
use crate::net::Net;

/// Rounds of an allocation, on each of which all who live agree: so all go on to the next one, or none.
pub(super) struct Allocate {
    life: Arc<Life>,
    channel: Channel,
    allocation: Allocation,
    says: u64,
    round: Round,
}

enum Round {
    /// For the operation's turn: nothing is offered before it.
    Waiting,
    Reducing(Box<Exchange>),
    Agreeing(Result<Vec<u8>, Error>, Agree),
}

impl Allocate {
    /// `says`: 63 bits, of which the bitwise AND is part of the result.
    pub(super) fn new(
        life: &Arc<Life>,
        channel: Channel,
        allocation: Allocation,
        says: u64,
    ) -> Self {
        Allocate { life: Arc::clone(life), channel, allocation, says, round: Round::Waiting }
    }
}

impl<N: Net> Machine<N> for Allocate {
    type Output = (OwnedId, u64);

    fn step(&mut self, port: &mut Port<'_, N>) -> Option<Result<Self::Output, Error>> {
        loop {
            match &mut self.round {
                Round::Waiting if !self.channel.has_turn() => return None,
                Round::Waiting => {
                    let first = round(&self.channel, &mut self.allocation);
                    self.round = Round::Reducing(Box::new(first));
                }
                Round::Reducing(exchange) => {
                    let reduced = exchange.step(port)?;
                    let flags = self.says << 1 | u64::from(reduced.is_ok());
                    self.round = Round::Agreeing(reduced, Agree::new(&self.life, flags));
                }
                Round::Agreeing(reduced, agree) => {
                    let agreed = agree.step(port)?.flags;
                    let all = match reduced {
                        Ok(all) if agreed & 1 == 1 => all,
                        Ok(_) => return Some(Err(Error::ProcessFailed { rank: None })),
                        Err(error) => return Some(Err(error.clone())),
                    };
                    return match conclude(&mut self.allocation, all) {
                        Ok(Progress::Again) => {
                            let next = round(&self.channel, &mut self.allocation);
                            self.round = Round::Reducing(Box::new(next));
                            port.ft.expect();
                            // What this one waits for may be another machine, which must have its turn.
                            None
                        }
                        Ok(Progress::Done(id)) => {
                            Some(id.ok_or(Error::NotOffered).map(|id| (id, agreed >> 1)))
                        }
                        Err(error) => Some(Err(error)),
                    };
                }
            }
        }
    }
}
