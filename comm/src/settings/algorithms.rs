//! The lengths from which on collective operations use other algorithms.

/// The number of pairs of an alltoall of short messages that are under way at the same time.
pub(crate) const PAIRS_MAX: u32 = 32;

/// The lengths from which on collective operations use other algorithms. All processes of a job
/// must have equal values. Any number is allowed.
///
/// The defaults are those of Thakur, Rabenseifner and Gropp, "Optimization of Collective
/// Communication Operations in MPICH", IJHPCA 19(1), 2005.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithms {
    /// A broadcast of at least this many bytes, among at least
    /// [`broadcast_members`](Self::broadcast_members), scatters the message and gathers it again
    /// around a ring. Other broadcasts use a binomial tree. Default: 12 KiB.
    pub broadcast_long: usize,
    /// The smallest number of members of a long broadcast. Default: 8.
    pub broadcast_members: u32,
    /// A reduction of at least this many bytes is Rabenseifner's: recursive halving, then a gather.
    /// Shorter ones, and those whose operation is not commutative, use a binomial tree. Default: 2
    /// KiB.
    pub reduce_long: usize,
    /// An allreduce of at least this many bytes is Rabenseifner's: recursive halving, then
    /// recursive doubling. Shorter ones, and those whose operation is not commutative, use
    /// recursive doubling of the whole message. Default: 2 KiB.
    pub allreduce_long: usize,
    /// An allgather of at least this many bytes of all members together uses a ring. Shorter ones
    /// are Bruck's. Default: 80 KiB.
    pub allgather_long: usize,
    /// An alltoall of up to this many bytes for each member, among at least
    /// [`alltoall_members`](Self::alltoall_members), is Bruck's: each member sends to few others,
    /// and each block goes by several members. Longer ones go from pair to pair. Default: 256.
    pub alltoall_short: usize,
    /// The smallest number of members of a short alltoall. Default: 8.
    pub alltoall_members: u32,
    /// An alltoall of at least this many bytes for each member has one pair of messages under way
    /// at a time. Shorter ones have up to 32. Default: 32 KiB.
    pub alltoall_long: usize,
    /// A reduce-scatter of at least this many bytes goes from pair to pair. Shorter ones use
    /// recursive halving. If the operation is not commutative, each member receives all operands
    /// for its block, and combines them. Default: 512 KiB.
    pub reduce_scatter_long: usize,
}

impl Default for Algorithms {
    fn default() -> Self {
        Algorithms {
            broadcast_long: 12 << 10,
            broadcast_members: 8,
            reduce_long: 2 << 10,
            allreduce_long: 2 << 10,
            allgather_long: 80 << 10,
            alltoall_short: 256,
            alltoall_members: 8,
            alltoall_long: 32 << 10,
            reduce_scatter_long: 512 << 10,
        }
    }
}

impl Algorithms {
    /// Whether the blocks of an alltoall go by several members. `block`: bytes for each member.
    pub(crate) fn is_short_alltoall(&self, block: usize, members: u32) -> bool {
        block <= self.alltoall_short && members >= self.alltoall_members
    }

    /// The number of pairs of an alltoall that are under way at the same time. `block`: bytes for
    /// each member.
    pub(crate) fn pairs_at_once(&self, block: usize) -> u32 {
        if block >= self.alltoall_long { 1 } else { PAIRS_MAX }
    }
}
