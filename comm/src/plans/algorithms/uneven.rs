//! Algorithms for blocks of different lengths. The call's `sends` and `receives` have the bytes of
//! each rank's block.
//!
//! Gather and scatter are linear, allgather uses a ring, alltoall goes from pair to pair.

use std::ops::Range;

use super::blocks::{check, end, places};
use super::tree::around;
use crate::driver::Channel;
use crate::error::Error;
use crate::plans::{Call, Placement, Plan, WorkMemory};
use crate::settings::PAIRS_MAX;

/// `receives` is read at the root alone.
pub(super) fn gather(channel: &Channel, call: Call) -> Result<Plan, Error> {
    let Call { root, data, receives, .. } = call;
    let data = WorkMemory::from(data);
    let all = data.len();
    if channel.own != root {
        let mut plan = Plan { memory: data, ..Plan::default() };
        plan.send(root, 0..all);
        return Ok(plan);
    }
    let places = places(channel.size(), &receives, 0)?;
    let own = places[root as usize].clone();
    check(all, own.len())?;
    let mut plan = Plan { start: own.start, ..Plan::default() };
    plan.memory = plan.spread(data, end(&places));
    for (rank, place) in (0..).zip(&places).filter(|(rank, _)| *rank != root) {
        plan.receive(rank, place.clone(), Placement::Replace);
    }
    plan.result = 0..end(&places);
    Ok(plan)
}

/// The data and `sends` are read at the root alone.
pub(super) fn scatter(channel: &Channel, call: Call) -> Result<Plan, Error> {
    let own = call.own_block();
    let Call { root, data, sends, .. } = call;
    let data = WorkMemory::from(data);
    if channel.own != root {
        let mut plan = Plan { memory: data, result: 0..own, ..Plan::default() };
        plan.memory.resize(own);
        plan.receive(root, 0..own, Placement::Replace);
        return Ok(plan);
    }
    let places = places(channel.size(), &sends, 0)?;
    check(data.len(), end(&places))?;
    check(own, places[root as usize].len())?;
    let result = places[root as usize].clone();
    let mut plan = Plan { memory: data, result, ..Plan::default() };
    for (rank, place) in (0..).zip(places).filter(|(rank, _)| *rank != root) {
        plan.send(rank, place);
    }
    Ok(plan)
}

pub(super) fn allgather(channel: &Channel, call: Call) -> Result<Plan, Error> {
    let Call { data, receives, .. } = call;
    let data = WorkMemory::from(data);
    let own = channel.own;
    let size = channel.size();
    let places = places(channel.size(), &receives, 0)?;
    let all = data.len();
    check(all, places[own as usize].len())?;
    let start = places[own as usize].start;
    let mut plan = Plan { start, result: 0..end(&places), ..Plan::default() };
    plan.memory = plan.spread(data, end(&places));
    let left = around(own, size - 1, size);
    let right = around(own, 1, size);
    for step in 1..size {
        let incoming = around(own, size - step, size) as usize;
        let had = around(own, size - step + 1, size) as usize;
        plan.receive(left, places[incoming].clone(), Placement::Replace);
        plan.send(right, places[had].clone());
        plan.fence();
    }
    Ok(plan)
}

pub(super) fn alltoall(channel: &Channel, call: Call, at_once: u32) -> Result<Plan, Error> {
    let Call { data, sends, receives, .. } = call;
    let data = WorkMemory::from(data);
    let from = places(channel.size(), &sends, 0)?;
    check(data.len(), end(&from))?;
    let into = places(channel.size(), &receives, data.len())?;
    let own = channel.own as usize;
    check(from[own].len(), into[own].len())?;
    let mut plan = Plan { result: data.len()..end(&into), memory: data, ..Plan::default() };
    plan.memory.resize(end(&into));
    pairs(channel, &mut plan, &from, &into, at_once);
    Ok(plan)
}

/// Each member sends the values for a rank to that rank, which combines them in the order of ranks.
pub(super) fn reduce_scatter(channel: &Channel, call: Call) -> Result<Plan, Error> {
    let Call { data, sends, .. } = call;
    let data = WorkMemory::from(data);
    let from = places(channel.size(), &sends, 0)?;
    check(data.len(), end(&from))?;
    let own = from[channel.own as usize].len();
    let into = places(channel.size(), &vec![own; sends.len()], data.len())?;
    let mut plan = Plan { memory: data, ..Plan::default() };
    plan.memory.resize(end(&into));
    pairs(channel, &mut plan, &from, &into, PAIRS_MAX);
    plan.fence();
    for pair in into.windows(2) {
        plan.local(pair[0].clone(), pair[1].clone(), Placement::Left);
    }
    plan.result = into.last().cloned().unwrap_or_default();
    Ok(plan)
}

/// Copies this member's own block, and exchanges the others in pairs. `at_once` pairs are under way
/// at the same time.
fn pairs(
    channel: &Channel,
    plan: &mut Plan,
    from: &[Range<usize>],
    into: &[Range<usize>],
    at_once: u32,
) {
    let own = channel.own;
    let size = channel.size();
    plan.local(from[own as usize].clone(), into[own as usize].clone(), Placement::Replace);
    for distance in 1..size {
        let source = around(own, size - distance, size);
        let to = around(own, distance, size);
        plan.receive(source, into[source as usize].clone(), Placement::Replace);
        plan.send(to, from[to as usize].clone());
        if distance.is_multiple_of(at_once) {
            plan.fence();
        }
    }
}
