//! The list of collective operations, and the arguments of one call as data.

use tagmatch::Buffer;

use super::op::Op;

/// A collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Coll {
    /// Waits until all members have called it.
    Barrier,
    /// Copies the root's bytes to all members.
    Broadcast,
    /// Combines the values of all members at the root.
    Reduce,
    /// Combines the values of all members at all members.
    Allreduce,
    /// Collects one block of each member at the root.
    Gather,
    /// Sends one block of the root's bytes to each member.
    Scatter,
    /// Collects one block of each member at all members.
    Allgather,
    /// Sends one block of each member to each member.
    Alltoall,
    /// Combines the values of the ranks up to and including this member's.
    Scan,
    /// Combines the values of the ranks before this member's.
    ExclusiveScan,
    /// [`Gather`](Coll::Gather) with blocks of different lengths.
    Gatherv,
    /// [`Scatter`](Coll::Scatter) with blocks of different lengths.
    Scatterv,
    /// [`Allgather`](Coll::Allgather) with blocks of different lengths.
    Allgatherv,
    /// [`Alltoall`](Coll::Alltoall) with blocks of different lengths.
    Alltoallv,
    /// Combines the values of all members, and sends one block of the result to each member.
    ReduceScatter,
}

/// The number of collective operations.
pub(crate) const COLLS: usize = 15;

impl Coll {
    /// All collective operations, in the order of their numbers.
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

/// A call of a collective operation: the arguments that an entry of the table gets.
#[derive(Clone, Debug)]
pub struct Call {
    /// The operation.
    pub coll: Coll,
    /// The rank of the root; 0 for an operation without a root.
    pub root: u32,
    /// The bytes that this member contributes, in one run: not several slices.
    pub data: Buffer,
    /// The bytes of the block for each rank, for operations with blocks of different lengths;
    /// otherwise empty.
    pub sends: Vec<usize>,
    /// The bytes of the block from each rank, for operations with blocks of different lengths. One
    /// number for the scatters, in which this member gets a single block. Otherwise empty.
    pub receives: Vec<usize>,
    /// The operation that combines values, for reductions and scans.
    pub op: Option<Op>,
}

impl Call {
    /// The length of the block that this member gets from a scatter.
    pub(super) fn own_block(&self) -> usize {
        self.receives.first().copied().unwrap_or(0)
    }

    /// A call without a root and without data.
    pub(crate) fn empty(coll: Coll) -> Self {
        Call::new(coll, 0, Buffer::default())
    }

    #[inline]
    pub(crate) fn new(coll: Coll, root: u32, data: impl Into<Buffer>) -> Self {
        let mut data = data.into();
        // Several slices are no run of bytes.
        if !data.is_vec() && data.slices().is_some() {
            data = data.into_vec().into();
        }
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
