//! Collective operations with lengths around the thresholds of their algorithms. Each result is
//! compared with the definition of the operation.

use std::collections::BTreeSet;

use common::{Sims, try_run};
use tagmatch_comm::Config;
use tagmatch_comm::coll::{Algorithms, Op, from_bytes, to_bytes};

use crate::common;

/// The value of a rank at an index.
fn value(rank: u32, at: usize) -> u32 {
    (rank + 1).wrapping_mul(2_654_435_761).wrapping_add(u32::try_from(at).unwrap() * 7)
}

fn values(rank: u32, count: usize) -> Vec<u32> {
    (0..count).map(|at| value(rank, at)).collect()
}

fn sum(ranks: u32, at: usize) -> u32 {
    (0..ranks).fold(0, |sum: u32, rank| sum.wrapping_add(value(rank, at)))
}

/// Numbers of values just below, at and just above each threshold that counts all bytes of a
/// member.
fn counts(thresholds: &[usize]) -> BTreeSet<usize> {
    let around = |bytes: &usize| [bytes / 4 - 1, bytes / 4, bytes / 4 + 1];
    thresholds.iter().flat_map(around).collect()
}

async fn check(runtime: Sims, algorithms: Algorithms) {
    let world = runtime.world();
    let rank = world.rank();
    let size = world.size();
    let plus = Op::sum::<u32>();
    let Algorithms { broadcast_long, reduce_long, allreduce_long, .. } = algorithms;
    for count in counts(&[broadcast_long, reduce_long, allreduce_long]) {
        let own = || to_bytes(&values(rank, count));
        let total: Vec<u32> = (0..count).map(|at| sum(size, at)).collect();
        let all = world.allreduce(own(), &plus).await.unwrap();
        assert_eq!(from_bytes::<u32>(&all), total, "allreduce, {size} ranks, {count} values");
        for root in BTreeSet::from([0, 1 % size, size - 1]) {
            let result = world.broadcast(root, own()).await.unwrap();
            assert_eq!(from_bytes::<u32>(&result), values(root, count), "broadcast, {size} ranks");
            let reduced = world.reduce(root, own(), &plus).await.unwrap();
            let due = if rank == root { total.clone() } else { Vec::new() };
            assert_eq!(from_bytes::<u32>(&reduced), due, "reduce to {root} of {size}, {count}");
        }
    }
    for count in counts(&[algorithms.allgather_long.div_ceil(size as usize)]) {
        let result = world.allgather(to_bytes(&values(rank, count))).await.unwrap();
        let due: Vec<u32> = (0..size).flat_map(|rank| values(rank, count)).collect();
        assert_eq!(from_bytes::<u32>(&result), due, "allgather, {size} ranks, {count} values");
    }
    for count in counts(&[algorithms.alltoall_short, algorithms.alltoall_long]) {
        let given: Vec<u32> = (0..size).flat_map(|to| values(100 * rank + to, count)).collect();
        let due: Vec<u32> = (0..size).flat_map(|from| values(100 * from + rank, count)).collect();
        let result = world.alltoall(to_bytes(&given)).await.unwrap();
        assert_eq!(from_bytes::<u32>(&result), due, "alltoall, {size} ranks, {count} values");
    }
    for count in counts(&[algorithms.reduce_scatter_long]) {
        // Blocks of different lengths. The first one is empty if there are several.
        let part =
            |rank: u32| (rank as usize * count).div_euclid((size * (size - 1) / 2).max(1) as usize);
        let mut parts: Vec<usize> = (0..size).map(part).collect();
        parts[size as usize - 1] += count - parts.iter().sum::<usize>();
        let lengths: Vec<usize> = parts.iter().map(|values| 4 * values).collect();
        let given = to_bytes(&values(rank, count));
        let own = world.reduce_scatter(given, &lengths, &plus).await.unwrap();
        let start: usize = parts[..rank as usize].iter().sum();
        let due: Vec<u32> = (start..start + parts[rank as usize]).map(|at| sum(size, at)).collect();
        assert_eq!(from_bytes::<u32>(&own), due, "reduce-scatter, {size} ranks, {count} values");
    }
}

fn each_size(algorithms: Algorithms) {
    for size in 1..=9 {
        let config = || Config::default().algorithms(algorithms);
        let ran = try_run(size, size.into(), &[], config, |runtime| check(runtime, algorithms));
        ran.unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

#[test]
fn lengths_around_the_default_thresholds() {
    each_size(Algorithms::default());
}

/// The parts of a message have several values, one value or none.
#[test]
fn lengths_around_low_thresholds() {
    let algorithms = Algorithms {
        broadcast_long: 16,
        broadcast_members: 2,
        reduce_long: 12,
        allreduce_long: 20,
        allgather_long: 100,
        alltoall_short: 8,
        alltoall_members: 2,
        alltoall_long: 16,
        reduce_scatter_long: 64,
    };
    each_size(algorithms);
    let all = Algorithms { allreduce_long: 8, reduce_long: 4, broadcast_long: 4, ..algorithms };
    each_size(all);
}

/// Messages of all lengths are combined in the order of ranks.
#[test]
fn operands_that_do_not_commute_are_not_reordered() {
    // The first byte of the left operand, and the last byte of the right one.
    let ends = || {
        let combine = |left: &[u8], right: &mut [u8]| {
            left.chunks_exact(2).zip(right.chunks_exact_mut(2)).for_each(|(l, r)| r[0] = l[0]);
        };
        Op::new(2, false, combine).unwrap()
    };
    for size in 1..=9u8 {
        let ran = try_run(size.into(), 3, &[], Config::default, |runtime| async move {
            let world = runtime.world();
            let own = [u8::try_from(world.rank()).unwrap(); 2].repeat(4000);
            let due = [0, size - 1].repeat(4000);
            assert_eq!(world.allreduce(own.clone(), &ends()).await.unwrap(), due);
            let reduced = world.reduce(0, own.clone(), &ends()).await.unwrap();
            assert_eq!(reduced, if world.rank() == 0 { due.clone() } else { Vec::new() });
            let lengths = vec![0; usize::from(size) - 1].into_iter().chain([8000]);
            let lengths: Vec<usize> = lengths.collect();
            let part = world.reduce_scatter(own, &lengths, &ends()).await.unwrap();
            assert_eq!(part, if world.rank() == u32::from(size) - 1 { due } else { Vec::new() });
        });
        ran.unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}
