//! Which members of a communicator are on which machine.

use std::collections::HashMap;
use std::sync::Arc;

use tagmatch::shm::segment::MEMBERS_MAX;

use crate::driver::Channel;
use crate::group::Group;
use crate::life::Life;
use crate::net::ProcessId;

/// The members that map this process's segment.
#[derive(Clone)]
pub(crate) struct LocalMembers {
    pub(crate) group: Arc<Group>,
    /// Their ranks in the communicator, in ascending order.
    pub(crate) ranks: Vec<u32>,
    /// The place of this process among them.
    pub(crate) own: u32,
}

impl LocalMembers {
    /// All members of a communicator.
    pub(crate) fn all(life: &Life) -> Self {
        let ranks = (0..life.group.size()).collect();
        LocalMembers { group: Arc::clone(&life.group), ranks, own: life.own }
    }

    pub(crate) fn size(&self) -> u32 {
        self.group.size()
    }

    /// The communicator's channel as if these members were all. It is for making plans.
    pub(crate) fn part_of(&self, channel: &Channel) -> Channel {
        Channel { group: Arc::clone(&self.group), own: self.own, ..channel.clone() }
    }
}

/// The machines of a communicator's members. All members see the same ones.
pub(crate) struct Machines {
    pub(crate) local: LocalMembers,
    /// By machine: the ranks of its members, in ascending order. The machines are ordered by their
    /// lowest rank.
    ranks: Vec<Vec<u32>>,
    /// By rank: the number of the machine.
    of: Vec<u32>,
    /// One member of each machine.
    first: LocalMembers,
    /// Whether each machine has ranks that follow one another.
    pub(crate) is_in_order: bool,
}

impl Machines {
    /// `own`: this process's rank. `node` is the machine of a process; it is `None` for a process
    /// of another job. The result is `None` if leaders would have nothing to do, or if a machine
    /// has more members than a segment.
    pub(crate) fn new(
        group: &Group,
        own: u32,
        node: impl Fn(ProcessId) -> Option<u32>,
    ) -> Option<Self> {
        let mut numbers = HashMap::new();
        let mut ranks = Vec::<Vec<u32>>::new();
        let mut of = Vec::new();
        for (rank, process) in (0..).zip(group.processes()) {
            let next = ranks.len();
            let machine = *numbers.entry(node(*process)?).or_insert(next);
            if machine == next {
                ranks.push(Vec::new());
            }
            ranks[machine].push(rank);
            of.push(u32::try_from(machine).ok()?);
        }
        let most = ranks.iter().map(Vec::len).max()?;
        if ranks.len() < 2 || most < 2 || most > MEMBERS_MAX as usize {
            return None;
        }
        let part = |ranks: Vec<u32>, own: usize| {
            let group = Arc::new(group.include(&ranks).ok()?);
            Some(LocalMembers { group, ranks, own: u32::try_from(own).ok()? })
        };
        let machine = *of.get(own as usize)? as usize;
        let place = ranks[machine].iter().position(|rank| *rank == own)?;
        Some(Machines {
            local: part(ranks[machine].clone(), place)?,
            first: part(ranks.iter().map(|ranks| ranks[0]).collect(), machine)?,
            is_in_order: of.is_sorted(),
            ranks,
            of,
        })
    }

    /// The leaders of an operation with this root, by machine: the root leads its own machine, and
    /// the lowest rank leads each other one. An operation without a root has root 0, which leads
    /// its machine in any case.
    pub(crate) fn leaders(&self, root: u32) -> LocalMembers {
        let mut leaders = self.first.clone();
        leaders.ranks[self.machine(root)] = root;
        leaders
    }

    /// The number of a member's machine.
    pub(crate) fn machine(&self, rank: u32) -> usize {
        self.of.get(rank as usize).map_or(0, |machine| *machine as usize)
    }

    /// The place of this machine's leader among the local members.
    pub(crate) fn local_leader(&self, root: u32) -> u32 {
        let own = self.first.own as usize;
        let place = self.ranks[own].iter().position(|rank| *rank == root);
        place.and_then(|place| u32::try_from(place).ok()).unwrap_or(0)
    }
}
