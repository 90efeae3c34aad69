//! The allocation of a context id in rounds over a channel, and how the members leave it after a
//! failure.
//!
//! A death may fail a round at some members and not at others. The first ones give up. The others
//! begin another round, and must not wait there for the first ones. So a member that gives up says
//! so to its *partners*, the members with which it exchanges messages in a round:
//!
//! 1. A member whose round has failed sends each living partner the number of rounds that it has
//!    begun, as a control message for failures. Then it waits for the number of each partner.
//!    Without a failure no numbers are sent.
//! 2. A process that has its id, and so is no longer in the allocation, answers that it has begun
//!    no round.
//! 3. A member expects no message of a partner that has left before the member's current round.
//! 4. A message of a round that this member has not begun is received and dropped. So no message is
//!    left that a later allocation over the same channel could receive.
//!
//! A member begins a round only when all members have taken part in the round before, and it has
//! not failed there. So the numbers of members that leave differ by at most one. A member that has
//! its id got it in the round in which the others failed, and has sent them no message of a later
//! round.

use crate::alloc::{self, Allocation, OwnedId, Progress};
use crate::driver::{Channel, Handle, Machine, MachineIo};
use crate::error::Error;
use crate::life::Key;
use crate::net::Net;
use crate::plans::{Exchange, Op, Plan, WorkMemory, algorithms};

/// Allocates an id together with all members of a channel.
pub(crate) struct Allocating {
    part: AllocatingPart,
    /// The last round that has begun.
    round: Exchange,
    stage: AllocatingStage,
}

/// One member's part in an allocation.
struct AllocatingPart {
    /// Tells this allocation apart from all others.
    key: Key,
    channel: Channel,
    /// The number of rounds that have begun.
    rounds: u32,
}

enum AllocatingStage {
    Reducing(Allocation),
    Leaving { error: Error, partners: Vec<Partner> },
    Over,
}

/// A partner from which this member still has to hear the number of rounds.
struct Partner {
    rank: u32,
    /// The receive of the partner's message of a round that this member has not begun.
    message: Option<Handle>,
}

/// Passes the result of a round's reduction to the allocation.
pub(crate) fn conclude(
    allocation: &mut Allocation,
    all: &[u8],
) -> Result<Progress<OwnedId>, Error> {
    allocation.conclude(&words(all))
}

/// The words of a message.
pub(crate) fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().copied().map(u32::from_le_bytes).collect()
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Combines the operands of two processes.
fn combine(left: &[u8], right: &mut [u8]) {
    let mut both = words(right);
    alloc::combine(&words(left), &mut both);
    right.copy_from_slice(&bytes(&both));
}

/// The reduction of one round. Each message has a whole operand.
pub(crate) fn round<N: Net>(
    io: &mut MachineIo<'_, N>,
    channel: &Channel,
    allocation: &mut Allocation,
) -> Exchange {
    // The service takes in the ids that were freed and settled until now.
    io.ft.look(io.net);
    let offer = bytes(&allocation.offer());
    let plan = algorithms::allreduce(channel, offer);
    Exchange::new(channel.clone(), plan, Op::new(1, true, combine).ok())
}

impl Allocating {
    /// `failure`: an error that this process has had before. It reports it to the others in the
    /// first round.
    pub(crate) fn new(
        key: Key,
        channel: Channel,
        allocation: Allocation,
        failure: Option<Error>,
    ) -> Self {
        // This is a placeholder. The first round is made when the operation has its turn, because a
        // member must offer no ids before.
        let round = Exchange::new(channel.clone(), Plan::default(), None).after(failure);
        let part = AllocatingPart { key, channel, rounds: 0 };
        Allocating { part, round, stage: AllocatingStage::Reducing(allocation) }
    }

    fn end<N: Net>(
        &mut self,
        io: &mut MachineIo<'_, N>,
        result: Result<Option<OwnedId>, Error>,
    ) -> Option<Result<Option<OwnedId>, Error>> {
        let has_left = matches!(self.stage, AllocatingStage::Leaving { .. });
        io.ft.exit(io.net, self.part.key, has_left);
        self.stage = AllocatingStage::Over;
        Some(result)
    }
}

impl AllocatingPart {
    /// Stops waiting for partners that have left before this round.
    fn give_up_on_leavers<N: Net>(&self, io: &mut MachineIo<'_, N>, round: &mut Exchange) {
        for at in 0..io.ft.left(self.key).len() {
            let (process, rounds) = io.ft.left(self.key)[at];
            if let Some(rank) = self.channel.group.rank(process)
                && rounds < self.rounds
            {
                round.give_up_on(io, rank);
            }
        }
    }

    /// Sends each living partner the number of this member's rounds. Returns the partners whose
    /// numbers this member now waits for.
    fn leave<N: Net>(&self, io: &mut MachineIo<'_, N>) -> Vec<Partner> {
        let mut partners = Vec::new();
        for rank in algorithms::allreduce(&self.channel, WorkMemory::default()).partners() {
            if let Some(process) = self.channel.group.process(rank)
                && !io.net.is_down(process)
            {
                io.ft.leave(io.net, process, self.key, self.rounds);
                partners.push(Partner { rank, message: None });
            }
        }
        partners
    }

    /// Whether no more messages of a partner can arrive.
    fn is_done_with<N: Net>(&self, io: &mut MachineIo<'_, N>, partner: &mut Partner) -> bool {
        let Some(process) = self.channel.group.process(partner.rank) else { return true };
        if let Some(message) = partner.message {
            return io.test(&self.channel, message).is_some();
        }
        let left = io.ft.left(self.key).iter().find(|(from, _)| *from == process);
        match left {
            Some((_, rounds)) if *rounds > self.rounds => {
                // The contents don't matter, so the receive has no room for them.
                partner.message = io.receive(&self.channel, partner.rank, 0).ok();
                partner.message.is_none()
            }
            Some(_) => true,
            None => io.net.is_down(process) || self.channel.is_revoked(),
        }
    }
}

impl<N: Net> Machine<N> for Allocating {
    type Output = Option<OwnedId>;

    fn step(&mut self, io: &mut MachineIo<'_, N>) -> Option<Result<Option<OwnedId>, Error>> {
        let Allocating { part, round: under_way, stage } = self;
        if let AllocatingStage::Reducing(allocation) = stage {
            if part.rounds == 0 {
                if !part.channel.has_turn() {
                    return None;
                }
                *under_way = round(io, &part.channel, allocation).after(under_way.failure());
                io.ft.enter(part.key);
                part.rounds = 1;
            }
            part.give_up_on_leavers(io, under_way);
            match under_way.step(io)?.and_then(|all| conclude(allocation, &all)) {
                // The next round may have to wait for another machine of this process, so this step
                // ends here.
                Ok(Progress::Again) => {
                    part.rounds += 1;
                    *under_way = round(io, &part.channel, allocation);
                    io.ft.step_again();
                    return None;
                }
                Ok(Progress::Done(id)) => return self.end(io, Ok(id)),
                Err(error) if ends_all(&error) => return self.end(io, Err(error)),
                // The allocation is dropped here, so that it holds no ids while this member waits
                // for its partners.
                Err(error) => *stage = AllocatingStage::Leaving { error, partners: part.leave(io) },
            }
        }
        let AllocatingStage::Leaving { error, partners } = stage else {
            return Some(Err(Error::AlreadyTaken));
        };
        partners.retain_mut(|partner| !part.is_done_with(io, partner));
        if !partners.is_empty() {
            io.ft.expect();
            return None;
        }
        let error = error.clone();
        self.end(io, Err(error))
    }
}

/// Whether all other members end with this error, too, so that they need not be told.
fn ends_all(error: &Error) -> bool {
    matches!(error, Error::Exhausted { .. } | Error::Fragmented { .. } | Error::Revoked)
}
