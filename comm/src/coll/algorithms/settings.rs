//! Where collective operations change from one algorithm to another.

/// Pairs of an alltoall of short messages that are under way at once.
pub(super) const PAIRS_MAX: u32 = 32;

/// Where collective operations change from one algorithm to another. Alike in all processes of a job.
///
/// The defaults are those of Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
/// Operations in MPICH", IJHPCA 19(1), 2005.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithms {
    /// From so many bytes on, and from [`broadcast_members`](Self::broadcast_members) on, a broadcast
    /// scatters the message and gathers it again around a ring; else it goes along a binomial tree.
    pub broadcast_long: usize,
    /// Members of a long broadcast.
    pub broadcast_members: u32,
    /// From so many bytes on, a reduction is Rabenseifner's: by recursive halving, then gathered; else it
    /// goes along a binomial tree. In the order of ranks it always does.
    pub reduce_long: usize,
    /// From so many bytes on, an allreduce is Rabenseifner's: by recursive halving, then doubling; else, and
    /// in the order of ranks, the whole goes through recursive doubling.
    pub allreduce_long: usize,
    /// From so many bytes of all members together on, an allgather goes around a ring; else it is Bruck's.
    pub allgather_long: usize,
    /// From so many bytes for each member on, an alltoall has one pair of messages under way; else up to 32.
    pub alltoall_long: usize,
    /// From so many bytes on, a reduce-scatter goes from pair to pair; else by recursive halving. In the order
    /// of ranks each gets all that is for it and combines it.
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
            alltoall_long: 32 << 10,
            reduce_scatter_long: 512 << 10,
        }
    }
}

impl Algorithms {
    /// How many pairs of an alltoall with blocks of so many bytes are under way at once.
    pub(crate) fn pairs_at_once(&self, block: usize) -> u32 {
        if block >= self.alltoall_long { 1 } else { PAIRS_MAX }
    }
}
