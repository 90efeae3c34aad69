//! Revocations: a reliable broadcast among the members of a communicator.
//!
//! A process that hears of a revocation for the first time passes it on to the members at distances
//! of powers of two. The nearest living members on both sides are among them, so the living members
//! form a ring. When a member dies, its neighbours pass the revocation on again, and close the
//! ring.

use std::collections::VecDeque;

use super::control::Control;
use super::registry::Registry;
use super::service_io::ServiceIo;
use crate::group::Group;
use crate::life::{Key, Life};
use crate::net::{Net, ProcessId};

/// The most revoked communicators that are remembered, so that members are told again when one
/// dies.
const REVOKED_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Revocations {
    revoked: VecDeque<(Key, Group)>,
}

impl Revocations {
    /// How many revocations are remembered beyond the most.
    pub(super) fn surplus(&self) -> usize {
        self.revoked.len().saturating_sub(REVOKED_MAX)
    }

    /// Whether this process has heard that a communicator is revoked.
    pub(super) fn contains(&self, life: &Life) -> bool {
        self.knows(life.key, &life.group)
    }

    pub(super) fn knows(&self, key: Key, group: &Group) -> bool {
        self.revoked.iter().any(|(of, members)| *of == key && members == group)
    }

    /// Remembers a revocation that is new, and tells the members.
    pub(super) fn add<N: Net>(&mut self, io: &mut ServiceIo<'_, N>, key: Key, group: Group) {
        tell(io, key, &group, true);
        if self.revoked.len() == REVOKED_MAX {
            self.revoked.pop_front();
        }
        self.revoked.push_back((key, group));
    }

    /// A process is down: its neighbours among the members are told again.
    pub(super) fn die<N: Net>(&self, io: &mut ServiceIo<'_, N>, process: ProcessId) {
        let affected = self.revoked.iter().filter(|(_, group)| group.rank(process).is_some());
        affected.for_each(|(key, group)| tell(io, *key, group, false));
    }
}

/// Tells the [`neighbours`].
fn tell<N: Net>(io: &mut ServiceIo<'_, N>, key: Key, group: &Group, everywhere: bool) {
    let to = neighbours(io.registry, group, everywhere);
    io.context.send_all(io.net, to, &Control::Revoke { key, group: group.clone() });
}

/// The nearest living members on both sides of this process, and `everywhere`: the members at
/// distances of powers of two as well.
pub(super) fn neighbours(registry: &Registry, group: &Group, everywhere: bool) -> Vec<ProcessId> {
    let (size, Some(own)) = (group.size(), group.rank(registry.own)) else { return Vec::new() };
    let powers = (0..u32::BITS).map(|power| 1 << power).take_while(|by| *by < size);
    let mut to: Vec<u32> = powers
        .filter(|_| everywhere)
        .flat_map(|by| [(own + by) % size, (own + size - by) % size])
        .collect();
    let is_alive =
        |rank: &u32| group.process(*rank).is_some_and(|process| !registry.is_down(process));
    to.extend((1..size).map(|by| (own + by) % size).find(is_alive));
    to.extend((1..size).map(|by| (own + size - by) % size).find(is_alive));
    to.sort_unstable();
    to.dedup();
    to.iter().filter(|rank| is_alive(rank)).filter_map(|rank| group.process(*rank)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ranks that a member of a group of 11 tells while some ranks are down.
    fn told(own: u32, down: &[u32], everywhere: bool) -> Vec<u32> {
        let process = |rank: u32| ProcessId(100 + rank);
        let group = Group::new((0..11).map(process));
        let mut registry = Registry::new(process(own));
        for rank in down {
            registry.learn(process(*rank));
        }
        let to = neighbours(&registry, &group, everywhere);
        to.iter().map(|process| group.rank(*process).unwrap()).collect()
    }

    #[test]
    fn a_death_is_told_to_the_nearest_living_member_on_each_side() {
        for (own, down, to) in [
            (0, &[][..], [1, 10]),
            (5, &[], [4, 6]),
            (10, &[], [0, 9]),
            (0, &[1, 2, 10], [3, 9]),
            (9, &[0, 10, 8, 7, 6], [1, 5]),
            (1, &[0, 10, 2], [3, 9]),
            (6, &[7, 8, 9, 10, 0], [1, 5]),
        ] {
            assert_eq!(told(own, down, false), to, "rank {own} without {down:?}");
        }
        // Both sides meet at the only other member that lives.
        assert_eq!(told(4, &[0, 1, 2, 3, 5, 6, 7, 8, 10], false), [9]);
        assert_eq!(told(4, &[0, 1, 2, 3, 5, 6, 7, 8, 9, 10], false), []);
    }

    #[test]
    fn a_new_revocation_goes_to_living_members_at_powers_of_two_and_to_the_nearest_ones() {
        for (own, down, to) in [
            (0, &[][..], &[1, 2, 3, 4, 7, 8, 9, 10][..]),
            (4, &[], &[0, 1, 2, 3, 5, 6, 7, 8]),
            (9, &[], &[0, 1, 2, 5, 6, 7, 8, 10]),
            (3, &[2, 4, 1, 5, 10, 7], &[0, 6]),
            (9, &[10, 8, 0, 2], &[1, 5, 6, 7]),
            // The members at the distances of powers of two are all down.
            (4, &[0, 1, 2, 3, 5, 6, 7, 8], &[9, 10]),
        ] {
            assert_eq!(told(own, down, true), to, "rank {own} without {down:?}");
        }
    }

    #[test]
    fn a_process_that_is_no_member_tells_nobody() {
        let group = Group::new([1, 2].map(ProcessId));
        assert_eq!(neighbours(&Registry::new(ProcessId(7)), &group, true), []);
    }
}
