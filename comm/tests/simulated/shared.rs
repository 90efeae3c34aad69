//! Collective operations in memory that the members map together.

use std::time::Duration;

use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
use tagmatch_comm::{Comm, Error, ErrorClass};
use tagmatch_comm_sim::{Kill, Sim, SimConfig};

use crate::common::{Sims, TestNet, join};
use crate::machines::{run, survive};

/// The lengths around those at which operations are cut otherwise.
const LENGTHS: [usize; 12] = [0, 1, 2, 14, 15, 256, 511, 4095, 4096, 4097, 8192, 20_000];

/// The composition of two functions `x -> a * x + b`, each as the words a and b: associative, and
/// not commutative.
fn composed(left: u64, right: u64) -> u64 {
    let words = |value: u64| {
        let bytes = value.to_ne_bytes();
        let word = |at: usize| bytes[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
        [word(0), word(4)]
    };
    let ([a, b], [c, d]) = (words(left), words(right));
    let made = [a.wrapping_mul(c), a.wrapping_mul(d).wrapping_add(b)].map(u32::to_ne_bytes);
    u64::from_ne_bytes(made.concat().try_into().unwrap())
}

fn composition() -> Op {
    Op::new(8, false, |left, right| {
        for (left, right) in left.as_chunks::<8>().0.iter().zip(right.as_chunks_mut::<8>().0) {
            *right = composed(u64::from_ne_bytes(*left), u64::from_ne_bytes(*right)).to_ne_bytes();
        }
    })
    .unwrap()
}

/// Checks the operations that the layer carries out, on so many values of each member.
pub(crate) async fn check_once(comm: &Comm<TestNet>, root: u32, values: usize) {
    let own = comm.rank();
    let of = |rank: u32| -> Vec<u64> {
        (0..values as u64).map(|at| (1 << 32) + (at * 31 + u64::from(rank) * 7) % 1000).collect()
    };
    let given = || to_bytes(&of(own));
    let all: Vec<Vec<u64>> = (0..comm.size()).map(of).collect();
    let each = |f: &dyn Fn(&mut dyn Iterator<Item = u64>) -> u64| -> Vec<u64> {
        (0..values).map(|at| f(&mut all.iter().map(|one| one[at]))).collect()
    };
    let at_root = |data: Vec<u64>| if own == root { data } else { Vec::new() };
    comm.barrier().await.unwrap();
    let copy = comm.broadcast(root, given()).start();
    let sum = comm.allreduce(given(), &Op::sum::<u64>()).start();
    let least = comm.reduce(root, given(), &Op::min::<u64>()).start();
    let chain = comm.allreduce(given(), &composition()).start();
    let chain_at_root = comm.reduce(root, given(), &composition()).start();
    let gathered = comm.allgather(given()).start();
    let chained = each(&|one| one.reduce(composed).unwrap());
    for (result, due) in [
        (copy, of(root)),
        (chain, chained.clone()),
        (sum, each(&|one| one.sum())),
        (least, at_root(each(&|one| one.min().unwrap()))),
        (chain_at_root, at_root(chained)),
        (gathered, all.concat()),
    ] {
        assert_eq!(from_bytes::<u64>(&result.await.unwrap()), due);
    }
}

/// Checks all operations on values of these lengths.
async fn check(runtime: Sims, lengths: &[usize]) {
    let world = runtime.world();
    assert_eq!(world.table().layer(), "shared memory");
    let own = world.rank();
    let size = world.size();
    for (turn, values) in (1..).zip(lengths.iter().copied()) {
        check_once(&world, turn * (size - 1) % size, values).await;
        let part = |from: u32, to: u32| -> Vec<u64> {
            (0..values as u64).map(|at| at * 3 + u64::from(from * 1000 + to)).collect()
        };
        let sent: Vec<u64> = (0..size).flat_map(|to| part(own, to)).collect();
        let due: Vec<u64> = (0..size).flat_map(|from| part(from, own)).collect();
        let swapped = world.alltoall(to_bytes(&sent)).await.unwrap();
        assert_eq!(from_bytes::<u64>(&swapped), due);
    }
}

#[test]
fn all_operations_give_the_results_of_messages() {
    for (size, seed) in [(2, 0), (2, 1), (3, 2), (4, 3), (5, 4), (9, 5), (16, 6)] {
        run((size, size), seed, &[], |runtime| check(runtime, &LENGTHS)).unwrap();
    }
}

/// More members than a word has bits, and than a byte has values. An alltoall of 30 values takes
/// several rounds there.
#[test]
fn all_operations_are_right_among_the_ranks_of_a_large_machine() {
    for (size, seed) in [(65, 0), (300, 1)] {
        run((size, size), seed, &[], |runtime| check(runtime, &[1, 30])).unwrap();
    }
}

/// The calls of 300 members differ in their roots alone, of which two are equal but for the highest
/// bit.
#[test]
fn roots_that_differ_are_an_error_on_a_large_machine() {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        let root = if world.rank() == 1 { 256 } else { 0 };
        let result = world.reduce(root, vec![1], &Op::bor()).await;
        assert!(world.rank() != 0 || result.is_err(), "{result:?}");
        assert_eq!(world.allreduce(vec![1], &Op::bor()).await.unwrap(), [1]);
    };
    run((300, 300), 2, &[], program).unwrap();
}

/// The members of a large machine meet in memory. Each of them is connected to few others, whatever
/// the operation, as long as nobody is waited for long.
#[test]
fn members_that_share_memory_are_connected_to_few_others() {
    let processes = 128;
    let watch_after = Duration::from_secs(3600);
    let sim = Sim::new(SimConfig {
        processes,
        shares_memory: true,
        turns_in_vain: 2000,
        watch_after,
        ..SimConfig::default()
    });
    let start = |rank| check(join(&sim, rank), &[1, 30]);
    sim.run((0..processes).map(start), &[]).unwrap();
    // The partners in the agreement on the memory: two at each distance.
    let each = 2 * processes.ilog2();
    assert!(sim.connections() <= (processes * each) as usize, "{}", sim.connections());
}

/// The lengths are equal, so only the operation tells that the calls differ.
#[test]
fn calls_that_differ_in_their_operation_are_an_error() {
    for wrong in 0..3u32 {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            let own = world.rank();
            let sum = Op::sum::<u32>();
            for _ in 0..5 {
                let data = to_bytes(&[1u32; 3]);
                let result = if own == wrong {
                    world.alltoall(data).await
                } else {
                    world.allreduce(data, &sum).await
                };
                assert!(result.is_err(), "{result:?}");
                let got = world.allreduce(to_bytes(&[own]), &sum).await.unwrap();
                assert_eq!(from_bytes::<u32>(&got), [3], "the calls before leave no trace");
            }
        };
        run((3, 3), u64::from(wrong), &[], program).unwrap();
    }
}

/// The lengths and the operation are equal, so only the root tells that the calls differ.
#[test]
fn roots_that_differ_are_an_error() {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        let own = world.rank();
        let sum = Op::sum::<u32>();
        for _ in 0..5 {
            let root = if own == 1 { 2 } else { 0 };
            let result = world.reduce(root, to_bytes(&[1u32; 3]), &sum).await;
            assert!(own != 0 || result.is_err(), "{result:?}");
            let got = world.allreduce(to_bytes(&[own]), &sum).await.unwrap();
            assert_eq!(from_bytes::<u32>(&got), [3], "the calls before leave no trace");
        }
    };
    run((3, 3), 6, &[], program).unwrap();
}

/// The arguments are wrong at all members, which learn it before they publish anything.
#[test]
fn wrong_arguments_are_an_error_and_no_operation() {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        let own = world.rank();
        let sum = Op::sum::<u32>();
        for _ in 0..5 {
            let results = [
                world.broadcast(3, vec![1]).await,
                world.reduce(9, to_bytes(&[1u32]), &sum).await,
                world.gather(u32::MAX, vec![1]).await,
                world.alltoall(vec![1; 4]).await,
                world.allreduce(vec![1; 3], &sum).await,
            ];
            for result in results {
                assert_eq!(result.unwrap_err().class(), ErrorClass::Argument);
            }
            let got = world.allreduce(to_bytes(&[own]), &sum).await.unwrap();
            assert_eq!(from_bytes::<u32>(&got), [3]);
        }
    };
    run((3, 3), 7, &[], program).unwrap();
}

/// A root that only broadcasts learns from its readers what it may overwrite: they publish nothing.
#[test]
fn a_root_that_broadcasts_again_and_again_overwrites_nothing_unread() {
    for (length, seed) in [(8, 0), (8, 1), (3000, 2), (3000, 3), (100_000, 4)] {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            for turn in 0..40u8 {
                let copy = world.broadcast(0, vec![turn; length]).await.unwrap();
                assert!(copy == vec![turn; length]);
            }
        };
        run((3, 3), seed, &[], program).unwrap();
    }
}

/// Readers that have read all broadcasts so far don't hold the root back, even if they wait for its
/// message and not in an operation. A member that waits in an operation says again what it has
/// read.
#[test]
fn a_root_goes_on_while_its_readers_wait_for_a_message() {
    for (length, seed) in [(8, 0), (100_000, 1)] {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            // The first operation makes the memory, in which all members take part.
            world.barrier().await.unwrap();
            for turn in 0..20u8 {
                if world.rank() > 0 {
                    world.recv(0, 1, vec![0]).await.unwrap();
                }
                let copy = world.broadcast(0, vec![turn; length]).await.unwrap();
                assert!(copy == vec![turn; length]);
                if world.rank() == 0 {
                    for reader in 1..world.size() {
                        world.send(reader, 1, vec![turn]).await.unwrap();
                    }
                }
            }
        };
        run((3, 3), seed, &[], program).unwrap();
    }
}

/// Operations by messages and in shared memory, begun in one order, end at all members whatever
/// they wait for first.
#[test]
fn operations_by_messages_run_beside_those_in_shared_memory() {
    for seed in 0..40 {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            let own = world.rank();
            let size = world.size();
            for round in 0..6u32 {
                let scan = world.scan(to_bytes(&[own + round]), &Op::sum::<u32>()).start();
                let sum = world.allreduce(to_bytes(&[own + round]), &Op::sum::<u32>()).start();
                let barrier = world.barrier().start();
                let gather = world.gather(0, to_bytes(&[own])).start();
                let copy = world.dup().start();
                let root_rank = world.broadcast(round % size, to_bytes(&[own])).start();
                let copy = copy.await.unwrap();
                copy.barrier().await.unwrap();
                assert_eq!(from_bytes::<u32>(&root_rank.await.unwrap()), [round % size]);
                gather.await.unwrap();
                barrier.await.unwrap();
                let total = (0..size).map(|rank| rank + round).sum::<u32>();
                assert_eq!(from_bytes::<u32>(&sum.await.unwrap()), [total]);
                let upto = (0..=own).map(|rank| rank + round).sum::<u32>();
                assert_eq!(from_bytes::<u32>(&scan.await.unwrap()), [upto]);
            }
        };
        let size = 2 + (seed % 4) as u32;
        run((size, size), seed, &[], program).unwrap();
    }
}

/// The operations that make the segment wait for it together. Later ones send no message.
#[test]
fn operations_that_begin_together_before_any_other_get_their_segment() {
    let sent = |later: u32| {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            let first = world.barrier().start();
            let second = world.allreduce(vec![1; 8], &Op::bor()).start();
            first.await.unwrap();
            second.await.unwrap();
            for _ in 0..later {
                world.barrier().await.unwrap();
            }
        };
        run((3, 3), 1, &[], program).unwrap().1
    };
    // By messages, each barrier of three members takes six. A few that have to do with other things
    // come late.
    assert!(sent(20) < sent(0) + 20);
}

/// A split takes no more messages than a dup: its members exchange their colours in the segment,
/// if an earlier operation has made one. Without such an operation it makes none.
#[test]
fn a_split_exchanges_its_colours_in_the_segment() {
    let sent = |creations: u32, splits: bool| {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            let own = world.rank();
            let size = world.size();
            for _ in 0..creations {
                let part = if splits {
                    let part = world.split(Some(own % 2), -own.cast_signed()).await.unwrap();
                    part.unwrap()
                } else {
                    world.dup().await.unwrap()
                };
                let members = if splits { (size - own % 2).div_ceil(2) } else { size };
                assert_eq!(part.size(), members);
                let rank = if splits { members - 1 - own / 2 } else { own };
                assert_eq!(part.rank(), rank);
                part.free();
                world.barrier().await.unwrap();
            }
        };
        run((8, 8), 2, &[], program).unwrap().1
    };
    let first = sent(1, true);
    let later = sent(9, true) - sent(1, true);
    let first_dup = sent(1, false);
    let later_dups = sent(9, false) - sent(1, false);
    // By messages, an allgather of eight members takes 24.
    assert!(first >= first_dup + 24, "{first} {first_dup}");
    assert!(later <= later_dups + 8 * 12, "{later} {later_dups}");
}

/// Ends the phase of a program in which members die: those that are left learn of it, or are told
/// by a revocation, and go on.
async fn go_on(world: &Comm<TestNet>, failed: Result<(), Error>) {
    if let Err(error) = failed {
        let is_failure = matches!(error.class(), ErrorClass::ProcessFailed | ErrorClass::Revoked);
        assert!(is_failure, "{error:?}");
        world.revoke();
    }
    loop {
        let left = world.shrink().await.unwrap();
        if let Ok(sum) = left.allreduce(to_bytes(&[1u32]), &Op::sum::<u32>()).await {
            assert_eq!(from_bytes::<u32>(&sum), [left.size()]);
            break;
        }
        left.revoke();
    }
}

/// A member dies at each step of splits in shared memory.
#[test]
fn survivors_of_a_death_in_a_split_go_on() {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        let failed = async {
            world.barrier().await?;
            for _ in 0..3 {
                let part = world.split(Some(world.rank() % 2), 0).await?;
                assert_eq!(part.unwrap().size(), (world.size() - world.rank() % 2).div_ceil(2));
            }
            Ok::<(), Error>(())
        };
        go_on(&world, failed.await).await;
    };
    for (processes, seed) in [(3, 4), (4, 5), (5, 6)] {
        survive((processes, processes), seed, program);
    }
}

/// A member dies at each step of the run: while the segment is made, between the rounds of an
/// operation, afterwards.
#[test]
fn survivors_of_a_death_in_any_phase_go_on() {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        let failed = async {
            for round in 0..3u32 {
                let long = vec![round; 20_000];
                world.allreduce(to_bytes(&[round]), &Op::sum::<u32>()).await?;
                world.broadcast(round % world.size(), to_bytes(&long)).await?;
                world.allreduce(to_bytes(&long), &Op::max::<u32>()).await?;
                world.barrier().await?;
            }
            Ok::<(), Error>(())
        };
        go_on(&world, failed.await).await;
    };
    for (processes, seed) in [(2, 1), (3, 2), (4, 3)] {
        survive((processes, processes), seed, program);
    }
}

/// Most pairs of members are not connected here. One or two members die at steps that the seed
/// chooses: while the memory is made, or later. Each other one learns of the deaths, and nobody
/// revokes.
#[test]
fn survivors_that_are_not_connected_to_the_dead_go_on() {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        for _ in 0..8 {
            if let Err(error) = world.barrier().await {
                assert_eq!(error.class(), ErrorClass::ProcessFailed);
                break;
            }
        }
    };
    let (ran, _) = run((17, 17), 0, &[], program).unwrap();
    for seed in 0..60 {
        let kill = |by: u64| Kill {
            rank: u32::try_from(seed * by % 17).unwrap(),
            step: seed * by * 37 % ran.steps,
        };
        let kills = if seed % 2 == 0 { vec![kill(1)] } else { vec![kill(1), kill(5)] };
        let dead = |rank: usize| kills.iter().any(|kill| kill.rank as usize == rank);
        let ran = run((17, 17), seed, &kills, program);
        let (ran, _) = ran.unwrap_or_else(|stuck| panic!("{kills:?}: {stuck}"));
        assert!(ran.ends.iter().enumerate().all(|(rank, end)| end.is_some() || dead(rank)));
    }
}

/// Members wait in an operation that one of them never calls. Its revocation ends their wait.
#[test]
fn a_revocation_ends_a_wait_in_shared_memory() {
    for seed in 0..20 {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            // The revocation may reach a member that is still in the barrier.
            assert!(matches!(world.barrier().await, Ok(()) | Err(Error::Revoked)));
            if world.rank() == 1 {
                world.revoke();
            }
            let data = vec![7u8; 100_000];
            assert_eq!(world.allreduce(data, &Op::bor()).await, Err(Error::Revoked));
            assert_eq!(world.barrier().await, Err(Error::Revoked));
        };
        run((4, 4), seed, &[], program).unwrap();
    }
}

/// The root waits for a reader that never calls, and another reader waits for the root. The
/// revocation reaches the root first or the reader first, and both report the revocation.
#[test]
fn a_member_that_gives_up_after_a_revocation_does_not_count_as_failed() {
    for seed in 0..20 {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            assert!(matches!(world.barrier().await, Ok(()) | Err(Error::Revoked)));
            if world.rank() == 2 {
                world.revoke();
            } else {
                let copy = world.broadcast(0, vec![7; 1_000_000]).await;
                assert_eq!(copy, Err(Error::Revoked));
            }
        };
        run((3, 3), seed, &[], program).unwrap();
    }
}

/// Members that call with different lengths get an error, and the communicator can be used further.
#[test]
fn calls_that_differ_are_an_error_and_leave_no_trace() {
    for (short, long) in [(1, 2), (7, 112), (0, 100), (100, 113), (5, 3000), (3000, 100_000)] {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            let own = u8::try_from(world.rank()).unwrap();
            for _ in 0..10 {
                let length = if world.rank() == 1 { long } else { short };
                let data = vec![own; length];
                let error = world.allreduce(data, &Op::bor()).await.unwrap_err();
                let is_known =
                    matches!(error.class(), ErrorClass::Peer | ErrorClass::ProcessFailed);
                assert!(is_known, "{error:?}");
                let all = world.allgather(vec![own]).await.unwrap();
                assert_eq!(all, [0, 1, 2]);
            }
        };
        run((3, 3), 5, &[], program).unwrap();
    }
}
