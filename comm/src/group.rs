//! Ordered sets of processes.

use std::collections::{HashMap, HashSet};

use crate::error::Error;
use crate::net::ProcessId;

/// An ordered set of processes. The place of a process is its rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group(Vec<ProcessId>);

/// The result of comparing two groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Likeness {
    /// The same processes in the same order.
    Identical,
    /// The same processes in another order.
    Similar,
    /// Different processes.
    Unequal,
}

impl Group {
    /// A group of these processes in this order. A process that occurs again is left out.
    pub fn new(processes: impl IntoIterator<Item = ProcessId>) -> Self {
        let mut seen = HashSet::new();
        Group(processes.into_iter().filter(|process| seen.insert(*process)).collect())
    }

    /// Number of processes.
    pub fn size(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// The process of a rank.
    pub fn process(&self, rank: u32) -> Option<ProcessId> {
        self.0.get(rank as usize).copied()
    }

    /// The rank of a process. Takes time in proportion to the size.
    pub fn rank(&self, process: ProcessId) -> Option<u32> {
        // In the world's group, the rank of a process is its number.
        if self.process(process.0) == Some(process) {
            return Some(process.0);
        }
        self.0.iter().position(|other| *other == process).and_then(|at| u32::try_from(at).ok())
    }

    /// Whether the numbers of all processes are lower than this.
    pub(crate) fn is_below(&self, number: u32) -> bool {
        self.0.iter().all(|process| process.0 < number)
    }

    /// The processes by rank.
    pub fn processes(&self) -> &[ProcessId] {
        &self.0
    }

    /// The processes with these ranks, in this order.
    ///
    /// # Errors
    /// There is no such rank.
    pub fn include(&self, ranks: &[u32]) -> Result<Self, Error> {
        let size = self.size();
        let process = |rank: &u32| self.process(*rank).ok_or(Error::Rank { rank: *rank, size });
        Ok(Group::new(ranks.iter().map(process).collect::<Result<Vec<_>, _>>()?))
    }

    /// All processes except those with these ranks.
    ///
    /// # Errors
    /// There is no such rank.
    pub fn exclude(&self, ranks: &[u32]) -> Result<Self, Error> {
        Ok(self.difference(&self.include(ranks)?))
    }

    /// The processes of this group, then those that only the other group has.
    #[must_use]
    pub fn union(&self, other: &Group) -> Self {
        Group::new(self.0.iter().chain(&other.0).copied())
    }

    /// The processes of both groups, in the order of this group.
    #[must_use]
    pub fn intersection(&self, other: &Group) -> Self {
        let others = other.set();
        Group(self.0.iter().filter(|process| others.contains(process)).copied().collect())
    }

    /// The processes that are not in the other group.
    #[must_use]
    pub fn difference(&self, other: &Group) -> Self {
        let others = other.set();
        Group(self.0.iter().filter(|process| !others.contains(process)).copied().collect())
    }

    /// Compares this group with another.
    pub fn compare(&self, other: &Group) -> Likeness {
        if self == other {
            Likeness::Identical
        } else if self.size() == other.size() && self.set() == other.set() {
            Likeness::Similar
        } else {
            Likeness::Unequal
        }
    }

    /// The ranks in another group of the processes that have these ranks in this one.
    pub fn translate(&self, ranks: &[u32], other: &Group) -> Vec<Option<u32>> {
        let mut numbers: Option<HashMap<ProcessId, u32>> = None;
        let mut translate = |rank: &u32| {
            let process = self.process(*rank)?;
            // In the world's group, the rank of a process is its number.
            if other.process(process.0) == Some(process) {
                return Some(process.0);
            }
            let all = || other.0.iter().copied().zip(0..).collect();
            numbers.get_or_insert_with(all).get(&process).copied()
        };
        ranks.iter().map(&mut translate).collect()
    }

    fn set(&self) -> HashSet<ProcessId> {
        self.0.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(of: &[u32]) -> Group {
        Group::new(of.iter().copied().map(ProcessId))
    }

    #[test]
    fn sets_keep_their_order() {
        let a = group(&[5, 1, 3, 1]);
        let b = group(&[3, 4, 5]);
        assert_eq!(a, group(&[5, 1, 3]));
        assert_eq!(a.union(&b), group(&[5, 1, 3, 4]));
        assert_eq!(a.intersection(&b), group(&[5, 3]));
        assert_eq!(a.difference(&b), group(&[1]));
        assert_eq!(a.include(&[2, 0]).unwrap(), group(&[3, 5]));
        assert_eq!(a.exclude(&[0]).unwrap(), group(&[1, 3]));
        assert_eq!(a.include(&[3]), Err(Error::Rank { rank: 3, size: 3 }));
        assert_eq!(a.translate(&[0, 1, 2, 9], &b), [Some(2), None, Some(0), None]);
        assert_eq!(a.rank(ProcessId(3)), Some(2));
        assert_eq!(a.rank(ProcessId(0)), None);
        assert_eq!(a.compare(&group(&[1, 3, 5])), Likeness::Similar);
        assert_eq!(a.compare(&group(&[5, 1, 3])), Likeness::Identical);
        assert_eq!(a.compare(&b), Likeness::Unequal);
    }
}
