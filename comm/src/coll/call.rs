//! The collective operations, and a call of one as data.

use super::op::Op;

/// A collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coll {
    /// All have come.
    Barrier,
    /// The root's bytes to all.
    Broadcast,
    /// All values, combined, to the root.
    Reduce,
    /// All values, combined, to all.
    Allreduce,
    /// A block of each to the root.
    Gather,
    /// A block to each from the root.
    Scatter,
    /// A block of each to all.
    Allgather,
    /// A block of each to each.
    Alltoall,
    /// The values up to the own one, combined.
    Scan,
    /// The values before the own one, combined.
    ExclusiveScan,
    /// A block of each to the root, of any lengths.
    Gatherv,
    /// A block to each from the root, of any lengths.
    Scatterv,
    /// A block of each to all, of any lengths.
    Allgatherv,
    /// A block of each to each, of any lengths.
    Alltoallv,
    /// All values, combined; a block of them to each, of any lengths.
    ReduceScatter,
}

/// How many there are.
pub(crate) const COLLS: usize = 15;

impl Coll {
    /// All of them.
    pub const ALL: [Coll; COLLS] = [
        Coll::Barrier,
        Coll::Broadcast,
        Coll::Reduce,
        Coll::Allreduce,
        Coll::Gather,
        Coll::Scatter,
        Coll::Allgather,
        Coll::Alltoall,
        Coll::Scan,
        Coll::ExclusiveScan,
        Coll::Gatherv,
        Coll::Scatterv,
        Coll::Allgatherv,
        Coll::Alltoallv,
        Coll::ReduceScatter,
    ];
}

/// A call of a collective operation, as the table's entries get it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Which operation.
    pub coll: Coll,
    /// The root, where there is one; else 0.
    pub root: u32,
    /// What this member gives.
    pub data: Vec<u8>,
    /// Bytes for each rank, where they may differ.
    pub sends: Vec<usize>,
    /// Bytes from each rank, where they may differ; one number where there is one source.
    pub receives: Vec<usize>,
    /// What values are combined with, where they are.
    pub op: Option<Op>,
}

impl Call {
    pub(crate) fn new(coll: Coll, root: u32, data: Vec<u8>) -> Self {
        Call { coll, root, data, sends: Vec::new(), receives: Vec::new(), op: None }
    }

    pub(crate) fn sending(self, sends: &[usize]) -> Self {
        Call { sends: sends.to_vec(), ..self }
    }

    pub(crate) fn receiving(self, receives: &[usize]) -> Self {
        Call { receives: receives.to_vec(), ..self }
    }

    pub(crate) fn with(self, op: &Op) -> Self {
        Call { op: Some(op.clone()), ..self }
    }
}
