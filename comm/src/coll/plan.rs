//! The field's standard algorithms: what one member does.
//!
//! Barrier by dissemination (Hensgen, Finkel, Manber 1988); broadcast, reduction, gather and scatter along
//! binomial trees; allreduce and scan by recursive doubling; allgather as Bruck et al. (1997); alltoall
//! by pairs. Small messages are what they are good at.

use crate::error::Error;
use crate::port::Channel;

use super::Call;
use super::exchange::{Landing, Plan};

/// Pairs of an alltoall that are under way at once.
const PAIRS_MAX: u32 = 32;

/// A member's view: its rank, how many there are, and what it gives.
type Planned = Result<Plan, Error>;

pub(crate) fn barrier(channel: &Channel) -> Plan {
    let (own, size) = (channel.own, channel.size());
    let mut plan = Plan::default();
    for distance in powers_below(size) {
        plan.receive(around(own, size - distance, size), 0..0, Landing::Store);
        plan.send(around(own, distance, size), 0..0);
        plan.fence();
    }
    plan
}

pub(crate) fn broadcast(channel: &Channel, root: u32, data: Vec<u8>) -> Plan {
    let tree = Tree::new(channel, root);
    let all = 0..data.len();
    let mut plan = Plan { memory: data, result: all.clone(), ..Plan::default() };
    if let Some(parent) = tree.parent() {
        plan.receive(parent, all.clone(), Landing::Store);
        plan.fence();
    }
    // The deepest subtree first.
    for (child, _) in tree.children().into_iter().rev() {
        plan.send(child, all.clone());
    }
    plan
}

/// Operands are combined in the order of ranks, if `ordered`; else in the order of the tree.
pub(crate) fn reduce(channel: &Channel, root: u32, data: Vec<u8>, ordered: bool) -> Plan {
    let top = if ordered { 0 } else { root };
    let tree = Tree::new(channel, top);
    let all = 0..data.len();
    let mut plan = Plan { memory: data, ..Plan::default() };
    for (child, _) in tree.children() {
        plan.receive(child, all.clone(), Landing::Right);
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
            plan.receive(top, all.clone(), Landing::Store);
        }
    }
    if channel.own == root {
        plan.result = all;
    }
    plan
}

/// Recursive doubling. Where there are more ranks than a power of two, the first ones fold into their
/// neighbours before and get the result after.
pub(crate) fn allreduce(channel: &Channel, data: Vec<u8>) -> Plan {
    let (own, size) = (channel.own, channel.size());
    let all = 0..data.len();
    let mut plan = Plan { memory: data, result: all.clone(), ..Plan::default() };
    let core = 1 << size.ilog2();
    let extra = size - core;
    let folds = own < 2 * extra;
    if folds && own.is_multiple_of(2) {
        plan.send(own + 1, all.clone());
        plan.fence();
        plan.receive(own + 1, all, Landing::Store);
        return plan;
    }
    if folds {
        plan.receive(own - 1, all.clone(), Landing::Left);
        plan.fence();
    }
    let number = if folds { own / 2 } else { own - extra };
    for distance in powers_below(core) {
        let other = number ^ distance;
        let rank = if other < extra { 2 * other + 1 } else { other + extra };
        let landing = if other < number { Landing::Left } else { Landing::Right };
        plan.receive(rank, all.clone(), landing);
        plan.send(rank, all.clone());
        plan.fence();
    }
    if folds {
        plan.send(own - 1, all);
    }
    plan
}

/// One block of each, by rank.
pub(crate) fn allgather(channel: &Channel, data: Vec<u8>) -> Plan {
    let (own, size) = (channel.own, channel.size());
    let block = data.len();
    // Block i is that of the rank i after this one, until the end.
    let mut plan = Plan { memory: data, ..Plan::default() };
    plan.memory.resize(block * size as usize, 0);
    for distance in powers_below(size) {
        let blocks = distance.min(size - distance) as usize;
        let at = distance as usize * block;
        plan.receive(around(own, distance, size), at..at + blocks * block, Landing::Store);
        plan.send(around(own, size - distance, size), 0..blocks * block);
        plan.fence();
    }
    plan.result = 0..plan.memory.len();
    plan.rotate = own as usize * block;
    plan
}

pub(crate) fn gather(channel: &Channel, root: u32, data: Vec<u8>) -> Plan {
    let tree = Tree::new(channel, root);
    let block = data.len();
    let mut plan = Plan { memory: data, ..Plan::default() };
    plan.memory.resize(block * tree.blocks(), 0);
    for (child, places) in tree.children() {
        plan.receive(child, scaled(places, block), Landing::Store);
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

/// `data` is the root's: a block for each rank.
pub(crate) fn scatter(channel: &Channel, root: u32, mut data: Vec<u8>, block: usize) -> Planned {
    let tree = Tree::new(channel, root);
    match tree.parent() {
        None if data.len() != block * channel.size() as usize => {
            let what = "the root of a scatter gives a block for each rank";
            return Err(Error::Length { length: data.len(), what });
        }
        None => data.rotate_left(root as usize * block),
        Some(_) => data = vec![0; block * tree.blocks()],
    }
    let mut plan = Plan { memory: data, result: 0..block, ..Plan::default() };
    if let Some(parent) = tree.parent() {
        plan.receive(parent, 0..plan.memory.len(), Landing::Store);
        plan.fence();
    }
    for (child, places) in tree.children().into_iter().rev() {
        plan.send(child, scaled(places, block));
    }
    Ok(plan)
}

/// `data` has a block for each rank.
pub(crate) fn alltoall(channel: &Channel, data: Vec<u8>) -> Planned {
    let (own, size) = (channel.own, channel.size());
    let length = data.len();
    if !length.is_multiple_of(size as usize) {
        return Err(Error::Length { length, what: "an alltoall takes a block for each rank" });
    }
    let block = length / size as usize;
    let place = |rank: u32| rank as usize * block..(rank as usize + 1) * block;
    let into = |rank: u32| length + rank as usize * block..length + (rank as usize + 1) * block;
    let mut plan = Plan { memory: data, result: length..2 * length, ..Plan::default() };
    plan.memory.resize(2 * length, 0);
    plan.local(place(own), into(own), Landing::Store);
    for distance in 1..size {
        let (from, to) = (around(own, size - distance, size), around(own, distance, size));
        plan.receive(from, into(from), Landing::Store);
        plan.send(to, place(to));
        if distance.is_multiple_of(PAIRS_MAX) {
            plan.fence();
        }
    }
    Ok(plan)
}

/// The combination of all ranks up to the own one.
pub(crate) fn scan(channel: &Channel, data: Vec<u8>) -> Plan {
    let (own, size) = (channel.own, channel.size());
    let length = data.len();
    // The result; what all of the own block have given; what came.
    let (result, block, came) = (0..length, length..2 * length, 2 * length..3 * length);
    let mut plan = Plan { memory: data, result: result.clone(), ..Plan::default() };
    plan.memory.extend_from_within(..);
    plan.memory.resize(3 * length, 0);
    for distance in powers_below(size) {
        let other = own ^ distance;
        if other >= size {
            continue;
        }
        plan.receive(other, came.clone(), Landing::Store);
        plan.send(other, block.clone());
        if other < own {
            plan.local(came.clone(), result.clone(), Landing::Left);
            plan.local(came.clone(), block.clone(), Landing::Left);
        } else {
            plan.local(came.clone(), block.clone(), Landing::Right);
        }
        plan.fence();
    }
    plan
}

/// The plan of a call.
pub(crate) fn of(channel: &Channel, call: Call) -> Planned {
    let Call { coll, root, data, block, op } = call;
    let size = channel.size();
    if root >= size {
        return Err(Error::Rank { rank: root, size });
    }
    let op = op.as_ref();
    op.map_or(Ok(()), |op| op.check(data.len()))?;
    Ok(match coll {
        super::Coll::Barrier => barrier(channel),
        super::Coll::Broadcast => broadcast(channel, root, data),
        super::Coll::Reduce => {
            reduce(channel, root, data, op.is_some_and(|op| !op.is_commutative()))
        }
        super::Coll::Allreduce => allreduce(channel, data),
        super::Coll::Gather => gather(channel, root, data),
        super::Coll::Scatter => scatter(channel, root, data, block)?,
        super::Coll::Allgather => allgather(channel, data),
        super::Coll::Alltoall => alltoall(channel, data)?,
        super::Coll::Scan => scan(channel, data),
    })
}

/// 1, 2, 4, … below `size`.
fn powers_below(size: u32) -> impl Iterator<Item = u32> {
    (0..u32::BITS).map(|bit| 1 << bit).take_while(move |power| *power < size)
}

/// The rank that many, `size` at most, after another one, around.
fn around(rank: u32, distance: u32, size: u32) -> u32 {
    let left = size - rank;
    if distance < left { rank + distance } else { distance - left }
}

fn scaled(places: std::ops::Range<usize>, block: usize) -> std::ops::Range<usize> {
    places.start * block..places.end * block
}

/// A binomial tree. Members are numbered from its root; a member's subtree are the numbers that follow it.
struct Tree {
    root: u32,
    size: u32,
    number: u32,
}

impl Tree {
    fn new(channel: &Channel, root: u32) -> Self {
        let size = channel.size();
        Tree { root, size, number: around(channel.own, size - root, size) }
    }

    fn parent(&self) -> Option<u32> {
        let lowest = self.number & self.number.wrapping_neg();
        (lowest != 0).then(|| self.rank(self.number - lowest))
    }

    /// Children, the smallest subtree first, with the places of their subtrees in this one's.
    fn children(&self) -> Vec<(u32, std::ops::Range<usize>)> {
        let is_child = |power: &u32| {
            self.number & (2 * power - 1) == 0
                && u64::from(self.number) + u64::from(*power) < self.size.into()
        };
        let child = |power: u32| {
            let number = self.number + power;
            let end = power + power.min(self.size - number);
            (self.rank(number), power as usize..end as usize)
        };
        powers_below(self.size).take_while(is_child).map(child).collect()
    }

    /// Members of the own subtree.
    fn blocks(&self) -> usize {
        let lowest = self.number & self.number.wrapping_neg();
        let rest = self.size - self.number;
        (if lowest == 0 { rest } else { lowest.min(rest) }) as usize
    }

    fn rank(&self, number: u32) -> u32 {
        around(number, self.root, self.size)
    }
}
