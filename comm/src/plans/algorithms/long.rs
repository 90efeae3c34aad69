//! Algorithms for long messages. Each member sends about as many bytes as it has, whatever the
//! number of members. [`Algorithms`](super::Algorithms) has the lengths from which on they are
//! used.

use std::ops::Range;

use super::blocks::{check, end, places};
use super::tree::{CoreMembers, Tree, around};
use crate::driver::Channel;
use crate::error::Error;
use crate::plans::{Call, Op, Placement, Plan, WorkMemory};

/// The division of a message into nearly equal parts of whole values.
struct Parts {
    length: usize,
    part: usize,
}

impl Parts {
    fn new(length: usize, width: usize, count: u32) -> Self {
        let values = (length / width).div_ceil(count as usize);
        Parts { length, part: values * width }
    }

    fn bytes(&self, parts: Range<u32>) -> Range<usize> {
        let start = |part: u32| self.part.saturating_mul(part as usize).min(self.length);
        start(parts.start)..start(parts.end)
    }
}

/// A binomial tree scatters the message from the root. Then all members gather it around a ring.
pub(super) fn broadcast(channel: &Channel, root: u32, data: impl Into<WorkMemory>) -> Plan {
    let data = data.into();
    let tree = Tree::new(channel, root);
    let size = tree.size;
    let number = tree.number;
    let parts = Parts::new(data.len(), 1, size);
    let mut plan = Plan { result: 0..data.len(), memory: data, ..Plan::default() };
    if let Some(parent) = tree.parent() {
        plan.receive(parent, parts.bytes(number..number + tree.blocks()), Placement::Replace);
        plan.fence();
    }
    for (child, places) in tree.children().into_iter().rev() {
        plan.send(child, parts.bytes(number + places.start..number + places.end));
    }
    plan.fence();
    let part = |number: u32| parts.bytes(number..number + 1);
    let left = tree.rank(around(number, size - 1, size));
    let right = tree.rank((number + 1) % size);
    for step in 1..size {
        plan.receive(left, part(around(number, size - step, size)), Placement::Replace);
        plan.send(right, part(around(number, size - step + 1, size)));
        plan.fence();
    }
    plan
}

/// Recursive halving: two members swap halves of their bytes and combine them, then two members
/// quarters, and so on, until each member of the core has all contributions to its part. `part`
/// gives the bytes of a range of parts.
fn halve(
    plan: &mut Plan,
    core: &CoreMembers,
    number: u32,
    part: impl Fn(Range<u32>) -> Range<usize>,
) {
    let mut own = 0..core.size;
    while own.end - own.start > 1 {
        let middle = own.start.midpoint(own.end);
        let lower = own.start..middle;
        let upper = middle..own.end;
        let is_lower = number < middle;
        let (kept, given) = if is_lower { (lower, upper) } else { (upper, lower) };
        let other = core.rank(number ^ (kept.end - kept.start));
        plan.receive(other, part(kept.clone()), Placement::Left);
        plan.send(other, part(given));
        plan.fence();
        own = kept;
    }
}

/// Recursive doubling: at the beginning each member of the core has one part, at the end all parts.
fn double(
    plan: &mut Plan,
    core: &CoreMembers,
    number: u32,
    part: impl Fn(Range<u32>) -> Range<usize>,
) {
    let mut distance = 1;
    while distance < core.size {
        let own = number & !(distance - 1);
        let others = own ^ distance;
        let other = core.rank(number ^ distance);
        plan.receive(other, part(others..others + distance), Placement::Replace);
        plan.send(other, part(own..own + distance));
        plan.fence();
        distance *= 2;
    }
}

/// For commutative operations.
pub(super) fn allreduce(channel: &Channel, data: impl Into<WorkMemory>, op: &Op) -> Plan {
    let data = data.into();
    let core = CoreMembers::new(channel);
    let all = 0..data.len();
    let parts = Parts::new(data.len(), op.width(), core.size);
    let mut plan = Plan { memory: data, result: all.clone(), ..Plan::default() };
    if let Some(number) = core.fold(&mut plan, &all) {
        halve(&mut plan, &core, number, |some| parts.bytes(some));
        double(&mut plan, &core, number, |some| parts.bytes(some));
    }
    core.unfold(&mut plan, |_| all.clone());
    plan
}

/// For commutative operations.
pub(super) fn reduce(channel: &Channel, root: u32, data: impl Into<WorkMemory>, op: &Op) -> Plan {
    let data = data.into();
    let core = CoreMembers::new(channel);
    let all = 0..data.len();
    let parts = Parts::new(data.len(), op.width(), core.size);
    let mut plan = Plan { memory: data, ..Plan::default() };
    let number = core.fold(&mut plan, &all);
    if let Some(number) = number {
        halve(&mut plan, &core, number, |some| parts.bytes(some));
    }
    let part = |number: u32| parts.bytes(number..number + 1);
    if channel.own == root {
        for other in (0..core.size).filter(|other| Some(*other) != number) {
            plan.receive(core.rank(other), part(other), Placement::Replace);
        }
        plan.result = all;
    } else if let Some(number) = number {
        plan.send(root, part(number));
    }
    plan
}

/// For commutative operations.
pub(super) fn reduce_scatter(channel: &Channel, call: Call, is_long: bool) -> Result<Plan, Error> {
    let Call { data, sends, .. } = call;
    let data = WorkMemory::from(data);
    let own = channel.own;
    let size = channel.size();
    let places = places(size, &sends, 0)?;
    let place = |rank: u32| places[rank as usize].clone();
    check(data.len(), end(&places))?;
    let all = 0..data.len();
    let mut plan = Plan { memory: data, result: place(own), ..Plan::default() };
    if is_long {
        for distance in 1..size {
            plan.receive(around(own, size - distance, size), place(own), Placement::Left);
            let to = around(own, distance, size);
            plan.send(to, place(to));
            plan.fence();
        }
        return Ok(plan);
    }
    let core = CoreMembers::new(channel);
    if let Some(number) = core.fold(&mut plan, &all) {
        halve(&mut plan, &core, number, |some| {
            let last = core.ranks(some.end - 1).end;
            places[core.ranks(some.start).start as usize].start..places[last as usize - 1].end
        });
    }
    core.unfold(&mut plan, place);
    Ok(plan)
}
