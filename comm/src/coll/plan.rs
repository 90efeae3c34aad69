//! The field's standard algorithms: what one member does.
//!
//! Barrier by dissemination (Hensgen, Finkel, Manber 1988); broadcast, reduction, gather and scatter along
//! binomial trees; allreduce and scan by recursive doubling; allgather as Bruck et al. (1997); alltoall
//! by pairs. Short messages are what they are good at; for long ones there are those of [`long`].

use std::ops::Range;

use crate::error::Error;
use crate::port::Channel;

use super::exchange::{Landing, Plan};
use super::long::Algorithms;
use super::{Call, Coll, long, uneven};

/// Pairs of an alltoall of short messages that are under way at once.
pub(super) const PAIRS_MAX: u32 = 32;

impl Algorithms {
    /// How many pairs of an alltoall with blocks of so many bytes are under way at once.
    pub(crate) fn pairs_at_once(&self, block: usize) -> u32 {
        if block >= self.alltoall_long { 1 } else { PAIRS_MAX }
    }
}

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

/// Recursive doubling.
pub(crate) fn allreduce(channel: &Channel, data: Vec<u8>) -> Plan {
    let all = 0..data.len();
    let mut plan = Plan { memory: data, result: all.clone(), ..Plan::default() };
    let core = Core::new(channel);
    if let Some(number) = core.fold(&mut plan, &all) {
        for distance in powers_below(core.size) {
            let other = number ^ distance;
            let landing = if other < number { Landing::Left } else { Landing::Right };
            plan.receive(core.rank(other), all.clone(), landing);
            plan.send(core.rank(other), all.clone());
            plan.fence();
        }
    }
    core.unfold(&mut plan, |_| all.clone());
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
    plan.memory.resize(block * tree.blocks() as usize, 0);
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
        Some(_) => data = vec![0; block * tree.blocks() as usize],
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
pub(crate) fn alltoall(channel: &Channel, data: Vec<u8>, at_once: u32) -> Planned {
    let size = channel.size();
    let length = data.len();
    if !length.is_multiple_of(size as usize) {
        return Err(Error::Length { length, what: "an alltoall takes a block for each rank" });
    }
    let lengths = vec![length / size as usize; size as usize];
    uneven::alltoall(channel, data, &lengths, &lengths, at_once)
}

/// Each rank's block from here to there: first the own one, then pairs, of which some are under way at once.
pub(super) fn pairs(
    channel: &Channel,
    plan: &mut Plan,
    from: &[Range<usize>],
    into: &[Range<usize>],
    at_once: u32,
) {
    let (own, size) = (channel.own, channel.size());
    plan.local(from[own as usize].clone(), into[own as usize].clone(), Landing::Store);
    for distance in 1..size {
        let (source, to) = (around(own, size - distance, size), around(own, distance, size));
        plan.receive(source, into[source as usize].clone(), Landing::Store);
        plan.send(to, from[to as usize].clone());
        if distance.is_multiple_of(at_once) {
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
pub(crate) fn of(channel: &Channel, call: Call, algorithms: &Algorithms) -> Planned {
    let Call { coll, root, data, sends, receives, op } = call;
    let size = channel.size();
    if root >= size {
        return Err(Error::Rank { rank: root, size });
    }
    let op = op.as_ref();
    op.map_or(Ok(()), |op| op.check(data.len()))?;
    let own = receives.first().copied().unwrap_or(0);
    let length = data.len();
    let commutes = op.filter(|op| op.is_commutative());
    let if_from = |least: usize| commutes.filter(|_| length >= least);
    let at_once = algorithms.pairs_at_once(length / size as usize);
    let is_long_broadcast =
        length >= algorithms.broadcast_long && size >= algorithms.broadcast_members;
    let is_long_allgather = length.saturating_mul(size as usize) >= algorithms.allgather_long;
    Ok(match coll {
        Coll::Barrier => barrier(channel),
        Coll::Broadcast if is_long_broadcast => long::broadcast(channel, root, data),
        Coll::Broadcast => broadcast(channel, root, data),
        Coll::Reduce => match if_from(algorithms.reduce_long) {
            Some(op) => long::reduce(channel, root, data, op),
            None => reduce(channel, root, data, commutes.is_none()),
        },
        Coll::Allreduce => match if_from(algorithms.allreduce_long) {
            Some(op) => long::allreduce(channel, data, op),
            None => allreduce(channel, data),
        },
        Coll::Gather => gather(channel, root, data),
        Coll::Scatter => scatter(channel, root, data, own)?,
        Coll::Allgather if is_long_allgather => {
            uneven::allgather(channel, data, &vec![length; size as usize])?
        }
        Coll::Allgather => allgather(channel, data),
        Coll::Alltoall => alltoall(channel, data, at_once)?,
        Coll::Scan => scan(channel, data, false),
        Coll::ExclusiveScan => scan(channel, data, true),
        Coll::Gatherv => uneven::gather(channel, root, data, &receives)?,
        Coll::Scatterv => uneven::scatter(channel, root, data, &sends, own)?,
        Coll::Allgatherv => uneven::allgather(channel, data, &receives)?,
        Coll::Alltoallv => uneven::alltoall(channel, data, &sends, &receives, at_once)?,
        Coll::ReduceScatter => {
            let op = op.ok_or(Error::Length { length: 0, what: "an operation is due" })?;
            sends.iter().try_for_each(|length| op.check(*length))?;
            if op.is_commutative() {
                let is_long = length >= algorithms.reduce_scatter_long;
                long::reduce_scatter(channel, data, &sends, is_long)?
            } else {
                uneven::reduce_scatter(channel, data, &sends)?
            }
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

fn scaled(places: Range<u32>, block: usize) -> Range<usize> {
    places.start as usize * block..places.end as usize * block
}

/// The largest power of two of members, which work in pairs. Where there are more, the first ones are folded:
/// each of even rank into its neighbour above, which is of the core.
pub(super) struct Core {
    own: u32,
    extra: u32,
    pub(super) size: u32,
}

impl Core {
    pub(super) fn new(channel: &Channel) -> Self {
        let size = 1 << channel.size().ilog2();
        Core { own: channel.own, extra: channel.size() - size, size }
    }

    /// The rank of the core's member of this number.
    pub(super) fn rank(&self, number: u32) -> u32 {
        if number < self.extra { 2 * number + 1 } else { number + self.extra }
    }

    /// The ranks that it stands for.
    pub(super) fn ranks(&self, number: u32) -> Range<u32> {
        let last = self.rank(number);
        last - u32::from(number < self.extra)..last + 1
    }

    /// The neighbour, and whether this rank is folded into it.
    fn neighbour(&self) -> Option<(u32, bool)> {
        (self.own < 2 * self.extra).then_some((self.own ^ 1, self.own.is_multiple_of(2)))
    }

    /// Takes in what those who are folded contribute. This member's number, if it is of the core.
    pub(super) fn fold(&self, plan: &mut Plan, all: &Range<usize>) -> Option<u32> {
        let Some((neighbour, is_folded)) = self.neighbour() else {
            return Some(self.own - self.extra);
        };
        if is_folded {
            plan.send(neighbour, all.clone());
        } else {
            plan.receive(neighbour, all.clone(), Landing::Left);
        }
        plan.fence();
        (!is_folded).then_some(self.own / 2)
    }

    /// Gives those who are folded what is due to each rank.
    pub(super) fn unfold(&self, plan: &mut Plan, due: impl Fn(u32) -> Range<usize>) {
        match self.neighbour() {
            Some((neighbour, true)) => plan.receive(neighbour, due(self.own), Landing::Store),
            Some((neighbour, false)) => plan.send(neighbour, due(neighbour)),
            None => {}
        }
    }
}

/// A binomial tree. Members are numbered from its root; a member's subtree are the numbers that follow it.
pub(super) struct Tree {
    root: u32,
    pub(super) size: u32,
    pub(super) number: u32,
}

impl Tree {
    pub(super) fn new(channel: &Channel, root: u32) -> Self {
        let size = channel.size();
        Tree { root, size, number: around(channel.own, size - root, size) }
    }

    pub(super) fn parent(&self) -> Option<u32> {
        let lowest = self.number & self.number.wrapping_neg();
        (lowest != 0).then(|| self.rank(self.number - lowest))
    }

    /// Children, the smallest subtree first, with the places of their subtrees in this one's.
    pub(super) fn children(&self) -> Vec<(u32, Range<u32>)> {
        let is_child = |power: &u32| {
            self.number & (2 * power - 1) == 0
                && u64::from(self.number) + u64::from(*power) < self.size.into()
        };
        let child = |power: u32| {
            let number = self.number + power;
            let end = power + power.min(self.size - number);
            (self.rank(number), power..end)
        };
        powers_below(self.size).take_while(is_child).map(child).collect()
    }

    /// Members of the own subtree.
    pub(super) fn blocks(&self) -> u32 {
        let lowest = self.number & self.number.wrapping_neg();
        let rest = self.size - self.number;
        if lowest == 0 { rest } else { lowest.min(rest) }
    }

    pub(super) fn rank(&self, number: u32) -> u32 {
        around(number, self.root, self.size)
    }
}
