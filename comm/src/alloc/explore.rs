//! Every order in which a few processes can go through a few allocations.

use std::collections::{HashMap, HashSet, VecDeque};

use super::claims::{Attempt, Claims, Key, Round};
use super::*;

/// Ranks, and the allocations that all of them take part in, each from a thread of its own.
#[derive(Clone)]
pub(crate) struct Scope {
    pub(crate) ranks: Vec<Claims>,
    /// Key and roles of each allocation; `None` where the rank isn't a member of the parent.
    pub(crate) calls: Vec<(Key, Vec<Option<Role>>)>,
    /// Allocations of which one reduction may fail: their members abandon them.
    pub(crate) may_fail: bool,
}

/// Where one rank is in one allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Idle,
    Ready(Attempt),
    Offered(Attempt, Vec<u32>),
    Ended(Result<Option<ContextId>, Error>),
    Abandoned,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Call {
    stages: Vec<Option<Stage>>,
    /// The result of the round that some ranks have not taken in yet.
    reduced: Option<Vec<u32>>,
    failed: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    ranks: Vec<Claims>,
    calls: Vec<Call>,
}

impl State {
    fn new(scope: &Scope) -> Self {
        let call = |(_, roles): &(Key, Vec<Option<Role>>)| Call {
            stages: roles.iter().map(|role| role.map(|_| Stage::Idle)).collect(),
            reduced: None,
            failed: false,
        };
        State { ranks: scope.ranks.clone(), calls: scope.calls.iter().map(call).collect() }
    }

    /// The state after rank `rank` has done what comes next in call `call`, if it can do anything.
    fn step(&self, scope: &Scope, call: usize, rank: usize) -> Option<State> {
        let mut next = self.clone();
        let State { ranks, calls } = &mut next;
        let claims = &mut ranks[rank];
        let of_call = &mut calls[call];
        let stage = of_call.stages[rank].as_mut()?;
        match stage {
            Stage::Idle => {
                let (key, roles) = &scope.calls[call];
                *stage = Stage::Ready(claims.begin(*key, roles[rank]?));
            }
            Stage::Ready(attempt) if of_call.failed => {
                claims.abandon(attempt);
                *stage = Stage::Abandoned;
            }
            // Others have yet to take in the round before.
            Stage::Ready(_) if of_call.reduced.is_some() => return None,
            Stage::Ready(attempt) => {
                let offer = claims.offer(attempt);
                *stage = Stage::Offered(attempt.clone(), offer);
            }
            Stage::Offered(attempt, _) if of_call.failed => {
                claims.abandon(attempt);
                *stage = Stage::Abandoned;
            }
            Stage::Offered(attempt, _) => {
                let all = of_call.reduced.clone()?;
                let mut attempt = attempt.clone();
                *stage = match claims.conclude(&mut attempt, &all) {
                    Ok(Round::Again) => Stage::Ready(attempt),
                    Ok(Round::Done(id)) => Stage::Ended(Ok(id)),
                    Err(error) => Stage::Ended(Err(error)),
                };
            }
            Stage::Ended(_) | Stage::Abandoned => return None,
        }
        of_call.reduce();
        Some(next)
    }

    fn fail(&self, call: usize) -> Option<State> {
        let is_over = |stage: &Option<Stage>| matches!(stage, Some(Stage::Ended(_)));
        if self.calls[call].failed || self.calls[call].stages.iter().any(is_over) {
            return None;
        }
        let mut next = self.clone();
        next.calls[call].failed = true;
        Some(next)
    }

    /// Everyone has come to its end, everyone to the same, and nothing is held.
    fn check_end(&self) -> Result<(), String> {
        let mut taken = vec![Vec::new(); self.ranks.len()];
        for call in &self.calls {
            let mut outcome = None;
            for (rank, stage) in call.stages.iter().enumerate() {
                let of_rank = match stage {
                    None | Some(Stage::Ended(Ok(None))) => continue,
                    Some(Stage::Abandoned) => Err(None),
                    Some(Stage::Ended(Ok(Some(id)))) => {
                        taken[rank].push(*id);
                        Ok(*id)
                    }
                    Some(Stage::Ended(Err(error))) => Err(Some(error.clone())),
                    Some(stage) => return Err(format!("rank {rank} is stuck at {stage:?}")),
                };
                if outcome.get_or_insert_with(|| of_rank.clone()) != &of_rank {
                    return Err(format!("not uniform: {outcome:?} and {of_rank:?}"));
                }
            }
        }
        for (rank, mut ids) in taken.into_iter().enumerate() {
            let claims = &self.ranks[rank];
            if !claims.is_at_rest() {
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

    /// Ids that the ranks have used up.
    fn burnt(&self, scope: &Scope) -> Vec<u32> {
        let free = |claims: &Claims| claims.mask.free_count();
        scope.ranks.iter().zip(&self.ranks).map(|(then, now)| free(then) - free(now)).collect()
    }
}

impl Call {
    /// Once all have offered, the round has a result; once all have taken it in, it is gone.
    fn reduce(&mut self) {
        let members = || self.stages.iter().flatten();
        if self.reduced.is_some() {
            if !members().any(|stage| matches!(stage, Stage::Offered(..))) {
                self.reduced = None;
            }
            return;
        }
        let offers: Option<Vec<_>> = members()
            .map(|stage| if let Stage::Offered(_, offer) = stage { Some(offer) } else { None })
            .collect();
        let and = |a: Vec<u32>, b: &Vec<u32>| a.iter().zip(b).map(|(a, b)| a & b).collect();
        self.reduced = offers.and_then(|offers| {
            let (first, rest) = offers.split_first()?;
            Some(rest.iter().fold((*first).clone(), |all, offer| and(all, offer)))
        });
    }
}

/// Tries every order. From every state that is reached, an end can be reached; and every end is right. How many
/// states there are.
pub(crate) fn explore(scope: &Scope, check: impl Fn(&[u32]) -> bool) -> Result<usize, String> {
    let mut numbers = HashMap::new();
    let mut states = VecDeque::from([State::new(scope)]);
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
        if nexts.is_empty() {
            state.check_end()?;
            if !check(&state.burnt(scope)) {
                return Err(format!("ids used up: {:?}", state.burnt(scope)));
            }
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
    Ok(at)
}

/// The most rounds that any allocation takes when, in every turn, each rank moves each of its threads
/// once, in whatever order. More than `max` is an error.
pub(crate) fn rounds_when_fair(scope: &Scope, max: u32) -> Result<u32, String> {
    let movers: Vec<(usize, usize)> = (0..scope.calls.len())
        .flat_map(|call| (0..scope.ranks.len()).map(move |rank| (call, rank)))
        .collect();
    let orders = orders(&movers);
    let mut states: HashSet<State> = HashSet::from([State::new(scope)]);
    // A round is an offer and its conclusion: two moves.
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
