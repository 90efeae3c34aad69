//! The field's standard algorithms: what one member does.
//!
//! Barrier by dissemination (Hensgen, Finkel, Manber 1988); broadcast, reduction, gather and scatter along
//! binomial trees; allreduce and scan by recursive doubling; allgather as Bruck et al. (1997); alltoall
//! by pairs. Small messages are what they are good at.

use std::ops::Range;

use crate::error::Error;
use crate::port::Channel;

use super::exchange::{Landing, Plan};
use super::{Call, Coll, uneven};

/// Pairs of an alltoall that are under way at once.
const PAIRS_MAX: u32 = 32;

/// What a member does, if what it gives can be.
pub(super) type Planned = Result<Plan, Error>;

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
    let what = "the root of a scatter gives a block for each rank";
    let all = block.checked_mul(channel.size() as usize);
    let all = all.ok_or(Error::Length { length: block, what })?;
    match tree.parent() {
        None if data.len() != all => return Err(Error::Length { length: data.len(), what }),
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
    let size = channel.size();
    let length = data.len();
    if !length.is_multiple_of(size as usize) {
        return Err(Error::Length { length, what: "an alltoall takes a block for each rank" });
    }
    let lengths = vec![length / size as usize; size as usize];
    uneven::alltoall(channel, data, &lengths, &lengths)
}

/// Each rank's block from here to there: first the own one, then pairs.
pub(super) fn pairs(
    channel: &Channel,
    plan: &mut Plan,
    from: &[Range<usize>],
    into: &[Range<usize>],
) {
    let (own, size) = (channel.own, channel.size());
    plan.local(from[own as usize].clone(), into[own as usize].clone(), Landing::Store);
    for distance in 1..size {
        let (source, to) = (around(own, size - distance, size), around(own, distance, size));
        plan.receive(source, into[source as usize].clone(), Landing::Store);
        plan.send(to, from[to as usize].clone());
        if distance.is_multiple_of(PAIRS_MAX) {
            plan.fence();
        }
    }
}

/// The combination of all ranks up to the own one, or of those before it: of none there is no result.
pub(crate) fn scan(channel: &Channel, data: Vec<u8>, exclusive: bool) -> Plan {
    let (own, size) = (channel.own, channel.size());
    let length = data.len();
    // The result; what all of the own block have given; what came.
    let (result, block, came) = (0..length, length..2 * length, 2 * length..3 * length);
    let mut plan = Plan { memory: data, result: result.clone(), ..Plan::default() };
    plan.memory.resize(3 * length, 0);
    plan.local(result.clone(), block.clone(), Landing::Store);
    plan.fence();
    // Of an exclusive one there is nothing to combine the first with.
    let mut first = if exclusive { Landing::Store } else { Landing::Left };
    for distance in powers_below(size) {
        let other = own ^ distance;
        if other >= size {
            continue;
        }
        plan.receive(other, came.clone(), Landing::Store);
        plan.send(other, block.clone());
        if other < own {
            plan.local(came.clone(), result.clone(), first);
            first = Landing::Left;
            plan.local(came.clone(), block.clone(), Landing::Left);
        } else {
            plan.local(came.clone(), block.clone(), Landing::Right);
        }
        plan.fence();
    }
    if exclusive && own == 0 {
        plan.result = 0..0;
    }
    plan
}

/// The plan of a call.
pub(crate) fn of(channel: &Channel, call: Call) -> Planned {
    let Call { coll, root, data, sends, receives, op } = call;
    let size = channel.size();
    if root >= size {
        return Err(Error::Rank { rank: root, size });
    }
    let op = op.as_ref();
    op.map_or(Ok(()), |op| op.check(data.len()))?;
    let own = receives.first().copied().unwrap_or(0);
    Ok(match coll {
        Coll::Barrier => barrier(channel),
        Coll::Broadcast => broadcast(channel, root, data),
        Coll::Reduce => reduce(channel, root, data, op.is_some_and(|op| !op.is_commutative())),
        Coll::Allreduce => allreduce(channel, data),
        Coll::Gather => gather(channel, root, data),
        Coll::Scatter => scatter(channel, root, data, own)?,
        Coll::Allgather => allgather(channel, data),
        Coll::Alltoall => alltoall(channel, data)?,
        Coll::Scan => scan(channel, data, false),
        Coll::ExclusiveScan => scan(channel, data, true),
        Coll::Gatherv => uneven::gather(channel, root, data, &receives)?,
        Coll::Scatterv => uneven::scatter(channel, root, data, &sends, own)?,
        Coll::Allgatherv => uneven::allgather(channel, data, &receives)?,
        Coll::Alltoallv => uneven::alltoall(channel, data, &sends, &receives)?,
        Coll::ReduceScatter => {
            let op = op.ok_or(Error::Length { length: 0, what: "an operation is due" })?;
            sends.iter().try_for_each(|length| op.check(*length))?;
            uneven::reduce_scatter(channel, data, &sends)?
        }
    })
}

/// 1, 2, 4, … below `size`.
fn powers_below(size: u32) -> impl Iterator<Item = u32> {
    (0..u32::BITS).map(|bit| 1 << bit).take_while(move |power| *power < size)
}

/// The rank that many, `size` at most, after another one, around.
pub(super) fn around(rank: u32, distance: u32, size: u32) -> u32 {
    let left = size - rank;
    if distance < left { rank + distance } else { distance - left }
}

fn scaled(places: Range<usize>, block: usize) -> Range<usize> {
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
    fn children(&self) -> Vec<(u32, Range<usize>)> {
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
