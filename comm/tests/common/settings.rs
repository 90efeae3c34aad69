//! Settings that differ between processes.

use tagmatch::TagLayout;
use tagmatch_comm::Config;
use tagmatch_comm::coll::Algorithms;
use tagmatch_comm::ids::IdLayout;
use tagmatch_comm::net::Net;

/// Each setting that must be equal, a configuration in which it differs from the default, and both
/// values.
pub(crate) fn others<N: Net>() -> Vec<(&'static str, Config<N>, [u64; 2])> {
    let default = Config::<N>::default;
    let ids = |words, has_local, predefined| {
        default().ids(IdLayout::new(words, has_local, predefined).unwrap())
    };
    let tags = |context, source, tag| default().tags(TagLayout::new(context, source, tag).unwrap());
    let algorithms = |change: fn(&mut Algorithms)| {
        let mut algorithms = Algorithms::default();
        change(&mut algorithms);
        default().algorithms(algorithms)
    };
    vec![
        ("words of ids", ids(5, true, 2), [64, 32]),
        ("bits of ids", ids(6, false, 2), [16, 15]),
        ("predefined of ids", ids(6, true, 3), [2, 3]),
        ("eager_words", default().eager_words(3), [2, 3]),
        ("context_bits of tags", tags(20, 20, 24), [16, 20]),
        ("source_bits of tags", tags(16, 20, 24), [24, 20]),
        ("tag_bits of tags", tags(16, 24, 20), [24, 20]),
        ("broadcast_long of algorithms", algorithms(|all| all.broadcast_long = 1), [12 << 10, 1]),
        ("broadcast_members of algorithms", algorithms(|all| all.broadcast_members = 2), [8, 2]),
        ("reduce_long of algorithms", algorithms(|all| all.reduce_long = 1), [2 << 10, 1]),
        ("allreduce_long of algorithms", algorithms(|all| all.allreduce_long = 1), [2 << 10, 1]),
        ("allgather_long of algorithms", algorithms(|all| all.allgather_long = 1), [80 << 10, 1]),
        ("alltoall_short of algorithms", algorithms(|all| all.alltoall_short = 1), [256, 1]),
        ("alltoall_members of algorithms", algorithms(|all| all.alltoall_members = 2), [8, 2]),
        ("alltoall_long of algorithms", algorithms(|all| all.alltoall_long = 1), [32 << 10, 1]),
        (
            "reduce_scatter_long of algorithms",
            algorithms(|all| all.reduce_scatter_long = 1),
            [512 << 10, 1],
        ),
        ("shared_memory", default().shared_memory(false), [1, 0]),
    ]
}
