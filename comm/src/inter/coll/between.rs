//! What one process does in a collective operation of both groups: one stage after the other.
//!
//! A stage is an operation of the local group, or messages to and from the remote one. Each begins with what
//! the one before gave. Where the groups have *leaders*, they are those of rank 0.

use std::collections::VecDeque;
use std::iter;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use crate::coll::algorithms::{self, blocks::end};
use crate::coll::{Algorithms, Call, Exchange, Placement, Plan};
use crate::driver::{Channel, Machine, Port};
use crate::error::Error;
use crate::net::Net;
use crate::remote::RemoteRanks;

use super::super::InterComm;

/// All stages are gone through whatever fails: a stage after a failure passes that on, so that nobody waits for
/// this process in any of them.
pub(super) struct Between {
    local: Channel,
    both: Channel,
    /// The remote group's ranks among both.
    remote: Range<u32>,
    algorithms: Algorithms,
    stages: VecDeque<Stage>,
    under_way: Option<Exchange>,
    data: Vec<u8>,
    failure: Option<Error>,
}

struct Stage {
    kind: Kind,
    /// Bytes that it begins with.
    length: usize,
}

enum Kind {
    /// Without its data.
    Local(Call),
    /// Without its memory.
    Across(Plan),
}

impl Between {
    /// An operation of all of both groups, without a number.
    pub(super) fn new<N: Net>(inter: &InterComm<N>, data: Vec<u8>) -> Self {
        let both = inter.outside();
        let group = Arc::clone(&inter.comm.inner.info.group);
        let remote = both.remote.clone().map(|remote| RemoteRanks { ranks: 0..0, ..remote });
        let local = Channel { group, own: inter.rank(), remote, ..both.clone() };
        Between {
            local,
            both,
            remote: inter.remote_ranks(),
            algorithms: inter.comm.driver().settings.algorithms,
            stages: VecDeque::new(),
            under_way: None,
            data,
            failure: None,
        }
    }

    /// The next operation: what this process gives can be.
    pub(super) fn numbered<N: Net>(self, inter: &InterComm<N>) -> Self {
        let both = inter.comm.numbered(self.both);
        let local = Channel { tag: both.tag, turn: both.turn.clone(), ..self.local };
        Between { both, local, ..self }
    }

    fn stage(mut self, length: usize, kind: Kind) -> Self {
        self.stages.push_back(Stage { kind, length });
        self
    }

    /// This process gets nothing.
    pub(super) fn nothing(self) -> Self {
        self.stage(0, Kind::Across(Plan::default()))
    }

    /// An operation of the local group, on so many bytes of this process.
    pub(super) fn local(self, length: usize, call: Call) -> Self {
        self.stage(length, Kind::Local(call))
    }

    fn is_leader(&self) -> bool {
        self.local.own == 0
    }

    /// Gives all that there is to a remote process, and keeps it.
    pub(super) fn give(self, to: u32, length: usize) -> Self {
        let mut plan = Plan { result: 0..length, ..Plan::default() };
        plan.send(self.remote.start + to, 0..length);
        self.stage(length, Kind::Across(plan))
    }

    /// The same, at the leader alone.
    pub(super) fn leader_gives(self, to: u32, length: usize) -> Self {
        if self.is_leader() { self.give(to, length) } else { self }
    }

    /// Takes so many bytes of a remote process.
    pub(super) fn take(self, from: u32, length: usize) -> Self {
        let mut plan = Plan { result: 0..length, ..Plan::default() };
        plan.receive(self.remote.start + from, 0..length, Placement::Replace);
        self.stage(length, Kind::Across(plan))
    }

    /// The same, at the leader alone.
    pub(super) fn leader_takes(self, from: u32, length: usize) -> Self {
        if self.is_leader() { self.take(from, length) } else { self }
    }

    /// The leaders swap what they have.
    pub(super) fn leaders_swap(self, given: usize, taken: usize) -> Self {
        if !self.is_leader() {
            return self;
        }
        let other = self.remote.start;
        let mut plan = Plan { result: 0..taken, ..Plan::default() };
        plan.receive(other, 0..taken, Placement::Replace);
        plan.send(other, 0..given);
        self.stage(given.max(taken), Kind::Across(plan))
    }

    /// Gives each remote process its place of the data.
    pub(super) fn give_each(self, places: &[Range<usize>]) -> Self {
        let length = self.data.len();
        let mut plan = Plan::default();
        self.remote.clone().zip(places).for_each(|(to, place)| plan.send(to, place.clone()));
        self.stage(length, Kind::Across(plan))
    }

    /// Takes of each remote process what belongs to its place.
    pub(super) fn take_each(self, places: &[Range<usize>]) -> Self {
        let length = end(places);
        let mut plan = Plan { result: 0..length, ..Plan::default() };
        receive_each(&mut plan, self.remote.clone(), places);
        self.stage(length, Kind::Across(plan))
    }

    /// Gives the remote leader the data. The leader takes of each remote process what belongs to its place.
    pub(super) fn leaders_take_each(self, places: &[Range<usize>]) -> Self {
        let given = self.data.len();
        let taken = if self.is_leader() { end(places) } else { 0 };
        let mut plan = Plan { result: 0..taken, ..Plan::default() };
        if self.is_leader() {
            receive_each(&mut plan, self.remote.clone(), places);
        }
        plan.send(self.remote.start, 0..given);
        self.stage(given.max(taken), Kind::Across(plan))
    }

    /// Each remote process's block from here to there: pairs, as many rounds as the larger group has members.
    pub(super) fn pairs(self, from: &[Range<usize>], into: &[Range<usize>], at_once: u32) -> Self {
        let remote = self.remote.end - self.remote.start;
        let (own, rounds) = (self.local.own, remote.max(self.local.size()));
        let given = self.data.len();
        let mut plan = Plan { result: given..end(into), ..Plan::default() };
        for round in 0..rounds {
            let (source, to) = ((own + rounds - round) % rounds, (own + round) % rounds);
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
        self.stage(length, Kind::Across(plan))
    }

    fn begin(&mut self, Stage { kind, length }: Stage) -> Result<Exchange, Error> {
        let mut data = mem::take(&mut self.data);
        data.resize(length, 0);
        let (channel, plan, op) = match kind {
            Kind::Local(call) => {
                let op = call.op.clone();
                let plan =
                    algorithms::plan_of(&self.local, Call { data, ..call }, &self.algorithms)?;
                (&self.local, plan, op)
            }
            Kind::Across(plan) => (&self.both, Plan { memory: data, ..plan }, None),
        };
        Ok(Exchange::new(channel.clone(), plan, op).after(self.failure.clone()))
    }
}

fn receive_each(plan: &mut Plan, from: Range<u32>, places: &[Range<usize>]) {
    iter::zip(from, places)
        .for_each(|(from, place)| plan.receive(from, place.clone(), Placement::Replace));
}

impl<N: Net> Machine<N> for Between {
    type Output = Vec<u8>;

    fn step(&mut self, port: &mut Port<'_, N>) -> Option<Result<Vec<u8>, Error>> {
        loop {
            if let Some(exchange) = &mut self.under_way {
                match exchange.step(port)? {
                    Ok(data) => self.data = data,
                    Err(error) => self.failure = Some(error),
                }
                self.under_way = None;
            }
            let Some(stage) = self.stages.pop_front() else {
                let data = mem::take(&mut self.data);
                return Some(self.failure.take().map_or(Ok(data), Err));
            };
            match self.begin(stage) {
                Ok(exchange) => self.under_way = Some(exchange),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
