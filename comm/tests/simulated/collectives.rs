//! Collective operations between many simulated processes. Each result is compared with the
//! definition of the operation.

use std::sync::Arc;

use common::{Sims, run, try_run};
use tagmatch::{Buffer, TagLayout};
use tagmatch_comm::coll::{Op, from_bytes, into_elements, to_bytes};
use tagmatch_comm::{Config, Error};
use tagmatch_comm_sim::{Sim, SimConfig};

use crate::common::inter_coll::compose;
use crate::common::{self, join};

const SIZES: [u32; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 33];

/// The block that `rank` sends to `to`: a few numbers that identify both ranks.
fn block(rank: u32, to: u32) -> Vec<u8> {
    to_bytes(&[rank, to, rank * 1000 + to])
}

fn blocks(ranks: u32, of: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    (0..ranks).flat_map(of).collect()
}

#[test]
fn every_operation_gives_what_it_is_defined_to_give() {
    for size in SIZES {
        run(size, u64::from(size), |runtime| async move {
            let world = runtime.world();
            let rank = world.rank();
            for root in [0, size / 2, size - 1] {
                let given = if rank == root { vec![7, 8, 9] } else { vec![0; 3] };
                assert_eq!(world.broadcast(root, given).await.unwrap(), [7, 8, 9]);
                let sum =
                    world.reduce(root, to_bytes(&[rank, 1]), &Op::sum::<u32>()).await.unwrap();
                let expected =
                    if rank == root { vec![size * (size - 1) / 2, size] } else { vec![] };
                assert_eq!(from_bytes::<u32>(&sum), expected);
                let gathered = world.gather(root, block(rank, 0)).await.unwrap();
                let all = blocks(size, |from| block(from, 0));
                assert_eq!(gathered, if rank == root { all } else { vec![] });
                let given = if rank == root { blocks(size, |to| block(root, to)) } else { vec![] };
                assert_eq!(world.scatter(root, given, 12).await.unwrap(), block(root, rank));
            }
            let min =
                world.allreduce(to_bytes(&[f64::from(rank) - 1.5]), &Op::min::<f64>()).start();
            assert_eq!(from_bytes::<f64>(&min.await.unwrap()), [-1.5]);
            let all = world.allgather(block(rank, 1)).await.unwrap();
            assert_eq!(all, blocks(size, |from| block(from, 1)));
            let to_me = world.alltoall(blocks(size, |to| block(rank, to))).await.unwrap();
            assert_eq!(to_me, blocks(size, |from| block(from, rank)));
            let sum = world.scan(to_bytes(&[u64::from(rank)]), &Op::sum::<u64>()).await.unwrap();
            assert_eq!(from_bytes::<u64>(&sum), [u64::from(rank * (rank + 1) / 2)]);
            world.barrier().await.unwrap();
        });
    }
}

/// A result of as many bytes as were passed is in the caller's own memory, and every result is
/// numbers again. So neither is copied. Members of one machine, of several, and by messages.
#[test]
fn numbers_stay_numbers_in_their_own_memory() {
    const RANKS: usize = 4;
    let machines = [(false, u32::MAX), (true, u32::MAX), (true, 2)];
    for ((shares_memory, per_node), length) in
        machines.into_iter().flat_map(|of| [4, 5000].map(|length| (of, length)))
    {
        let config = SimConfig { processes: 4, shares_memory, per_node, ..SimConfig::default() };
        let sim = Sim::new(SimConfig { turns_in_vain: 2000, ..config });
        let program = |rank: u32| {
            let world = join(&sim, rank).world();
            async move {
                let own = |factor: u32| -> Vec<f64> {
                    (0..length).map(|at| f64::from(at * factor)).collect()
                };
                let given = |factor: u32| {
                    let numbers = own(factor);
                    (numbers.as_ptr().addr(), Buffer::from_elements(numbers))
                };
                let numbers = |result: Buffer| result.into_elements::<f64>().expect("copied");
                let sum = Op::sum::<f64>();
                for _ in 0..2 {
                    let (at, data) = given(rank + 1);
                    let sums = numbers(world.allreduce(data, &sum).await.unwrap());
                    assert_eq!((sums.as_ptr().addr(), sums), (at, own(10)));
                    let (at, data) = given(rank);
                    let copy = numbers(world.broadcast(2, data).await.unwrap());
                    assert_eq!((copy.as_ptr().addr(), copy), (at, own(2)));
                    let (at, data) = given(rank + 1);
                    let sums = world.reduce(1, data, &sum).await.unwrap();
                    if rank == 1 {
                        let sums = numbers(sums);
                        assert_eq!((sums.as_ptr().addr(), sums), (at, own(10)));
                    } else {
                        assert_eq!(sums, []);
                    }
                }
                let data = || given(rank + 1).1;
                let all = [1, 2, 3, 4].map(own).concat();
                assert_eq!(numbers(world.allgather(data()).await.unwrap()), all);
                let gathered = world.gather(3, data()).await.unwrap();
                assert!(rank != 3 || numbers(gathered) == all);
                let bytes = 8 * length as usize;
                let part = numbers(world.scatter(0, data(), bytes / RANKS).await.unwrap());
                let place = rank as usize * part.len();
                assert_eq!(part, own(1)[place..place + part.len()]);
                let blocks = [bytes / RANKS; RANKS];
                let swapped = numbers(world.alltoall(data()).await.unwrap());
                let same = world.alltoallv(data(), &blocks, &blocks).await.unwrap();
                assert_eq!(numbers(same), swapped);
                let upto = numbers(world.scan(data(), &sum).await.unwrap());
                assert_eq!(upto, own((rank + 1) * (rank + 2) / 2));
                let mine = world.reduce_scatter(data(), &blocks, &sum).await.unwrap();
                assert_eq!(numbers(mine), own(10)[place..place + part.len()]);
                // Numbers are copied if they are asked for as another type.
                assert_eq!(into_elements::<u64>(data()).len(), length as usize);
            }
        };
        sim.run((0..4).map(program), &[]).unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

/// Bytes that the program shares can't be written: the operation has a copy.
#[test]
fn shared_bytes_and_several_slices_are_data_as_well() {
    run(3, 1, |runtime| async move {
        let world = runtime.world();
        let rank = u8::try_from(world.rank()).unwrap();
        let shared: Arc<[u8]> = Arc::from([rank, 1]);
        let all = world.allreduce(Arc::clone(&shared), &Op::bor()).await.unwrap();
        assert_eq!((&*all, &*shared), (&[3, 1][..], &[rank, 1][..]));
        let slices = Buffer::from_slices([vec![rank], vec![9, 9]]);
        let all = world.allgather(slices).await.unwrap();
        assert_eq!(all, [0, 9, 9, 1, 9, 9, 2, 9, 9]);
    });
}

#[test]
fn blocks_may_differ_in_length() {
    // The length of the block that `from` sends to `to`. Some blocks are empty.
    let length = |from: u32, to: u32| (3 * from + to) as usize % 5;
    let block = |from: u32, to: u32| vec![u8::try_from(from + 50 * to).unwrap(); length(from, to)];
    for size in [1, 2, 3, 5] {
        run(size, u64::from(size), |runtime| async move {
            let world = runtime.world();
            let rank = world.rank();
            let lengths = |to| (0..size).map(|from| length(from, to)).collect::<Vec<_>>();
            for root in [0, size - 1] {
                let gathered =
                    world.gatherv(root, block(rank, root), &lengths(root)).await.unwrap();
                let all = blocks(size, |from| block(from, root));
                assert_eq!(gathered, if rank == root { all.clone() } else { vec![] });
                let given = if rank == root { all } else { vec![] };
                let own = world.scatterv(root, given, &lengths(root), length(rank, root)).start();
                assert_eq!(own.await.unwrap(), block(rank, root));
            }
            let all = world.allgatherv(block(rank, 2), &lengths(2)).await.unwrap();
            assert_eq!(all, blocks(size, |from| block(from, 2)));
            let sends: Vec<_> = (0..size).map(|to| length(rank, to)).collect();
            let given = blocks(size, |to| block(rank, to));
            let to_me = world.alltoallv(given, &sends, &lengths(rank)).await.unwrap();
            assert_eq!(to_me, blocks(size, |from| block(from, rank)));
            // Rank r gets r values; the others' order shows.
            let lengths: Vec<_> = (0..size as usize).map(|rank| 2 * rank).collect();
            let given = || {
                let [a, b] = of(rank);
                [a, b].repeat((size * (size - 1) / 2) as usize)
            };
            let own = world.reduce_scatter(given(), &lengths, &compose()).await.unwrap();
            assert_eq!(own, fold(size - 1).repeat(rank as usize));
            let before = world.exclusive_scan(of(rank).to_vec(), &compose()).await.unwrap();
            assert_eq!(before, if rank == 0 { vec![] } else { fold(rank - 1) });
            let wrong = world.gatherv(rank, vec![0; 9], &lengths).await;
            assert!(matches!(wrong, Err(Error::Length { .. })));
        });
    }
}

/// The function `x -> ax + b` of a rank, as `[a, b]`.
fn of(rank: u32) -> [u8; 2] {
    [u8::try_from(2 * rank + 3).unwrap(), u8::try_from(rank + 1).unwrap()]
}

/// The composition of the functions of ranks 0 to `upto`.
fn fold(upto: u32) -> Vec<u8> {
    (1..=upto).fold(of(0).to_vec(), |left, rank| {
        let [a, b] = of(rank);
        vec![a.wrapping_mul(left[0]), a.wrapping_mul(left[1]).wrapping_add(b)]
    })
}

#[test]
fn an_operation_that_does_not_commute_is_applied_in_the_order_of_ranks() {
    for size in SIZES {
        run(size, 99, |runtime| async move {
            let world = runtime.world();
            let rank = world.rank();
            let all = fold(size - 1);
            let given = || of(rank).to_vec();
            assert_eq!(world.allreduce(given(), &compose()).await.unwrap(), all);
            assert_eq!(world.scan(given(), &compose()).await.unwrap(), fold(rank));
            let root = size / 2;
            let reduced = world.reduce(root, given(), &compose()).await.unwrap();
            assert_eq!(reduced, if rank == root { all } else { vec![] });
        });
    }
}

#[test]
fn operations_under_way_at_once_do_not_mix() {
    for seed in 0..20 {
        run(7, seed, |runtime| async move {
            let world = runtime.world();
            let rank = world.rank();
            // A wildcard receive on the same communicator matches none of their messages.
            let mut any =
                world.recv(tagmatch_comm::Source::Any, tagmatch_comm::TagChoice::Any, vec![0; 64]);
            let sums: Vec<_> = (0..10u32)
                .map(|i| world.allreduce(to_bytes(&[rank * i]), &Op::sum::<u32>()).start())
                .collect();
            let barrier = world.barrier().start();
            let large = world.broadcast(3, vec![u8::try_from(rank).unwrap(); 100_000]).start();
            barrier.await.unwrap();
            assert_eq!(large.await.unwrap(), vec![3; 100_000]);
            // The results are awaited in another order than the operations were begun.
            for (i, sum) in (0..10u32).zip(sums).rev() {
                assert_eq!(from_bytes::<u32>(&sum.await.unwrap()), [21 * i]);
            }
            assert!(any.test().is_none());
        });
    }
}

/// The members make the values in different orders, and begin the operations in one order.
#[test]
fn the_order_in_which_operations_begin_counts() {
    for seed in 0..20 {
        run(3, seed, |runtime| async move {
            let world = runtime.world();
            let rank = world.rank();
            if rank == 1 {
                drop(world.broadcast(0, vec![9; 4]));
                drop(world.dup());
            }
            let barrier = world.barrier();
            let byte = u8::try_from(rank).unwrap();
            let all = if rank == 0 { Some(world.allgather(vec![byte])) } else { None };
            let copy = world.dup();
            let all = all.unwrap_or_else(|| world.allgather(vec![byte]));
            let all = all.start();
            let copy = copy.start();
            barrier.await.unwrap();
            assert_eq!(all.await.unwrap(), [0, 1, 2]);
            copy.await.unwrap().barrier().await.unwrap();
        });
    }
}

/// A tag of ten bits tells 256 operations apart. Here 440 are under way.
#[test]
fn more_at_once_than_a_tag_tells_apart_do_not_mix() {
    let config = || Config::default().tags(TagLayout::new(16, 8, 10).unwrap());
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        let rank = world.rank();
        let sums: Vec<_> = (0..400u32)
            .map(|i| world.allreduce(to_bytes(&[rank * i + 1]), &Op::sum::<u32>()).start())
            .collect();
        let mut copies: Vec<_> = (0..40).map(|_| world.dup().start()).collect();
        // The last requests are awaited first, and some are dropped. The operations of dropped
        // requests end, too.
        copies.truncate(30);
        for copy in copies.into_iter().rev() {
            copy.await.unwrap();
        }
        for (i, sum) in (0..400u32).zip(sums).rev().step_by(3) {
            assert_eq!(from_bytes::<u32>(&sum.await.unwrap()), [3 * i + 3]);
        }
        world.barrier().await.unwrap();
    };
    try_run(3, 1, &[], config, program).unwrap_or_else(|stuck| panic!("{stuck}"));
}

#[test]
fn invalid_calls_are_errors() {
    run(2, 5, |runtime| async move {
        let world = runtime.world();
        let rank = world.rank();
        let wrong = world.broadcast(2, vec![]).await;
        assert_eq!(wrong, Err(Error::Rank { rank: 2, size: 2 }));
        let wrong = world.allreduce(vec![0; 7], &Op::sum::<u32>()).await;
        assert!(matches!(wrong, Err(Error::Length { length: 7, .. })));
        let wrong = world.alltoall(vec![0; 3]).await;
        assert!(matches!(wrong, Err(Error::Length { length: 3, .. })));
        assert!(Op::new(0, true, |_, _| ()).is_err());
        // One rank passes more bytes than the other.
        let lengths = world.allreduce(vec![0; 4 + 4 * rank as usize], &Op::sum::<u32>()).await;
        assert!(matches!(
            lengths,
            Err(Error::Mismatch { .. } | Error::ProcessFailed { rank: None })
        ));
        world.barrier().await.unwrap();
    });
}

/// A member whose call was refused may call again with right arguments. The refused call has no
/// effect on the others.
#[test]
fn a_call_that_is_refused_counts_for_nothing() {
    run(3, 5, |runtime| async move {
        let world = runtime.world();
        let rank = world.rank();
        if rank == 0 {
            assert!(world.broadcast(3, vec![]).await.is_err());
            assert!(world.broadcast(3, vec![]).wait().is_err());
            assert!(world.allreduce(vec![0; 7], &Op::sum::<u32>()).wait().is_err());
            assert!(world.scatter(0, vec![0; 5], 2).await.is_err());
        }
        let sum = world.allreduce(to_bytes(&[rank]), &Op::sum::<u32>()).await.unwrap();
        assert_eq!(from_bytes::<u32>(&sum), [3]);
        world.dup().await.unwrap().barrier().await.unwrap();
    });
}

#[test]
fn a_hundred_processes_in_one_thread() {
    run(100, 1, |runtime| async move {
        let world = runtime.world();
        let sum = world.allreduce(to_bytes(&[u64::from(world.rank())]), &Op::sum::<u64>()).start();
        assert_eq!(from_bytes::<u64>(&sum.await.unwrap()), [4950]);
        let half = world.split(Some(world.rank() % 2), 0).await.unwrap().unwrap();
        let sum = half.allreduce(to_bytes(&[u64::from(world.rank())]), &Op::sum::<u64>()).start();
        assert_eq!(
            from_bytes::<u64>(&sum.await.unwrap()),
            [if world.rank() % 2 == 0 { 2450 } else { 2500 }]
        );
    });
}
