//! How the members of a communicator learn, by their later allocations, that an id may be given out
//! again.
//!
//! A process that has freed an id *closes* it towards each process that it has sent to in the id:
//! it sends a *closing*, which arrives after all of these messages. So nothing can arrive any more
//! once all members have freed the id, and as many closings have arrived as were sent. The
//! reductions of allocations find that out, without a message of their own. Each round of an
//! allocation has three parts that are about freed ids:
//!
//! 1. A bit for each id: whether this process has closed the id, or has nothing to do with it. The
//!    bitwise AND is the set of ids that all have closed. A process *agrees* on these, for the
//!    processes that take part in the round.
//! 2. A sum over the uses of ids that were agreed on in an earlier round of the same processes. For
//!    each use a process adds the number of closings that it has sent, less the number that it has
//!    received, times a weight. The weight is a hash of the use's name.
//! 3. In the same sum, each member of a use adds a second hash of the name, and the first member
//!    takes away as many of them as there are other members. So these terms are 0 in sum only if
//!    all members have added the same use.
//!
//! # Why an id is free where the sum is 0
//! - A use has its name for ever, and a member adds it only when it has freed the use, and has sent
//!   all closings. So the number of closings that it has sent is final, whenever it adds them. The
//!   number of those received only grows. If all members have added a use, and the difference is 0,
//!   every closing has arrived, and so has every message before it.
//! - If the sum is 0, each use in it was added by all of its members, and has the difference 0. The
//!   terms of different uses can cancel each other only if their weights happen to fit: the
//!   probability is 2^-64, as for two communicators with one epoch.
//! - It does not matter whether all processes add the same uses, or in which order they free them.
//!   If they do not, the sum is not 0, and nothing becomes free in this round. The bits make that
//!   rare: they are no part of the argument.
//! - It does not matter whether the id was used again by other processes, in a communicator that
//!   has none of the members for which it rests. The sum is about uses, and not about ids.
//!
//! # Which uses are left to the sweep
//! A use becomes a *stray* in a process, for ever, if the process can't add it any more as its
//! other members do. A stray is settled by asking (`ft/rest.rs`). This happens
//! - if a round that it was added in has failed in this process: in another one the sum may have
//!   been 0, and the use is forgotten there;
//! - if another process has asked about it;
//! - if sums that it was added in were not 0 too often: then another member may have no such use,
//!   since its part of the creation has failed;
//! - if the processes of allocations that find no id at once don't contain its members;
//! - if an allocation is about to fail since all ids are taken.
//!
//! A member that has died takes part in no allocation. So after a death the uses of its
//! communicators become strays in one of these ways.

use std::sync::Arc;

use crate::group::Group;

/// A use that was in as many sums that were not 0 becomes a stray.
const IN_VAIN_MAX: u32 = 16;
/// For as many groups of processes a use remembers whether they have agreed on it.
const OVERS_MAX: usize = 4;

/// A use of an id that this process has freed, and closed towards all that it has sent to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClosedUse {
    name: u64,
    /// The members.
    group: Arc<Group>,
    weight: u64,
    /// The part of this member's term that doesn't depend on closings.
    share: u64,
    sent: u32,
    received: u32,
    /// In how many sums the use was that were not 0.
    in_vain: u32,
    /// For each group of processes that has made allocations: what the allocations have shown about
    /// the use. The latest group comes last.
    overs: Vec<Over>,
}

/// A use in the allocations of a group of processes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Over {
    processes: Arc<Group>,
    /// Whether all members of the use are among the processes.
    carries: bool,
    /// Whether all of the processes have closed the id.
    is_agreed: bool,
}

impl ClosedUse {
    /// `weights`: two hashes of the name. `is_first`: this process is the first member. `sent` and
    /// `received` are numbers of closings.
    pub(crate) fn new(
        name: u64,
        group: &Arc<Group>,
        [weight, of_member]: [u64; 2],
        is_first: bool,
        [sent, received]: [u32; 2],
    ) -> Self {
        let others = u64::from(group.size()) - 1;
        let share =
            if is_first { others.wrapping_neg().wrapping_mul(of_member) } else { of_member };
        let group = Arc::clone(group);
        let overs = Vec::new();
        ClosedUse { name, group, weight, share, sent, received, in_vain: 0, overs }
    }

    pub(crate) fn name(&self) -> u64 {
        self.name
    }

    /// Notes how many closings have been received.
    pub(crate) fn receive(&mut self, received: u32) {
        self.received = received;
    }

    fn over(&mut self, processes: &Arc<Group>) -> &mut Over {
        let found = self.overs.iter().position(|over| over.processes == *processes);
        let at = found.unwrap_or_else(|| {
            if self.overs.len() == OVERS_MAX {
                self.overs.remove(0);
            }
            let carries = self.group == *processes || self.group.difference(processes).size() == 0;
            let processes = Arc::clone(processes);
            self.overs.push(Over { processes, carries, is_agreed: false });
            self.overs.len() - 1
        });
        &mut self.overs[at]
    }

    /// Whether the allocations of these processes can settle the use: all members are among them.
    pub(crate) fn is_carried_by(&mut self, processes: &Arc<Group>) -> bool {
        self.over(processes).carries
    }

    /// A round of an allocation of these processes has shown whether all of them have closed the
    /// id.
    pub(crate) fn agree(&mut self, processes: &Arc<Group>, have_all: bool) {
        let over = self.over(processes);
        over.is_agreed = have_all && over.carries;
    }

    /// The term that this process adds to the sum of a round of these processes. `None`: the
    /// processes have not agreed on the use, so this process adds nothing.
    pub(crate) fn term(&mut self, processes: &Arc<Group>) -> Option<u64> {
        let is_agreed = self.over(processes).is_agreed;
        let missing = u64::from(self.sent).wrapping_sub(self.received.into());
        is_agreed.then(|| self.weight.wrapping_mul(missing).wrapping_add(self.share))
    }

    /// A sum that the use was in was not 0. Returns whether the use is to become a stray.
    pub(crate) fn fail(&mut self) -> bool {
        self.in_vain += 1;
        self.in_vain == IN_VAIN_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::ProcessId;

    fn group(of: impl IntoIterator<Item = u32>) -> Arc<Group> {
        Arc::new(Group::new(of.into_iter().map(ProcessId)))
    }

    /// The parts of three members in the sum, of which each has sent to the next one.
    fn terms(received: [u32; 3]) -> [u64; 3] {
        let members = group(2..5);
        let over = group(0..6);
        let weights = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9];
        let mut first = true;
        received.map(|received| {
            let is_first = std::mem::take(&mut first);
            let mut used = ClosedUse::new(1, &members, weights, is_first, [1, received]);
            assert_eq!(used.term(&over), None);
            used.agree(&over, true);
            used.term(&over).unwrap()
        })
    }

    fn sum(terms: impl IntoIterator<Item = u64>) -> u64 {
        terms.into_iter().fold(0, u64::wrapping_add)
    }

    #[test]
    fn the_sum_is_0_only_if_all_members_add_the_use_and_all_closings_have_arrived() {
        for received in 0..8u32 {
            let terms = terms([0, 1, 2].map(|bit| received >> bit & 1));
            assert_eq!(sum(terms) == 0, received == 7, "{received:03b}");
            for left_out in 0..3 {
                let others = (0..3).filter(|at| *at != left_out).map(|at| terms[at]);
                assert_ne!(sum(others), 0, "{received:03b} without {left_out}");
            }
        }
    }

    #[test]
    fn only_processes_with_all_members_settle_a_use() {
        let mut used = ClosedUse::new(1, &group(2..5), [3, 5], true, [0, 0]);
        for (over, carries) in [(1..9, true), (2..4, false), (3..9, false), (2..5, true)] {
            let over = group(over);
            used.agree(&over, true);
            assert_eq!((used.is_carried_by(&over), used.term(&over).is_some()), (carries, carries));
        }
        // One of the processes has not closed it after all.
        used.agree(&group(2..5), false);
        assert_eq!(used.term(&group(2..5)), None);
        assert!(used.term(&group(1..9)).is_some());
        for first in 10..20 {
            used.agree(&group((first..50).chain(2..5)), true);
        }
        assert_eq!(used.overs.len(), OVERS_MAX);
    }

    #[test]
    fn a_use_in_many_sums_in_vain_becomes_a_stray() {
        let mut used = ClosedUse::new(1, &group(2..5), [3, 5], true, [0, 0]);
        assert_eq!((0..40).filter(|_| used.fail()).count(), 1);
    }
}
