//! Algorithms for short messages. Each member sends few messages.
//!
//! Barrier by dissemination (Hensgen, Finkel, Manber 1988); broadcast, reduction, gather and
//! scatter along binomial trees; allreduce and scan by recursive doubling; allgather and alltoall
//! as Bruck et al. (1997).

use std::ops::Range;

use super::tree::{CoreMembers, Tree, around, powers_below};
use crate::driver::Channel;
use crate::error::Error;
use crate::plans::{Call, Placement, Plan, WorkMemory};

pub(crate) fn barrier(channel: &Channel) -> Plan {
    let own = channel.own;
    let size = channel.size();
    let mut plan = Plan::default();
    for distance in powers_below(size) {
        plan.receive(around(own, size - distance, size), 0..0, Placement::Replace);
        plan.send(around(own, distance, size), 0..0);
        plan.fence();
    }
    plan
}

pub(crate) fn broadcast(channel: &Channel, root: u32, data: impl Into<WorkMemory>) -> Plan {
    let data = data.into();
    let tree = Tree::new(channel, root);
    let all = 0..data.len();
    let mut plan = Plan { memory: data, result: all.clone(), ..Plan::default() };
    if let Some(parent) = tree.parent() {
        plan.receive(parent, all.clone(), Placement::Replace);
        plan.fence();
    }
    // The child with the deepest subtree is first.
    for (child, _) in tree.children().into_iter().rev() {
        plan.send(child, all.clone());
    }
    plan
}

/// `ordered`: combine the operands in the order of ranks. Otherwise they are combined in the order
/// of the root's tree.
pub(crate) fn reduce(
    channel: &Channel,
    root: u32,
    data: impl Into<WorkMemory>,
    ordered: bool,
) -> Plan {
    let data = data.into();
    let top = if ordered { 0 } else { root };
    let tree = Tree::new(channel, top);
    let all = 0..data.len();
    let mut plan = Plan { memory: data, ..Plan::default() };
    for (child, _) in tree.children() {
        plan.receive(child, all.clone(), Placement::Right);
    }
    plan.fence();
    if let Some(parent) = tree.parent() {
        plan.send(parent, all.clone());
    }
    if top != root {
        plan.fence();
        if channel.own == top {
            plan.send(root, all.clone());
        } else if channel.own == root {
            plan.receive(top, all.clone(), Placement::Replace);
        }
    }
    if channel.own == root {
        plan.result = all;
    }
    plan
}

/// The values of all members, combined in the order of ranks by recursive doubling.
pub(crate) fn allreduce(channel: &Channel, data: impl Into<WorkMemory>) -> Plan {
    let data = data.into();
    let all = 0..data.len();
    let mut plan = Plan { memory: data, result: all.clone(), ..Plan::default() };
    let core = CoreMembers::new(channel);
    if let Some(number) = core.fold(&mut plan, &all) {
        for distance in powers_below(core.size) {
            let other = number ^ distance;
            let landing = if other < number { Placement::Left } else { Placement::Right };
            plan.receive(core.rank(other), all.clone(), landing);
            plan.send(core.rank(other), all.clone());
            plan.fence();
        }
    }
    core.unfold(&mut plan, |_| all.clone());
    plan
}

/// One block of each member, in the order of ranks.
pub(crate) fn allgather(channel: &Channel, data: impl Into<WorkMemory>) -> Plan {
    let data = data.into();
    let own = channel.own;
    let size = channel.size();
    let block = data.len();
    // Until the end, block i is the block of the rank that follows this one by i.
    let mut plan = Plan { memory: data, ..Plan::default() };
    plan.memory.resize(block * size as usize);
    for distance in powers_below(size) {
        let blocks = distance.min(size - distance) as usize;
        let at = distance as usize * block;
        plan.receive(around(own, distance, size), at..at + blocks * block, Placement::Replace);
        plan.send(around(own, size - distance, size), 0..blocks * block);
        plan.fence();
    }
    plan.result = 0..plan.memory.len();
    plan.rotate = own as usize * block;
    plan
}

/// A block for the rank at some distance goes there in hops whose lengths are the powers of two of
/// that distance. All blocks with the same hop before them travel in one message.
pub(super) fn alltoall(channel: &Channel, data: impl Into<WorkMemory>) -> Plan {
    let data = data.into();
    let own = channel.own;
    let size = channel.size();
    let all = data.len();
    let block = data.len() / size as usize;
    // At most half of the blocks travel at once.
    let most = size as usize / 2 * block;
    let out = all;
    let incoming = all + most;
    let result = all + 2 * most;
    let mut plan = Plan { memory: data, result: result..result + all, ..Plan::default() };
    plan.memory.resize(result + all);
    for distance in powers_below(size) {
        let hops = hops(own, size, distance);
        let mut end = 0;
        for places in &hops {
            let places = scaled(places.clone(), block);
            let length = places.len();
            plan.local(places, out + end..out + end + length, Placement::Replace);
            end += length;
        }
        plan.fence();
        let from = around(own, size - distance, size);
        plan.receive(from, incoming..incoming + end, Placement::Replace);
        plan.send(around(own, distance, size), out..out + end);
        let mut end = 0;
        for places in hops {
            let places = scaled(places, block);
            let length = places.len();
            plan.local(incoming + end..incoming + end + length, places, Placement::Replace);
            end += length;
        }
    }
    for distance in 0..size {
        // The block that stood for the rank at this distance has been replaced by one that has
        // come as far.
        let place = around(own, distance, size);
        let place = place..place + 1;
        let from = around(own, size - distance, size) as usize;
        let into = result + from * block..result + (from + 1) * block;
        plan.local(scaled(place, block), into, Placement::Replace);
    }
    plan
}

/// The ranks whose distance from this one has a bit set, in the order of their distances.
fn hops(own: u32, size: u32, bit: u32) -> Vec<Range<u32>> {
    let mut hops = Vec::new();
    for start in (bit..size).step_by(2 * bit as usize) {
        let length = bit.min(size - start);
        let first = around(own, start, size);
        let before_end = length.min(size - first);
        hops.push(first..first + before_end);
        if before_end < length {
            hops.push(0..length - before_end);
        }
    }
    hops
}

pub(crate) fn gather(channel: &Channel, root: u32, data: impl Into<WorkMemory>) -> Plan {
    let data = data.into();
    let tree = Tree::new(channel, root);
    let block = data.len();
    let mut plan = Plan { memory: data, ..Plan::default() };
    plan.memory.resize(block * tree.blocks() as usize);
    for (child, places) in tree.children() {
        plan.receive(child, scaled(places, block), Placement::Replace);
    }
    plan.fence();
    match tree.parent() {
        Some(parent) => plan.send(parent, 0..plan.memory.len()),
        None => {
            plan.result = 0..plan.memory.len();
            plan.rotate = root as usize * block;
        }
    }
    plan
}

/// The root's data has a block for each rank. The data of other members is ignored.
pub(super) fn scatter(channel: &Channel, call: Call) -> Result<Plan, Error> {
    let block = call.own_block();
    let Call { root, data, .. } = call;
    let mut data = WorkMemory::from(data);
    let tree = Tree::new(channel, root);
    let what = "the root of a scatter passes one block for each rank";
    let all = block.checked_mul(channel.size() as usize);
    let all = all.ok_or(Error::Length { length: block, what })?;
    match tree.parent() {
        None if data.len() != all => return Err(Error::Length { length: data.len(), what }),
        None => data.rotate_left(root as usize * block),
        Some(_) => data.resize(block * tree.blocks() as usize),
    }
    let mut plan = Plan { memory: data, result: 0..block, ..Plan::default() };
    if let Some(parent) = tree.parent() {
        plan.receive(parent, 0..plan.memory.len(), Placement::Replace);
        plan.fence();
    }
    for (child, places) in tree.children().into_iter().rev() {
        plan.send(child, scaled(places, block));
    }
    Ok(plan)
}

/// The values of all ranks up to this one, combined; if `exclusive`, of the ranks before this one.
/// Rank 0 then has no result.
pub(crate) fn scan(channel: &Channel, data: impl Into<WorkMemory>, exclusive: bool) -> Plan {
    let data = data.into();
    let own = channel.own;
    let size = channel.size();
    let length = data.len();
    // Three places: the result; the combination of all members of this member's block; the received
    // message.
    let result = 0..length;
    let block = length..2 * length;
    let incoming = 2 * length..3 * length;
    let mut plan = Plan { memory: data, result: result.clone(), ..Plan::default() };
    plan.memory.resize(3 * length);
    plan.local(result.clone(), block.clone(), Placement::Replace);
    plan.fence();
    // In an exclusive scan there is no value to combine the first one with.
    let mut first = if exclusive { Placement::Replace } else { Placement::Left };
    for distance in powers_below(size) {
        let other = own ^ distance;
        if other >= size {
            continue;
        }
        plan.receive(other, incoming.clone(), Placement::Replace);
        plan.send(other, block.clone());
        if other < own {
            plan.local(incoming.clone(), result.clone(), first);
            first = Placement::Left;
            plan.local(incoming.clone(), block.clone(), Placement::Left);
        } else {
            plan.local(incoming.clone(), block.clone(), Placement::Right);
        }
        plan.fence();
    }
    if exclusive && own == 0 {
        plan.result = 0..0;
    }
    plan
}

fn scaled(places: Range<u32>, block: usize) -> Range<usize> {
    places.start as usize * block..places.end as usize * block
}
