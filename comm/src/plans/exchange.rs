//! The state machine that carries out plans.

use std::mem;
use std::ops::Range;

use tagmatch::Buffer;

use super::op::Op;
use super::plan::{Placement, Plan, PlanStep};
use crate::driver::{Channel, Ended, Handle, INJECT_MAX, Machine, MachineIo};
use crate::error::Error;
use crate::net::Net;

/// Carries out a plan.
///
/// After a failure it goes on to the plan's end, and sends marked messages without contents. So all
/// members that depend on the failed process learn of the failure, and no member waits for one that
/// gave up.
///
/// A message that fills the whole memory is sent and received in place. Other messages are copied
/// through vectors, which are kept for later messages.
pub(crate) struct Exchange {
    pub(super) channel: Channel,
    /// Boxed, because other machines move exchanges about with their stages.
    pub(super) plan: Box<Plan>,
    op: Option<Op>,
    /// The steps of the round under way; empty before the first round.
    round: Range<usize>,
    is_posted: bool,
    /// The sends and receives under way, with the indices of their steps.
    pending: Vec<(Handle, usize)>,
    /// The step whose send or receive uses the plan's memory in place.
    lent: Option<usize>,
    /// Received messages, with the indices of their steps, until the round ends.
    landed: Vec<(usize, Vec<u8>)>,
    /// Vectors for later messages.
    spare: Vec<Vec<u8>>,
    failure: Option<Error>,
    /// Members from which no more messages come.
    gone: Vec<u32>,
}

impl Exchange {
    pub(crate) fn new(channel: Channel, plan: Plan, op: Option<Op>) -> Self {
        Exchange {
            channel,
            plan: Box::new(plan),
            op,
            round: 0..0,
            is_posted: false,
            pending: Vec::new(),
            lent: None,
            landed: Vec::new(),
            spare: Vec::new(),
            failure: None,
            gone: Vec::new(),
        }
    }

    /// This exchange, begun with an error that this process has had before. The exchange reports
    /// the error to the other members.
    pub(crate) fn after(self, failure: Option<Error>) -> Self {
        Exchange { failure, ..self }
    }

    /// The first error so far.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.clone()
    }

    /// Takes note that no more messages come from this member. Receives from it fail.
    pub(crate) fn give_up_on<N: Net>(&mut self, io: &mut MachineIo<'_, N>, rank: u32) {
        if self.gone.contains(&rank) {
            return;
        }
        self.gone.push(rank);
        self.failure.get_or_insert(Error::ProcessFailed { rank: None });
        for (handle, at) in &self.pending {
            if matches!(self.plan.steps[*at], PlanStep::Receive { from, .. } if from == rank) {
                io.cancel(*handle);
            }
        }
    }

    /// Begins the same plan once more, after a success, with other bytes of the same length. The
    /// caller gives the channel another number.
    pub(super) fn again(&mut self, data: Buffer, length: usize, op: Option<Op>) {
        self.plan.memory = self.plan.spread(data.into(), length);
        self.op = op;
        self.round = 0..0;
    }

    /// The bytes of the vectors that are kept for later messages.
    pub(super) fn spare(&self) -> usize {
        self.spare.iter().map(Vec::capacity).sum()
    }

    /// The steps from `at` to the next fence.
    fn round_from(&self, at: usize) -> Range<usize> {
        let rest = &self.plan.steps[at..];
        let length = rest.iter().position(|step| matches!(step, PlanStep::Fence));
        at..at + length.unwrap_or(rest.len())
    }

    /// Begins the round's sends and receives: short messages first, because others wait for them;
    /// then receives; then long messages, so that the members that swap long messages have posted
    /// their receives.
    fn post<N: Net>(&mut self, io: &mut MachineIo<'_, N>) {
        self.send(io, false);
        for at in self.round.clone() {
            if let PlanStep::Receive { from, into, placement } = &self.plan.steps[at]
                && !self.gone.contains(from)
            {
                let from = *from;
                let into = into.clone();
                let placement = *placement;
                let room = self.room(at, into, placement);
                let posted = io.receive_into(&self.channel, from, room);
                self.posted(at, posted.map(Some));
            }
        }
        self.send(io, true);
    }

    /// Sends either the long or the short messages of the round.
    fn send<N: Net>(&mut self, io: &mut MachineIo<'_, N>, long: bool) {
        for at in self.round.clone() {
            let PlanStep::Send { to, from } = &self.plan.steps[at] else { continue };
            if (from.len() > INJECT_MAX) != long {
                continue;
            }
            let to = *to;
            let sent = if self.failure.is_some() {
                io.send(&self.channel, to, &[], true)
            } else if long {
                let data = self.long(at, from.clone());
                io.send_buffer(&self.channel, to, data, false).map(Some)
            } else {
                io.send(&self.channel, to, &self.plan.memory[from.clone()], false)
            };
            self.posted(at, sent);
        }
    }

    /// The bytes of a long message: the memory itself, if the message fills it and no later send of
    /// the round needs it; otherwise a copy.
    fn long(&mut self, at: usize, from: Range<usize>) -> Buffer {
        let is_send = |step: &PlanStep| matches!(step, PlanStep::Send { .. });
        let is_last = !self.plan.steps[at + 1..self.round.end].iter().any(is_send);
        if is_last && from.len() == self.plan.memory.len() {
            self.lent = Some(at);
            return mem::take(&mut self.plan.memory).into();
        }
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(&self.plan.memory[from]);
        copy.into()
    }

    fn posted(&mut self, at: usize, handle: Result<Option<Handle>, Error>) {
        match handle {
            Ok(handle) => self.pending.extend(handle.map(|handle| (handle, at))),
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// The buffer of a receive: the memory itself, if the message fills it and the round has no
    /// other step; otherwise a vector.
    fn room(&mut self, at: usize, into: Range<usize>, placement: Placement) -> Buffer {
        let is_all = into == (0..self.plan.memory.len());
        if is_all && self.round == (at..at + 1) && placement == Placement::Replace {
            self.lent = Some(at);
            return mem::take(&mut self.plan.memory).into();
        }
        // An empty message needs no spare vector.
        let spare = if into.is_empty() { None } else { self.spare.pop() };
        let Some(mut room) = spare else { return Buffer::zeroed(into.len()) };
        room.resize(into.len(), 0);
        room.into()
    }

    /// Tests the sends and receives under way. Returns whether all have ended.
    fn poll<N: Net>(&mut self, io: &mut MachineIo<'_, N>) -> bool {
        let mut at = 0;
        while let Some((handle, step)) = self.pending.get(at).copied() {
            let Some(ended) = io.test(&self.channel, handle) else {
                at += 1;
                continue;
            };
            self.pending.swap_remove(at);
            match ended {
                Ok(ended) => self.ended(step, ended),
                Err(error) => {
                    self.tell_receiver(io, step, &error);
                    self.fail(error);
                }
            }
        }
        self.pending.is_empty()
    }

    /// Sends a marked message instead of one that the transport has failed to send, so that the
    /// member that waits for it learns of the failure.
    fn tell_receiver<N: Net>(&mut self, io: &mut MachineIo<'_, N>, at: usize, error: &Error) {
        if let PlanStep::Send { to, .. } = self.plan.steps[at]
            && matches!(error, Error::Net(_))
            && let Err(error) = io.send(&self.channel, to, &[], true)
        {
            self.fail(error);
        }
    }

    /// Takes back the vector of a send or receive that has succeeded.
    fn ended(&mut self, at: usize, ended: Ended) {
        let (is_receive, checked) = match &self.plan.steps[at] {
            PlanStep::Receive { from, into, .. } => (true, check(*from, into.len(), &ended)),
            _ => (false, Ok(())),
        };
        if let Err(error) = checked {
            return self.fail(error);
        }
        match ended.data {
            memory if self.lent == Some(at) => self.plan.memory = memory.into(),
            data if data.is_empty() => {}
            data if is_receive => self.landed.push((at, data.into_vec())),
            data => self.spare.push(data.into_vec()),
        }
    }

    /// Copies or combines the received messages into their places, in the order of the steps.
    fn land(&mut self) {
        let Plan { steps, memory, .. } = &mut *self.plan;
        for at in self.round.clone() {
            match &steps[at] {
                PlanStep::Receive { into, placement, .. } => {
                    let found = self.landed.iter().position(|(of, _)| *of == at);
                    let Some(found) = found else { continue };
                    let (_, mut data) = self.landed.swap_remove(found);
                    combine(self.op.as_ref(), &mut data, &mut memory[into.clone()], *placement);
                    self.spare.push(data);
                }
                PlanStep::Local { from, into, placement } => {
                    let places = memory.get_disjoint_mut([from.clone(), into.clone()]);
                    if let Ok([from, into]) = places {
                        combine(self.op.as_ref(), from, into, *placement);
                    }
                }
                PlanStep::Send { .. } | PlanStep::Fence => {}
            }
        }
    }

    fn end(&mut self) -> Result<Buffer, Error> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        let mut memory = mem::take(&mut self.plan.memory).cut(self.plan.result.clone());
        if self.plan.rotate > 0 {
            memory.rotate_right(self.plan.rotate);
        }
        Ok(memory.into())
    }
}

/// Checks that a received message has the expected length and is not marked.
fn check(rank: u32, due: usize, ended: &Ended) -> Result<(), Error> {
    let Ended { length, marked, .. } = *ended;
    if marked {
        return Err(Error::ProcessFailed { rank: None });
    }
    if length != due as u64 {
        return Err(Error::Mismatch { rank, length, due });
    }
    Ok(())
}

/// Copies or combines `data` into its place. The contents of `data` are undefined afterwards.
fn combine(op: Option<&Op>, data: &mut [u8], place: &mut [u8], placement: Placement) {
    match (placement, op) {
        (Placement::Left, Some(op)) => op.apply(data, place),
        (Placement::Right, Some(op)) => {
            op.apply(place, data);
            place.copy_from_slice(data);
        }
        (Placement::Replace, _) | (_, None) => place.copy_from_slice(data),
    }
}

impl<N: Net> Machine<N> for Exchange {
    type Output = Buffer;

    fn step(&mut self, io: &mut MachineIo<'_, N>) -> Option<Result<Buffer, Error>> {
        let is_begun = self.is_posted || self.round.end > 0;
        if !is_begun && !self.channel.has_turn() {
            return None;
        }
        while self.round.start < self.plan.steps.len() {
            if !mem::replace(&mut self.is_posted, true) {
                self.round = self.round_from(self.round.start);
                self.post(io);
            }
            if !self.poll(io) {
                return None;
            }
            self.is_posted = false;
            self.lent = None;
            if self.failure.is_none() {
                self.land();
            }
            self.round.start = self.round.end + 1;
        }
        Some(self.end())
    }
}
