//! Explores every order of steps of a few processes in a few allocations.
#![expect(clippy::mutable_key_type, reason = "the hash of a use is that of its name alone")]

use std::collections::{HashMap, HashSet, VecDeque};

use crate::alloc::shared_mask::{AllocationState, Priority, Progress, SharedMask};
use crate::alloc::*;
use crate::net::ProcessId;

/// The ranks and the allocations to explore. Each rank takes part in each allocation with a thread
/// of its own.
#[derive(Clone)]
pub(crate) struct ExploredScope {
    pub(crate) ranks: Vec<SharedMask>,
    /// Priority and roles of each allocation; `None` where the rank isn't a member of the parent.
    pub(crate) calls: Vec<(Priority, Vec<Option<Role>>)>,
    /// Whether the reduction of an allocation may fail, so that its members abandon it.
    pub(crate) may_fail: bool,
    /// A call, a rank, and another call: the rank begins the first call only when the other one has
    /// ended at all its ranks, as if it waited for a message.
    pub(crate) after: Vec<(usize, usize, usize)>,
    /// The ids that ranks use before they begin an allocation.
    pub(crate) used: Vec<Use>,
    /// Whether ranks settle by their allocations the ids that they free, which they may do at any
    /// time. If not, they ask each other, and free their ids before they begin.
    pub(crate) settles: bool,
    /// Which rank has sent to which other one in the ids that ranks use.
    pub(crate) sent: Vec<(usize, usize)>,
}

/// A rank, the prefix of an id that it uses, and whether it frees the id before it begins an
/// allocation.
pub(crate) type Use = (usize, u32, bool);

/// An id that a rank has freed.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Rests {
    prefix: u32,
    freed_in: u64,
    /// For each rank: the latest sweep in which it has answered that it uses the id; `None` once it
    /// does not use it.
    used_in: Vec<Option<u64>>,
}

/// The ids that a rank uses, and its resting ids.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Freeing {
    uses: Vec<u32>,
    to_free: Vec<u32>,
    sweep: u64,
    /// The latest sweep in which each rank was asked.
    asked: Vec<u64>,
    rests: Vec<Rests>,
}

impl Freeing {
    fn new(scope: &ExploredScope, rank: usize) -> Self {
        let of_rank = scope.used.iter().filter(|(of, ..)| *of == rank);
        let uses = of_rank.clone().map(|(_, prefix, _)| *prefix).collect();
        let to_free = of_rank.filter(|(.., frees)| *frees).map(|(_, prefix, _)| *prefix).collect();
        let asked = vec![0; scope.ranks.len()];
        Freeing { uses, to_free, sweep: 0, asked, rests: Vec::new() }
    }

    /// Does the same as the sweeps of `ft/rest.rs`.
    fn settle(&mut self, shared: &mut SharedMask) {
        let layout = shared.free.layout();
        self.rests.retain(|rests| {
            let is_done = rests.used_in.iter().all(Option::is_none);
            if is_done {
                shared.resting.end(rests.prefix);
                shared.free.free(layout.id(rests.prefix).unwrap()).unwrap();
            }
            !is_done
        });
        let known_in = |rests: &Rests| {
            rests.used_in.iter().flatten().min().copied().unwrap_or(0).max(rests.freed_in)
        };
        let settled = self.rests.iter().map(known_in).min().unwrap_or(self.sweep);
        shared.resting.settle(settled.min(self.sweep));
    }
}

/// The stage of one rank in one allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CallStage {
    Idle,
    Ready(AllocationState),
    Offered(AllocationState, Vec<u32>),
    Ended(Result<Option<ContextId>, Error>),
    Abandoned,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct ExploredCall {
    stages: Vec<Option<CallStage>>,
    /// The result of the round, until all ranks have taken it in.
    reduced: Option<Vec<u32>>,
    failed: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct ExploredState {
    ranks: Vec<SharedMask>,
    calls: Vec<ExploredCall>,
    freeing: Vec<Freeing>,
    /// The closings under way: of which id, from which rank to which.
    closings: Vec<(u32, usize, usize)>,
    /// For each rank, the ids in which closings have arrived.
    closed: Vec<Vec<u32>>,
    /// The ranks and ids that were given out again while a message could arrive.
    early: Vec<(usize, u32)>,
}

impl ExploredScope {
    /// The ranks that use an id.
    fn users(&self, prefix: u32) -> Arc<Group> {
        let users = self.used.iter().filter(|(_, used, _)| *used == prefix);
        Arc::new(Group::new(users.map(|(rank, ..)| ProcessId(u32::try_from(*rank).unwrap()))))
    }

    /// The ranks of an allocation.
    fn over(&self, call: usize) -> Arc<Group> {
        let ranks = (0..).zip(&self.calls[call].1).filter(|(_, role)| role.is_some());
        Arc::new(Group::new(ranks.map(|(rank, _)| ProcessId(rank))))
    }

    fn must_wait(&self, state: &ExploredState, call: usize, rank: usize) -> bool {
        let has_ended = |call: usize| {
            let mut stages = state.calls[call].stages.iter().flatten();
            stages.all(|stage| matches!(stage, CallStage::Ended(_) | CallStage::Abandoned))
        };
        self.after.iter().any(|(of, at, other)| (*of, *at) == (call, rank) && !has_ended(*other))
    }
}

impl ExploredState {
    fn new(scope: &ExploredScope) -> Self {
        let call = |(_, roles): &(Priority, Vec<Option<Role>>)| ExploredCall {
            stages: roles.iter().map(|role| role.map(|_| CallStage::Idle)).collect(),
            reduced: None,
            failed: false,
        };
        let freeing = (0..scope.ranks.len()).map(|rank| Freeing::new(scope, rank)).collect();
        let ranks = scope.ranks.clone();
        let calls = scope.calls.iter().map(call).collect();
        let closed = vec![Vec::new(); scope.ranks.len()];
        let closings = Vec::new();
        let early = Vec::new();
        ExploredState { ranks, calls, freeing, closings, closed, early }
    }

    /// The state after all ranks have begun all allocations.
    fn begun(scope: &ExploredScope) -> Self {
        let mut state = Self::new(scope);
        for call in 0..scope.calls.len() {
            for rank in 0..scope.ranks.len() {
                state = state.step(scope, call, rank).unwrap_or(state);
            }
        }
        state
    }

    /// A rank frees an id that it uses, and closes it.
    fn close(&mut self, scope: &ExploredScope, rank: usize) {
        let ExploredState { ranks, freeing, closings, closed, .. } = self;
        let own = &mut freeing[rank];
        let shared = &mut ranks[rank];
        let prefix = own.to_free.remove(0);
        let group = scope.users(prefix);
        own.uses.retain(|used| *used != prefix);
        let used_in = (0..scope.ranks.len()).map(|of| (of != rank).then_some(0)).collect();
        own.rests.push(Rests { prefix, freed_in: own.sweep, used_in });
        let sent = scope.sent.iter().filter(|(from, to)| {
            let is_user =
                |rank: usize| group.rank(ProcessId(u32::try_from(rank).unwrap())).is_some();
            *from == rank && is_user(*to)
        });
        let before = closings.len();
        closings.extend(sent.map(|(from, to)| (prefix, *from, *to)));
        closings.sort_unstable();
        let received = closed[rank].iter().filter(|closed| **closed == prefix).count();
        let numbers = [closings.len() - before, received].map(|number| number.try_into().unwrap());
        let is_first = group.process(0) == Some(ProcessId(u32::try_from(rank).unwrap()));
        let senders = vec![Senders { creation: 0, group: Arc::clone(&group) }];
        let used = Some(IdUse::new(prefix.into(), &group));
        shared.resting.add(FreedId { prefix, senders, used });
        shared.resting.take();
        let weights = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9]
            .map(|weight: u64| weight.wrapping_mul(u64::from(prefix) + 1));
        let close = || ClosedUse::new(prefix.into(), &group, weights, is_first, numbers);
        assert!(shared.resting.close(prefix, close));
    }

    /// A closing arrives.
    fn arrive(&mut self, at: usize) {
        let (prefix, _, to) = self.closings.remove(at);
        self.closed[to].push(prefix);
        let received = self.closed[to].iter().filter(|closed| **closed == prefix).count();
        self.ranks[to].resting.receive(prefix.into(), received.try_into().unwrap());
    }

    /// Frees the ids of a rank that are settled.
    fn free_settled(&mut self, rank: usize) {
        let shared = &mut self.ranks[rank];
        for at in (0..self.freeing[rank].rests.len()).rev() {
            let prefix = self.freeing[rank].rests[at].prefix;
            if shared.resting.has_settled(prefix) {
                self.freeing[rank].rests.remove(at);
                shared.resting.end(prefix);
                shared.free.free(shared.free.layout().id(prefix).unwrap()).unwrap();
                let may_arrive =
                    self.closings.iter().any(|(of, _, to)| (*of, *to) == (prefix, rank))
                        || self.freeing.iter().any(|other| other.uses.contains(&prefix));
                self.early.extend(may_arrive.then_some((rank, prefix)));
            }
        }
    }

    /// The states after a rank has freed an id, begun a sweep, or got the answer of another rank.
    fn free(&self, scope: &ExploredScope, rank: usize) -> Vec<ExploredState> {
        let mut all = Vec::new();
        if scope.settles {
            return self.settle(scope, rank);
        }
        let mut push = |change: &dyn Fn(&mut Freeing, &mut SharedMask)| {
            let mut next = self.clone();
            change(&mut next.freeing[rank], &mut next.ranks[rank]);
            all.push(next);
        };
        let own = &self.freeing[rank];
        if !own.to_free.is_empty() {
            push(&|own, shared| {
                let prefix = own.to_free.remove(0);
                own.uses.retain(|used| *used != prefix);
                let used_in = (0..self.ranks.len()).map(|of| (of != rank).then_some(0)).collect();
                own.rests.push(Rests { prefix, freed_in: own.sweep, used_in });
                shared.resting.add(FreedId { prefix, senders: Vec::new(), used: None });
                shared.resting.take();
            });
        }
        if self.ranks[rank].clone().resting.begin_sweep().is_some() {
            push(&|own, shared| {
                own.sweep = shared.resting.begin_sweep().unwrap();
                own.settle(shared);
            });
        }
        for of in (0..self.ranks.len()).filter(|of| *of != rank && own.asked[*of] < own.sweep) {
            push(&|own, shared| {
                own.asked[of] = own.sweep;
                for Rests { prefix, used_in, .. } in &mut own.rests {
                    let is_used = self.freeing[of].uses.contains(prefix);
                    used_in[of] = is_used.then_some(own.sweep);
                }
                own.settle(shared);
            });
        }
        all
    }

    /// The states after a rank has freed an id that the ranks settle by their allocations, a
    /// closing to it has arrived, or it has begun a sweep or got the answer of another rank.
    fn settle(&self, scope: &ExploredScope, rank: usize) -> Vec<ExploredState> {
        let mut all = Vec::new();
        let own = &self.freeing[rank];
        if !own.to_free.is_empty() {
            let mut next = self.clone();
            next.close(scope, rank);
            all.push(next);
        }
        for at in (0..self.closings.len()).filter(|at| self.closings[*at].2 == rank) {
            let mut next = self.clone();
            next.arrive(at);
            all.push(next);
        }
        let mut next = self.clone();
        if let Some(sweep) = next.ranks[rank].resting.begin_sweep() {
            next.freeing[rank].sweep = sweep;
            next.freeing[rank].settle(&mut next.ranks[rank]);
            all.push(next);
        }
        for of in (0..self.ranks.len()).filter(|of| *of != rank && own.asked[*of] < own.sweep) {
            let mut next = self.clone();
            // An answer arrives after all closings that were sent before it.
            while let Some(at) =
                next.closings.iter().position(|(_, from, to)| (*from, *to) == (of, rank))
            {
                next.arrive(at);
            }
            let ExploredState { ranks, freeing, .. } = &mut next;
            freeing[rank].asked[of] = freeing[rank].sweep;
            let others = freeing[of].uses.clone();
            let sweep = freeing[rank].sweep;
            for Rests { prefix, used_in, .. } in &mut freeing[rank].rests {
                if ranks[rank].resting.is_stray(*prefix) {
                    let is_used = others.contains(prefix);
                    used_in[of] = is_used.then_some(sweep);
                    if !is_used {
                        ranks[of].resting.stray(*prefix);
                    }
                }
            }
            freeing[rank].settle(&mut ranks[rank]);
            all.push(next);
        }
        all
    }

    /// The state after the next step of a rank in a call; `None` if the rank has to wait.
    fn step(&self, scope: &ExploredScope, call: usize, rank: usize) -> Option<ExploredState> {
        let mut next = self.clone();
        let ExploredState { ranks, calls, freeing, .. } = &mut next;
        let shared = &mut ranks[rank];
        let of_call = &mut calls[call];
        let stage = of_call.stages[rank].as_mut()?;
        match stage {
            CallStage::Idle if scope.must_wait(self, call, rank) => return None,
            CallStage::Idle if !(scope.settles || freeing[rank].to_free.is_empty()) => return None,
            CallStage::Idle => {
                let (priority, roles) = &scope.calls[call];
                let mut state = shared.begin(*priority, roles[rank]?);
                state.over = scope.settles.then(|| scope.over(call));
                *stage = CallStage::Ready(state);
            }
            CallStage::Ready(state) if of_call.failed => {
                shared.abandon(state);
                *stage = CallStage::Abandoned;
            }
            // Other ranks have not taken in the round before.
            CallStage::Ready(_) if of_call.reduced.is_some() => return None,
            CallStage::Ready(state) => {
                let offer = shared.offer(state);
                *stage = CallStage::Offered(state.clone(), offer);
            }
            CallStage::Offered(state, _) if of_call.failed => {
                shared.abandon(state);
                *stage = CallStage::Abandoned;
            }
            CallStage::Offered(state, _) => {
                let all = of_call.reduced.clone()?;
                let mut state = state.clone();
                *stage = match shared.conclude(&mut state, &all) {
                    Ok(Progress::Again) => CallStage::Ready(state),
                    Ok(Progress::Done(id)) => CallStage::Ended(Ok(id)),
                    Err(error) => CallStage::Ended(Err(error)),
                };
            }
            CallStage::Ended(_) | CallStage::Abandoned => return None,
        }
        of_call.reduce();
        if scope.settles {
            next.free_settled(rank);
        }
        Some(next)
    }

    fn fail(&self, call: usize) -> Option<ExploredState> {
        let is_over = |stage: &Option<CallStage>| matches!(stage, Some(CallStage::Ended(_)));
        if self.calls[call].failed || self.calls[call].stages.iter().any(is_over) {
            return None;
        }
        let mut next = self.clone();
        next.calls[call].failed = true;
        Some(next)
    }

    /// Checks that all ranks have ended, all with the same result, and that no id is held.
    fn check_end(&self) -> Result<(), String> {
        if let [(rank, prefix), ..] = self.early[..] {
            return Err(format!("rank {rank} has given out {prefix} while messages may arrive"));
        }
        let mut taken = vec![Vec::new(); self.ranks.len()];
        for call in &self.calls {
            let mut outcome = None;
            for (rank, stage) in call.stages.iter().enumerate() {
                let of_rank = match stage {
                    None | Some(CallStage::Ended(Ok(None))) => continue,
                    Some(CallStage::Abandoned) => Err(None),
                    Some(CallStage::Ended(Ok(Some(id)))) => {
                        taken[rank].push(*id);
                        Ok(*id)
                    }
                    Some(CallStage::Ended(Err(error))) => Err(Some(error.clone())),
                    Some(stage) => return Err(format!("rank {rank} is stuck at {stage:?}")),
                };
                if outcome.get_or_insert_with(|| of_rank.clone()) != &of_rank {
                    return Err(format!("not uniform: {outcome:?} and {of_rank:?}"));
                }
            }
        }
        for (rank, mut ids) in taken.into_iter().enumerate() {
            let shared = &self.ranks[rank];
            if !shared.is_at_rest() {
                return Err(format!("rank {rank} still holds something"));
            }
            let count = ids.len();
            ids.sort_unstable();
            ids.dedup();
            if ids.len() < count {
                return Err(format!("rank {rank} has one id twice"));
            }
        }
        Ok(())
    }

    /// The number of ids that each rank has used up.
    fn burnt(&self, scope: &ExploredScope) -> Vec<u32> {
        let free = |shared: &SharedMask| shared.free.free_count() + shared.resting.count();
        let ranks = scope.ranks.iter().zip(&self.ranks).zip(0..);
        let freed =
            |rank: usize| scope.used.iter().filter(move |(of, _, frees)| *of == rank && *frees);
        ranks
            .map(|((then, now), rank)| {
                free(then) + u32::try_from(freed(rank).count()).unwrap() - free(now)
            })
            .collect()
    }
}

impl ExploredCall {
    /// Sets the result of the round once all ranks have offered, and clears it once all have taken
    /// it in.
    fn reduce(&mut self) {
        let members = || self.stages.iter().flatten();
        if self.reduced.is_some() {
            if !members().any(|stage| matches!(stage, CallStage::Offered(..))) {
                self.reduced = None;
            }
            return;
        }
        let offers: Option<Vec<_>> = members()
            .map(|stage| if let CallStage::Offered(_, offer) = stage { Some(offer) } else { None })
            .collect();
        self.reduced = offers.and_then(|offers| {
            let (first, rest) = offers.split_first()?;
            let mut all = (*first).clone();
            rest.iter().for_each(|offer| combine(offer, &mut all));
            Some(all)
        });
    }
}

/// Where an exploration begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// No allocation has begun. They begin in every order.
    Idle,
    /// All allocations have begun, in the order of their numbers. To begin gives an allocation its
    /// ticket, and changes nothing else. Tickets of allocations with different priorities are
    /// compared for equality alone. So if all priorities differ, and no rank waits or frees ids
    /// before it begins, the other orders lead to the same states with other tickets.
    Begun,
}

/// The result of an exploration.
#[derive(Debug)]
pub(crate) struct Explored {
    pub(crate) states: usize,
    /// The ids that each rank has used up, in each end.
    pub(crate) burnt: HashSet<Vec<u32>>,
}

/// Tries every order. Checks that an end can be reached from every state, and that every end is
/// right.
pub(crate) fn explore(
    scope: &ExploredScope,
    start: Start,
    check: impl Fn(&[u32]) -> bool,
) -> Result<Explored, String> {
    let mut burnt = HashSet::new();
    let mut numbers = HashMap::new();
    let first = match start {
        Start::Idle => ExploredState::new(scope),
        Start::Begun => ExploredState::begun(scope),
    };
    let mut states = VecDeque::from([first]);
    numbers.insert(states[0].clone(), 0usize);
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    let mut ends = Vec::new();
    let mut at = 0;
    while let Some(state) = states.pop_front() {
        let mut nexts = Vec::new();
        for call in 0..scope.calls.len() {
            nexts.extend((0..scope.ranks.len()).filter_map(|rank| state.step(scope, call, rank)));
            if scope.may_fail {
                nexts.extend(state.fail(call));
            }
        }
        nexts.extend((0..scope.ranks.len()).flat_map(|rank| state.free(scope, rank)));
        if nexts.is_empty() {
            state.check_end()?;
            let of_end = state.burnt(scope);
            if !check(&of_end) {
                return Err(format!("ids used up: {of_end:?}"));
            }
            burnt.insert(of_end);
            ends.push(at);
        }
        for next in nexts {
            let number = *numbers.entry(next).or_insert_with_key(|next| {
                states.push_back(next.clone());
                before.push(Vec::new());
                before.len() - 1
            });
            before[number].push(at);
        }
        at += 1;
    }
    let mut leads_to_end = vec![false; at];
    let mut open = ends;
    while let Some(number) = open.pop() {
        if !std::mem::replace(&mut leads_to_end[number], true) {
            open.extend(&before[number]);
        }
    }
    if leads_to_end.contains(&false) {
        return Err("there are states from which no end can be reached".into());
    }
    Ok(Explored { states: at, burnt })
}

/// The most rounds that an allocation takes if, in every turn, each thread of each rank makes one
/// step, in any order. More than `max` is an error.
pub(crate) fn rounds_when_fair(scope: &ExploredScope, max: u32) -> Result<u32, String> {
    let movers: Vec<(usize, usize)> = (0..scope.calls.len())
        .flat_map(|call| (0..scope.ranks.len()).map(move |rank| (call, rank)))
        .collect();
    let orders = orders(&movers);
    let mut states: HashSet<ExploredState> = HashSet::from([ExploredState::new(scope)]);
    // A round has two steps: the offer and its conclusion.
    for turn in 0..=2 * max + 1 {
        let mut next = HashSet::new();
        for order in &orders {
            for state in &states {
                let mut state = state.clone();
                for (call, rank) in order {
                    state = state.step(scope, *call, *rank).unwrap_or(state);
                }
                next.insert(state);
            }
        }
        next.retain(|state| state.check_end().is_err());
        if next.is_empty() {
            return Ok(turn.div_ceil(2));
        }
        states = next;
    }
    Err(format!("{} states are still without an end after {max} rounds", states.len()))
}

fn orders(movers: &[(usize, usize)]) -> Vec<Vec<(usize, usize)>> {
    if movers.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for at in 0..movers.len() {
        let mut rest = movers.to_vec();
        let first = rest.swap_remove(at);
        all.extend(orders(&rest).into_iter().map(|mut order| {
            order.push(first);
            order
        }));
    }
    all
}
