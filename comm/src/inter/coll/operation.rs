//! The state machine of one process in a collective operation of an intercommunicator: a list of
//! phases.
//!
//! A phase is a collective operation of the local group, or messages to and from processes of the
//! remote group. Each phase begins with the result of the phase before it. The *leader* of a group
//! is its member of rank 0.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::{iter, mem};

use tagmatch::Buffer;

use super::super::InterComm;
use crate::driver::{Channel, Machine, MachineIo};
use crate::error::Error;
use crate::net::Net;
use crate::plans::algorithms::{self, blocks::end};
use crate::plans::{Call, Exchange, Placement, Plan, WorkMemory};
use crate::remote::RemoteRanks;
use crate::settings::Algorithms;

/// A collective operation of an intercommunicator.
///
/// After a failure the process still goes through all phases, and sends marked messages in them. So
/// no other process waits for this one, and each learns of the failure.
pub(super) struct InterOperation {
    local: Channel,
    both: Channel,
    /// The ranks of the remote group in the channel of both groups.
    remote: Range<u32>,
    algorithms: Algorithms,
    /// The phases to come, each with the number of bytes that it begins with.
    phases: VecDeque<(InterPhase, usize)>,
    under_way: Option<Exchange>,
    data: WorkMemory,
    failure: Option<Error>,
}

enum InterPhase {
    /// A collective operation of the local group. Its data is the result of the phase before.
    Local(Call),
    /// Messages to and from remote processes. The plan's memory is the result of the phase before.
    Remote(Plan),
}

impl InterOperation {
    /// An operation of both groups without phases, whose channels have no number yet.
    pub(super) fn new<N: Net>(inter: &InterComm<N>, data: WorkMemory) -> Self {
        let both = inter.outside();
        let group = Arc::clone(&inter.comm.inner.info.group);
        let remote = both.remote.clone().map(|remote| RemoteRanks { ranks: 0..0, ..remote });
        let local = Channel { group, own: inter.rank(), remote, ..both.clone() };
        InterOperation {
            local,
            both,
            remote: inter.remote_ranks(),
            algorithms: inter.comm.driver().settings.algorithms,
            phases: VecDeque::new(),
            under_way: None,
            data,
            failure: None,
        }
    }

    /// This operation with the next number. Called when the arguments have been checked.
    pub(super) fn numbered<N: Net>(self, inter: &InterComm<N>) -> Self {
        let both = inter.comm.numbered(self.both);
        let local = Channel { tag: both.tag, turn: both.turn.clone(), ..self.local };
        InterOperation { both, local, ..self }
    }

    fn phase(mut self, length: usize, phase: InterPhase) -> Self {
        self.phases.push_back((phase, length));
        self
    }

    /// Discards the bytes: this process gets no result.
    pub(super) fn nothing(self) -> Self {
        self.phase(0, InterPhase::Remote(Plan::default()))
    }

    /// A collective operation of the local group, on `length` bytes of this process.
    pub(super) fn local(self, length: usize, call: Call) -> Self {
        self.phase(length, InterPhase::Local(call))
    }

    fn is_leader(&self) -> bool {
        self.local.own == 0
    }

    /// Sends all `length` bytes to the remote process of rank `to`, and keeps them as the result.
    pub(super) fn give(self, to: u32, length: usize) -> Self {
        let mut plan = Plan { result: 0..length, ..Plan::default() };
        plan.send(self.remote.start + to, 0..length);
        self.phase(length, InterPhase::Remote(plan))
    }

    /// As [`give`](Self::give), at the leader. The other members have no phase.
    pub(super) fn leader_gives(self, to: u32, length: usize) -> Self {
        if self.is_leader() { self.give(to, length) } else { self }
    }

    /// Receives `length` bytes from the remote process of rank `from`.
    pub(super) fn take(self, from: u32, length: usize) -> Self {
        let mut plan = Plan { result: 0..length, ..Plan::default() };
        plan.receive(self.remote.start + from, 0..length, Placement::Replace);
        self.phase(length, InterPhase::Remote(plan))
    }

    /// As [`take`](Self::take), at the leader. The other members have no phase.
    pub(super) fn leader_takes(self, from: u32, length: usize) -> Self {
        if self.is_leader() { self.take(from, length) } else { self }
    }

    /// The leaders exchange their bytes: this one sends `given` bytes and receives `taken` bytes.
    pub(super) fn leaders_swap(self, given: usize, taken: usize) -> Self {
        if !self.is_leader() {
            return self;
        }
        let other = self.remote.start;
        let mut plan = Plan { result: 0..taken, ..Plan::default() };
        plan.receive(other, 0..taken, Placement::Replace);
        plan.send(other, 0..given);
        self.phase(given.max(taken), InterPhase::Remote(plan))
    }

    /// Sends each remote process the bytes in its place.
    pub(super) fn give_each(self, places: &[Range<usize>]) -> Self {
        let length = self.data.len();
        let mut plan = Plan::default();
        self.remote.clone().zip(places).for_each(|(to, place)| plan.send(to, place.clone()));
        self.phase(length, InterPhase::Remote(plan))
    }

    /// Receives from each remote process the bytes of its place.
    pub(super) fn take_each(self, places: &[Range<usize>]) -> Self {
        let length = end(places);
        let mut plan = Plan { result: 0..length, ..Plan::default() };
        receive_each(&mut plan, self.remote.clone(), places);
        self.phase(length, InterPhase::Remote(plan))
    }

    /// Each process sends its bytes to the remote leader. Each leader receives from each remote
    /// process the bytes of its place.
    pub(super) fn leaders_take_each(self, places: &[Range<usize>]) -> Self {
        let given = self.data.len();
        let taken = if self.is_leader() { end(places) } else { 0 };
        let mut plan = Plan { result: 0..taken, ..Plan::default() };
        if self.is_leader() {
            receive_each(&mut plan, self.remote.clone(), places);
        }
        plan.send(self.remote.start, 0..given);
        self.phase(given.max(taken), InterPhase::Remote(plan))
    }

    /// Sends each remote process its block, and receives one from each, in pairs. There are as many
    /// rounds as the larger group has members.
    pub(super) fn pairs(self, from: &[Range<usize>], into: &[Range<usize>]) -> Self {
        let remote = self.remote.end - self.remote.start;
        let own = self.local.own;
        let rounds = remote.max(self.local.size());
        let given = self.data.len();
        let at_once = self.algorithms.pairs_at_once(given / remote as usize);
        let mut plan = Plan { result: given..end(into), ..Plan::default() };
        for round in 0..rounds {
            let source = (own + rounds - round) % rounds;
            let to = (own + round) % rounds;
            if let Some(place) = into.get(source as usize) {
                plan.receive(self.remote.start + source, place.clone(), Placement::Replace);
            }
            if let Some(place) = from.get(to as usize) {
                plan.send(self.remote.start + to, place.clone());
            }
            if (round + 1).is_multiple_of(at_once) {
                plan.fence();
            }
        }
        let length = plan.result.end;
        self.phase(length, InterPhase::Remote(plan))
    }

    fn begin(&mut self, phase: InterPhase, length: usize) -> Result<Exchange, Error> {
        let mut data = mem::take(&mut self.data);
        data.resize(length);
        let (channel, plan, op) = match phase {
            InterPhase::Local(call) => {
                let op = call.op.clone();
                let plan = algorithms::plan_of(
                    &self.local,
                    Call { data: data.into(), ..call },
                    &self.algorithms,
                )?;
                (&self.local, plan, op)
            }
            InterPhase::Remote(plan) => (&self.both, Plan { memory: data, ..plan }, None),
        };
        Ok(Exchange::new(channel.clone(), plan, op).after(self.failure.clone()))
    }
}

fn receive_each(plan: &mut Plan, from: Range<u32>, places: &[Range<usize>]) {
    iter::zip(from, places)
        .for_each(|(from, place)| plan.receive(from, place.clone(), Placement::Replace));
}

impl<N: Net> Machine<N> for InterOperation {
    type Output = Buffer;

    fn step(&mut self, io: &mut MachineIo<'_, N>) -> Option<Result<Buffer, Error>> {
        loop {
            if let Some(exchange) = &mut self.under_way {
                match exchange.step(io)? {
                    Ok(data) => self.data = data.into(),
                    Err(error) => self.failure = Some(error),
                }
                self.under_way = None;
            }
            let Some((phase, length)) = self.phases.pop_front() else {
                let data = mem::take(&mut self.data);
                return Some(self.failure.take().map_or_else(|| Ok(data.into()), Err));
            };
            match self.begin(phase, length) {
                Ok(exchange) => self.under_way = Some(exchange),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
