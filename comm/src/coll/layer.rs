//! The layer: for which communicators it is, and the entries of the table that it overrides.

use std::sync::Arc;

use tagmatch::shm::segment::MEMBERS_MAX;

use super::leaders::{self, Leaders};
use super::running;
use crate::comm::{Attached, CollLayer, Comm, CommInfo, TableBuilder};
use crate::error::Error;
use crate::net::{Net, ProcessId};
use crate::plans::{Call, Coll};
use crate::shared_memory::{Machines, RoundShape, SharedMembers};

/// All members are on one machine.
const ONE_MACHINE: u64 = 0;
/// One leader of each machine takes part in the messages.
const LEADERS: u64 = 1;

/// The operations that go through the segment, if all members are on one machine.
const COLLS: [Coll; 6] = [
    Coll::Barrier,
    Coll::Broadcast,
    Coll::Reduce,
    Coll::Allreduce,
    Coll::Allgather,
    Coll::Alltoall,
];

/// Collective operations in shared memory. It lies beneath the layers of the program.
pub(crate) struct SharedLayer {
    /// The machine of each process of the job.
    nodes: Vec<u32>,
}

impl SharedLayer {
    pub(crate) fn new<N: Net>(net: &N) -> Self {
        SharedLayer { nodes: (0..net.processes()).map(|at| net.node(ProcessId(at))).collect() }
    }

    fn node(&self, process: ProcessId) -> Option<u32> {
        self.nodes.get(process.0 as usize).copied()
    }

    /// Whether the members are of this job and on one machine. All members give the same answer: a
    /// communicator with members of two jobs has a foreign one at each.
    fn is_for_all(&self, comm: &CommInfo) -> bool {
        let mut nodes = comm.group.processes().iter().map(|at| self.node(*at));
        let first = nodes.next().flatten();
        (2..=MEMBERS_MAX).contains(&comm.group.size())
            && first.is_some()
            && nodes.all(|node| node == first)
    }

    /// The machines of the members, if leaders have something to do. All members give the same
    /// answer.
    fn machines(&self, comm: &CommInfo) -> Option<Machines> {
        Machines::new(&comm.group, comm.rank, |process| self.node(process))
    }
}

impl<N: Net> CollLayer<N> for SharedLayer {
    fn name(&self) -> &str {
        "shared memory"
    }

    fn level(&self) -> u32 {
        0
    }

    fn variant(&self, comm: &CommInfo) -> Option<u64> {
        if self.is_for_all(comm) {
            return Some(ONE_MACHINE);
        }
        self.machines(comm).map(|_| LEADERS)
    }

    fn patch(&self, variant: u64, table: &mut TableBuilder<N>) -> Result<(), Error> {
        if variant == LEADERS {
            for coll in leaders::COLLS {
                table.start(coll, leaders::start);
                table.run(coll, leaders::run);
            }
            return Ok(());
        }
        for coll in COLLS {
            table.start(coll, running::start);
            table.run(coll, running::run);
        }
        Ok(())
    }

    fn attach(&self, comm: &CommInfo) -> Result<Attached, Error> {
        Ok(match self.machines(comm) {
            Some(machines) => Box::new(Arc::new(Leaders::new(machines))),
            None => Box::new(Arc::new(SharedMembers::new())),
        })
    }
}

/// Whether a call goes through shared memory alone where the members have some. All members give
/// the same answer.
pub(crate) fn takes<N: Net>(comm: &Comm<N>, call: &Call) -> bool {
    comm.inner.shared.is_some()
        && COLLS.contains(&call.coll)
        && RoundShape::of(call, comm.size()).is_some()
}
