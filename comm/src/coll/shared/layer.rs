//! The layer: for which communicators it is, and the entries of the table that it overrides.

use std::sync::Arc;

use tagmatch::shm::segment::MEMBERS_MAX;

use crate::coll::call::{Call, Coll};
use crate::coll::table::{Attached, CollLayer, TableBuilder};
use crate::comm::{Comm, CommInfo};
use crate::error::Error;
use crate::net::{Net, ProcessId};

use super::members::SharedMembers;
use super::operation::Shape;
use super::running;

/// The operations that go through the segment.
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

    /// Whether the members are of this job and on one machine. All members give the same answer: a
    /// communicator with members of two jobs has a foreign one at each.
    fn is_for(&self, comm: &CommInfo) -> bool {
        let mut nodes = comm.group.processes().iter().map(|at| self.nodes.get(at.0 as usize));
        let first = nodes.next().flatten();
        (2..=MEMBERS_MAX).contains(&comm.group.size())
            && first.is_some()
            && nodes.all(|node| node == first)
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
        self.is_for(comm).then_some(0)
    }

    fn patch(&self, _: u64, table: &mut TableBuilder<N>) -> Result<(), Error> {
        for coll in COLLS {
            table.start(coll, running::start);
            table.run(coll, running::run);
        }
        Ok(())
    }

    fn attach(&self, _: &CommInfo) -> Result<Attached, Error> {
        Ok(Box::new(Arc::new(SharedMembers::new())))
    }
}

/// Whether a call goes through shared memory where the members have some. All members give the same
/// answer.
pub(crate) fn takes<N: Net>(comm: &Comm<N>, call: &Call) -> bool {
    let is_for = comm.inner.bound.attached::<Arc<SharedMembers>>().is_some();
    is_for && COLLS.contains(&call.coll) && Shape::of(call, comm.size()).is_some()
}
