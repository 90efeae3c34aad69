//! The rounds of an allocation over a channel, and how its members leave it.
//!
//! A death may be seen by some members in one round and by the others in none: those give up, these begin
//! another round and must not wait there. So members take leave of their *partners*, those with whom they
//! exchange messages in a round:
//!
//! 1. A member whose round has failed tells each partner that lives how many rounds it has begun, in the
//!    context of failures, and waits until it has heard the same of each. Where nothing fails, nothing is told.
//! 2. A process that isn't in the allocation, as it has its id already, answers that it has begun none.
//! 3. A member expects nothing of a partner that has left before its own round.
//! 4. A message of a round that this member has not begun is received and dropped: nothing is left over
//!    that the next allocation over the same channel might take for its own.
//!
//! A round begins at a member only when all have taken part in the one before, without a failure. So the
//! rounds of those who leave differ by one at most; and who has its id got it in the round in which the
//! first ones failed, and has sent them nothing more.

use crate::alloc::{Allocation, OwnedId, Progress};
use crate::coll::{Exchange, Op, Plan, algorithms};
use crate::driver::{Channel, Handle, Machine, Port};
use crate::error::Error;
use crate::ft::Key;
use crate::net::Net;

/// Allocates an id together with all members of a channel.
pub(crate) struct Allocating {
    part: Part,
    /// The last one that has begun.
    round: Exchange,
    stage: Stage,
}

/// One member's part in an allocation.
struct Part {
    /// No other allocation has it.
    key: Key,
    channel: Channel,
    /// How many have begun.
    rounds: u32,
}

enum Stage {
    Reducing(Allocation),
    Leaving { error: Error, partners: Vec<Partner> },
    Over,
}

/// One that has yet to take leave.
struct Partner {
    rank: u32,
    /// Its message of a round that this member has not begun.
    message: Option<Handle>,
}

/// Takes in what a round's reduction gave.
pub(crate) fn conclude(allocation: &mut Allocation, all: &[u8]) -> Result<Progress, Error> {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    let all: Vec<u32> = all.chunks(4).map(word).collect();
    allocation.conclude(&all)
}

/// The reduction of one round.
pub(crate) fn round(channel: &Channel, allocation: &mut Allocation) -> Exchange {
    let offer = allocation.offer().iter().flat_map(|word| word.to_le_bytes()).collect();
    Exchange::new(channel.clone(), algorithms::allreduce(channel, offer), Some(Op::band()))
}

impl Allocating {
    /// `failure`: what this process knows to have failed before.
    pub(crate) fn new(
        key: Key,
        channel: Channel,
        allocation: Allocation,
        failure: Option<Error>,
    ) -> Self {
        // Nothing is offered before the turn: the first round is made then.
        let round = Exchange::new(channel.clone(), Plan::default(), None).after(failure);
        let part = Part { key, channel, rounds: 0 };
        Allocating { part, round, stage: Stage::Reducing(allocation) }
    }

    fn end<N: Net>(
        &mut self,
        port: &mut Port<'_, N>,
        result: Result<Option<OwnedId>, Error>,
    ) -> Option<Result<Option<OwnedId>, Error>> {
        let has_left = matches!(self.stage, Stage::Leaving { .. });
        port.ft.exit(port.net, self.part.key, has_left);
        self.stage = Stage::Over;
        Some(result)
    }
}

impl Part {
    /// Nothing is expected of those who have left before this round.
    fn take_leaves<N: Net>(&self, port: &mut Port<'_, N>, round: &mut Exchange) {
        for at in 0..port.ft.left(self.key).len() {
            let (process, rounds) = port.ft.left(self.key)[at];
            if let Some(rank) = self.channel.group.rank(process)
                && rounds < self.rounds
            {
                round.give_up_on(port, rank);
            }
        }
    }

    /// Tells the partners that live. Those have yet to tell this member.
    fn leave<N: Net>(&self, port: &mut Port<'_, N>) -> Vec<Partner> {
        let mut partners = Vec::new();
        for rank in algorithms::allreduce(&self.channel, Vec::new()).partners() {
            if let Some(process) = self.channel.group.process(rank)
                && !port.net.is_down(process)
            {
                port.ft.leave(port.net, process, self.key, self.rounds);
                partners.push(Partner { rank, message: None });
            }
        }
        partners
    }

    /// Whether nothing more is to come of a partner.
    fn is_rid_of<N: Net>(&self, port: &mut Port<'_, N>, partner: &mut Partner) -> bool {
        let Some(process) = self.channel.group.process(partner.rank) else { return true };
        if let Some(message) = partner.message {
            return port.test(&self.channel, message).is_some();
        }
        let left = port.ft.left(self.key).iter().find(|(from, _)| *from == process);
        match left {
            Some((_, rounds)) if *rounds > self.rounds => {
                // Nobody looks at what is in it.
                partner.message = port.receive(&self.channel, partner.rank, 0).ok();
                partner.message.is_none()
            }
            Some(_) => true,
            None => port.net.is_down(process) || self.channel.is_revoked(),
        }
    }
}

impl<N: Net> Machine<N> for Allocating {
    type Output = Option<OwnedId>;

    fn step(&mut self, port: &mut Port<'_, N>) -> Option<Result<Option<OwnedId>, Error>> {
        let Allocating { part, round: under_way, stage } = self;
        if let Stage::Reducing(allocation) = stage {
            if part.rounds == 0 {
                if !part.channel.has_turn() {
                    return None;
                }
                *under_way = round(&part.channel, allocation).after(under_way.failure());
                port.ft.enter(part.key);
                part.rounds = 1;
            }
            part.take_leaves(port, under_way);
            match under_way.step(port)?.and_then(|all| conclude(allocation, &all)) {
                // What this one waits for may be another machine, which must have its turn.
                Ok(Progress::Again) => {
                    part.rounds += 1;
                    *under_way = round(&part.channel, allocation);
                    port.ft.expect();
                    return None;
                }
                Ok(Progress::Done(id)) => return self.end(port, Ok(id)),
                Err(error) if ends_all(&error) => return self.end(port, Err(error)),
                // The allocation is dropped, and holds nothing while others are waited for.
                Err(error) => *stage = Stage::Leaving { error, partners: part.leave(port) },
            }
        }
        let Stage::Leaving { error, partners } = stage else {
            return Some(Err(Error::AlreadyTaken));
        };
        partners.retain_mut(|partner| !part.is_rid_of(port, partner));
        if !partners.is_empty() {
            port.ft.expect();
            return None;
        }
        let error = error.clone();
        self.end(port, Err(error))
    }
}

/// Whether all other members end too, without being told.
fn ends_all(error: &Error) -> bool {
    matches!(error, Error::Exhausted { .. } | Error::Fragmented { .. } | Error::Revoked)
}
