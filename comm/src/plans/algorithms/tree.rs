//! The partners of a member: around a ring, along a binomial tree, or in pairs.

use std::ops::Range;

use crate::driver::Channel;
use crate::plans::{Placement, Plan};

/// The powers of two below `size`.
pub(super) fn powers_below(size: u32) -> impl Iterator<Item = u32> {
    (0..u32::BITS).map(|bit| 1 << bit).take_while(move |power| *power < size)
}

/// The rank that follows `rank` by `distance` on a ring of `size` members. `distance` is at most
/// `size`.
pub(super) fn around(rank: u32, distance: u32, size: u32) -> u32 {
    let left = size - rank;
    if distance < left { rank + distance } else { distance - left }
}

/// A binomial tree. Members are numbered from its root. The subtree of a member consists of its own
/// number and the ones that follow it.
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

    /// The ranks of the children, the smallest subtree first, with the places of their subtrees in
    /// this member's subtree.
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

    /// The number of members of this member's subtree.
    pub(super) fn blocks(&self) -> u32 {
        let lowest = self.number & self.number.wrapping_neg();
        let rest = self.size - self.number;
        if lowest == 0 { rest } else { lowest.min(rest) }
    }

    pub(super) fn rank(&self, number: u32) -> u32 {
        around(number, self.root, self.size)
    }
}

/// The core of a communicator: as many members as the largest power of two allows, which work in
/// pairs. If there are more members, some of the first ones are folded: each one of even rank gives
/// its values to its upper neighbour, which is in the core.
pub(super) struct CoreMembers {
    own: u32,
    extra: u32,
    pub(super) size: u32,
}

impl CoreMembers {
    pub(super) fn new(channel: &Channel) -> Self {
        let size = 1 << channel.size().ilog2();
        CoreMembers { own: channel.own, extra: channel.size() - size, size }
    }

    /// The rank of the core member of this number.
    pub(super) fn rank(&self, number: u32) -> u32 {
        if number < self.extra { 2 * number + 1 } else { number + self.extra }
    }

    /// The ranks that the core member of this number stands for: its own, and the one that is
    /// folded into it.
    pub(super) fn ranks(&self, number: u32) -> Range<u32> {
        let last = self.rank(number);
        last - u32::from(number < self.extra)..last + 1
    }

    /// The neighbour of this rank in a folded pair, and whether this rank is the folded one.
    fn neighbour(&self) -> Option<(u32, bool)> {
        (self.own < 2 * self.extra).then_some((self.own ^ 1, self.own.is_multiple_of(2)))
    }

    /// Combines the contributions of folded members into their neighbours. Returns this member's
    /// number if it is in the core.
    pub(super) fn fold(&self, plan: &mut Plan, all: &Range<usize>) -> Option<u32> {
        let Some((neighbour, is_folded)) = self.neighbour() else {
            return Some(self.own - self.extra);
        };
        if is_folded {
            plan.send(neighbour, all.clone());
        } else {
            plan.receive(neighbour, all.clone(), Placement::Left);
        }
        plan.fence();
        (!is_folded).then_some(self.own / 2)
    }

    /// Sends the folded members their results. `due` gives the place of a rank's result.
    pub(super) fn unfold(&self, plan: &mut Plan, due: impl Fn(u32) -> Range<usize>) {
        match self.neighbour() {
            Some((neighbour, true)) => plan.receive(neighbour, due(self.own), Placement::Replace),
            Some((neighbour, false)) => plan.send(neighbour, due(neighbour)),
            None => {}
        }
    }
}
