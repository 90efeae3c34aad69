//! A collective operation as data, and the machine that carries it out.

use std::mem;
use std::ops::Range;

use crate::defect::Defect;
use crate::error::Error;
use crate::net::Net;
use crate::port::{Channel, Ended, Handle, Port};
use crate::runtime::Machine;

use super::op::Op;

/// What becomes of bytes that go to a place where others are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Landing {
    /// They replace them.
    Store,
    /// They are the left operand, those there the right one.
    Left,
    /// They are the right operand.
    Right,
}

/// One thing to do. Places are in the plan's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Send {
        to: u32,
        from: Range<usize>,
    },
    Receive {
        from: u32,
        into: Range<usize>,
        landing: Landing,
    },
    /// Within the memory, after what was received has landed.
    Local {
        from: Range<usize>,
        into: Range<usize>,
        landing: Landing,
    },
    /// All before it ends before anything behind it begins.
    Fence,
}

/// What one member does in a collective operation, and on which bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) memory: Vec<u8>,
    /// Where the result is.
    pub(crate) result: Range<usize>,
    /// By how many bytes it is rotated to the right at the end.
    pub(crate) rotate: usize,
}

impl Plan {
    pub(crate) fn send(&mut self, to: u32, from: Range<usize>) {
        self.steps.push(Step::Send { to, from });
    }

    pub(crate) fn receive(&mut self, from: u32, into: Range<usize>, landing: Landing) {
        self.steps.push(Step::Receive { from, into, landing });
    }

    pub(crate) fn local(&mut self, from: Range<usize>, into: Range<usize>, landing: Landing) {
        self.steps.push(Step::Local { from, into, landing });
    }

    pub(crate) fn fence(&mut self) {
        self.steps.push(Step::Fence);
    }

    /// From whom it receives, each once.
    pub(crate) fn partners(&self) -> Vec<u32> {
        let sender = |step: &Step| match step {
            Step::Receive { from, .. } => Some(*from),
            _ => None,
        };
        let mut partners: Vec<u32> = self.steps.iter().filter_map(sender).collect();
        partners.sort_unstable();
        partners.dedup();
        partners
    }
}

/// Carries out a plan.
///
/// After a failure it goes on to the plan's end, sending marked messages without contents: all who depend
/// on the failed process learn of it, and nobody waits for a member that gave up.
pub(crate) struct Exchange {
    channel: Channel,
    plan: Plan,
    op: Option<Op>,
    /// The steps of the round under way; empty before the first.
    round: Range<usize>,
    is_posted: bool,
    /// Operations under way, with their steps.
    pending: Vec<(Handle, usize)>,
    landed: Vec<(usize, Vec<u8>)>,
    failure: Option<Error>,
    /// Members of whom nothing comes any more.
    gone: Vec<u32>,
}

impl Exchange {
    pub(crate) fn new(channel: Channel, plan: Plan, op: Option<Op>) -> Self {
        Exchange {
            channel,
            plan,
            op,
            round: 0..0,
            is_posted: false,
            pending: Vec::new(),
            landed: Vec::new(),
            failure: None,
            gone: Vec::new(),
        }
    }

    /// One that may have failed before it begins: then it tells all others.
    pub(crate) fn after(self, failure: Option<Error>) -> Self {
        Exchange { failure, ..self }
    }

    /// Nothing comes of this member any more: to receive from it fails.
    pub(crate) fn forsake<N: Net>(&mut self, port: &mut Port<'_, N>, rank: u32) {
        if self.gone.contains(&rank) {
            return;
        }
        self.gone.push(rank);
        self.failure.get_or_insert(Error::ProcessFailed { rank: None });
        for (handle, at) in &self.pending {
            if matches!(self.plan.steps[*at], Step::Receive { from, .. } if from == rank) {
                port.cancel(*handle);
            }
        }
    }

    /// The steps from `at` to the next fence.
    fn round_from(&self, at: usize) -> Range<usize> {
        let rest = &self.plan.steps[at..];
        let length = rest.iter().position(|step| *step == Step::Fence);
        at..at + length.unwrap_or(rest.len())
    }

    /// Receives before sends: what comes is expected.
    fn post<N: Net>(&mut self, port: &mut Port<'_, N>) {
        let Exchange { channel, plan, pending, failure, round, gone, .. } = self;
        for at in round.clone() {
            if let Step::Receive { from, into, .. } = &plan.steps[at]
                && !gone.contains(from)
            {
                match port.receive(channel, *from, into.len()) {
                    Ok(handle) => pending.push((handle, at)),
                    Err(error) => drop(failure.get_or_insert(error)),
                }
            }
        }
        for at in round.clone() {
            if let Step::Send { to, from } = &plan.steps[at] {
                let marked = failure.is_some();
                let data = if marked { &[] } else { &plan.memory[from.clone()] };
                match port.send(channel, *to, data, marked) {
                    Ok(handle) => pending.extend(handle.map(|handle| (handle, at))),
                    Err(error) => drop(failure.get_or_insert(error)),
                }
            }
        }
    }

    /// Looks at what is under way; whether all of it has ended.
    fn poll<N: Net>(&mut self, port: &mut Port<'_, N>) -> bool {
        let Exchange { channel, plan, pending, landed, failure, .. } = self;
        pending.retain(|(handle, at)| {
            let Some(ended) = port.test(channel, *handle) else { return true };
            let received = match &plan.steps[*at] {
                Step::Receive { from, into, .. } => Some((*from, into.len())),
                _ => None,
            };
            let checked = ended.and_then(|ended| match received {
                Some((rank, due)) => check(rank, due, ended).map(Some),
                None => Ok(None),
            });
            match checked {
                Ok(data) => landed.extend(data.map(|data| (*at, data))),
                Err(error) => drop(failure.get_or_insert(error)),
            }
            false
        });
        pending.is_empty()
    }

    /// Puts what has come where it belongs, in the order of the steps.
    fn land(&mut self) {
        let mut landed = mem::take(&mut self.landed);
        landed.sort_unstable_by_key(|(at, _)| *at);
        let mut landed = landed.into_iter().peekable();
        for at in self.round.clone() {
            let (data, into, landing) = match &self.plan.steps[at] {
                Step::Receive { into, landing, .. } => {
                    let Some((_, data)) = landed.next_if(|(of, _)| *of == at) else { continue };
                    (data, into, *landing)
                }
                Step::Local { from, into, landing } => {
                    (self.plan.memory[from.clone()].to_vec(), into, *landing)
                }
                Step::Send { .. } | Step::Fence => continue,
            };
            let swaps = self.channel.planted.is(Defect::SwapOperands);
            let landing = match landing {
                Landing::Left if swaps => Landing::Right,
                other => other,
            };
            combine(self.op.as_ref(), data, &mut self.plan.memory[into.clone()], landing);
        }
    }

    fn end(&mut self) -> Result<Vec<u8>, Error> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        let Plan { memory, result, rotate, .. } = mem::take(&mut self.plan);
        let mut memory = memory;
        memory.truncate(result.end);
        memory.drain(..result.start);
        memory.rotate_right(rotate);
        Ok(memory)
    }
}

/// What was received, if it is what was due.
fn check(rank: u32, due: usize, ended: Ended) -> Result<Vec<u8>, Error> {
    let Ended { data, length, marked } = ended;
    if marked {
        return Err(Error::ProcessFailed { rank: None });
    }
    if length != due as u64 {
        return Err(Error::Mismatch { rank, length, due });
    }
    Ok(data)
}

fn combine(op: Option<&Op>, mut data: Vec<u8>, place: &mut [u8], landing: Landing) {
    match (landing, op) {
        (Landing::Left, Some(op)) => op.apply(&data, place),
        (Landing::Right, Some(op)) => {
            op.apply(place, &mut data);
            place.copy_from_slice(&data);
        }
        (Landing::Store, _) | (_, None) => place.copy_from_slice(&data),
    }
}

impl<N: Net> Machine<N> for Exchange {
    type Output = Vec<u8>;

    fn step(&mut self, port: &mut Port<'_, N>) -> Option<Result<Vec<u8>, Error>> {
        while self.round.start < self.plan.steps.len() {
            if !mem::replace(&mut self.is_posted, true) {
                self.round = self.round_from(self.round.start);
                self.post(port);
            }
            if !self.poll(port) {
                return None;
            }
            self.is_posted = false;
            self.land();
            self.round.start = self.round.end + 1;
            if self.failure.is_some() && self.channel.planted.is(Defect::GiveUp) {
                break;
            }
        }
        Some(self.end())
    }
}
