//! Plans of operations whose blocks may differ in length: each rank's is given in bytes.
//!
//! Linear where there is a root, a ring for allgather, pairs for alltoall.

use std::ops::Range;

use crate::error::Error;
use crate::port::Channel;

use super::exchange::{Landing, Plan};
use super::plan::{PAIRS_MAX, Planned, around, pairs};

/// The largest memory.
pub(crate) const LENGTH_MAX: usize = isize::MAX.unsigned_abs();

/// Where the blocks of so many ranks are, one after the other.
pub(crate) fn places(
    size: u32,
    lengths: &[usize],
    start: usize,
) -> Result<Vec<Range<usize>>, Error> {
    if lengths.len() != size as usize {
        let what = "one for each rank is due";
        return Err(Error::Length { length: lengths.len(), what });
    }
    let mut end = start;
    let place = |length: &usize| {
        let from = end;
        end = end.checked_add(*length).filter(|end| *end <= LENGTH_MAX)?;
        Some(from..end)
    };
    let places: Option<Vec<_>> = lengths.iter().map(place).collect();
    places.ok_or(Error::Length { length: usize::MAX, what: "more than there can be" })
}

pub(crate) fn end(places: &[Range<usize>]) -> usize {
    places.last().map_or(0, |place| place.end)
}

pub(crate) fn check(length: usize, due: usize) -> Result<(), Error> {
    let what = "not the sum, or not the own one, of the lengths that were given";
    if length == due { Ok(()) } else { Err(Error::Length { length, what }) }
}

/// `lengths` count at the root.
pub(crate) fn gather(channel: &Channel, root: u32, data: Vec<u8>, lengths: &[usize]) -> Planned {
    let all = data.len();
    if channel.own != root {
        let mut plan = Plan { memory: data, ..Plan::default() };
        plan.send(root, 0..all);
        return Ok(plan);
    }
    let places = places(channel.size(), lengths, 0)?;
    let own = places[root as usize].clone();
    check(all, own.len())?;
    let mut plan = Plan { start: own.start, ..Plan::default() };
    plan.memory = plan.spread(data, end(&places));
    for (rank, place) in (0..).zip(&places).filter(|(rank, _)| *rank != root) {
        plan.receive(rank, place.clone(), Landing::Store);
    }
    plan.result = 0..end(&places);
    Ok(plan)
}

/// `data` and `lengths` count at the root; `own` is the own block's.
pub(crate) fn scatter(
    channel: &Channel,
    root: u32,
    data: Vec<u8>,
    lengths: &[usize],
    own: usize,
) -> Planned {
    if channel.own != root {
        let mut plan = Plan { memory: vec![0; own], result: 0..own, ..Plan::default() };
        plan.receive(root, 0..own, Landing::Store);
        return Ok(plan);
    }
    let places = places(channel.size(), lengths, 0)?;
    check(data.len(), end(&places))?;
    check(own, places[root as usize].len())?;
    let result = places[root as usize].clone();
    let mut plan = Plan { memory: data, result, ..Plan::default() };
    for (rank, place) in (0..).zip(places).filter(|(rank, _)| *rank != root) {
        plan.send(rank, place);
    }
    Ok(plan)
}

pub(crate) fn allgather(channel: &Channel, data: Vec<u8>, lengths: &[usize]) -> Planned {
    let (own, size) = (channel.own, channel.size());
    let places = places(channel.size(), lengths, 0)?;
    let all = data.len();
    check(all, places[own as usize].len())?;
    let start = places[own as usize].start;
    let mut plan = Plan { start, result: 0..end(&places), ..Plan::default() };
    plan.memory = plan.spread(data, end(&places));
    let (left, right) = (around(own, size - 1, size), around(own, 1, size));
    for step in 1..size {
        let came = around(own, size - step, size) as usize;
        let had = around(own, size - step + 1, size) as usize;
        plan.receive(left, places[came].clone(), Landing::Store);
        plan.send(right, places[had].clone());
        plan.fence();
    }
    Ok(plan)
}

/// Bytes for each rank, and from each.
pub(crate) fn alltoall(
    channel: &Channel,
    data: Vec<u8>,
    sends: &[usize],
    receives: &[usize],
    at_once: u32,
) -> Planned {
    let from = places(channel.size(), sends, 0)?;
    check(data.len(), end(&from))?;
    let into = places(channel.size(), receives, data.len())?;
    let own = channel.own as usize;
    check(from[own].len(), into[own].len())?;
    let mut plan = Plan { result: data.len()..end(&into), memory: data, ..Plan::default() };
    plan.memory.resize(end(&into), 0);
    pairs(channel, &mut plan, &from, &into, at_once);
    Ok(plan)
}

/// Everyone's values for a rank go there, and are combined in the order of ranks.
pub(crate) fn reduce_scatter(channel: &Channel, data: Vec<u8>, lengths: &[usize]) -> Planned {
    let from = places(channel.size(), lengths, 0)?;
    check(data.len(), end(&from))?;
    let own = from[channel.own as usize].len();
    let into = places(channel.size(), &vec![own; lengths.len()], data.len())?;
    let mut plan = Plan { memory: data, ..Plan::default() };
    plan.memory.resize(end(&into), 0);
    pairs(channel, &mut plan, &from, &into, PAIRS_MAX);
    plan.fence();
    for pair in into.windows(2) {
        plan.local(pair[0].clone(), pair[1].clone(), Landing::Left);
    }
    plan.result = into.last().cloned().unwrap_or_default();
    Ok(plan)
}
