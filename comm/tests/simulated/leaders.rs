//! Collective operations of members on several machines: in shared memory within a machine, by
//! messages among one leader of each machine.

use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
use tagmatch_comm::{Comm, Error, ErrorClass};
use tagmatch_comm_sim::Kill;

use crate::common::{Sims, TestNet};
use crate::machines::{run, survive};
use crate::shared::check_once;

/// Checks all operations on values of these lengths, with each root.
async fn check(comm: &Comm<TestNet>, lengths: &[usize]) {
    for length in lengths {
        for root in 0..comm.size() {
            check_once(comm, root, *length).await;
        }
    }
}

#[test]
fn all_operations_give_the_results_of_messages() {
    for (of, seed) in [((3, 2), 0), ((4, 2), 1), ((5, 2), 2), ((7, 3), 3), ((9, 4), 4)] {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            assert_eq!(world.table().layer(), "shared memory");
            check(&world, &[0, 1, 14, 15, 512, 513]).await;
            // The ranks of a machine don't follow one another here, and the root of another rank
            // leads.
            let key = (world.rank() * 5 % 7).cast_signed();
            let mixed = world.split(Some(0), key).await.unwrap().unwrap();
            check(&mixed, &[1, 14]).await;
        };
        run(of, seed, &[], program).unwrap();
    }
}

/// A root that only broadcasts learns from its readers what it may overwrite.
#[test]
fn broadcasts_again_and_again_overwrite_nothing_unread() {
    for (length, seed) in [(8, 0), (3000, 1)] {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            for turn in 0..40u8 {
                let copy = world.broadcast(1, vec![turn; length]).await.unwrap();
                assert!(copy == vec![turn; length]);
            }
        };
        run((6, 3), seed, &[], program).unwrap();
    }
}

/// Two machines with one leader each: a barrier takes two messages, a broadcast and a reduction
/// one.
#[test]
fn only_leaders_exchange_messages() {
    let sent = |times: u32| {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            for turn in 0..times {
                world.barrier().await.unwrap();
                world.broadcast(turn % 8, vec![1; 1000]).await.unwrap();
                world.reduce(turn % 8, vec![1; 8], &Op::bor()).await.unwrap();
                world.allreduce(vec![1; 8], &Op::bor()).await.unwrap();
            }
        };
        run((8, 4), 1, &[], program).unwrap().1
    };
    // Synchronous messages are acknowledged. The first eight turns have each member as a root, so
    // that later ones send no settings.
    let few = sent(8);
    let many = sent(18);
    assert!(many - few <= 10 * (2 + 2 + 1 + 2), "{few} and {many} events");
}

/// A machine's leader learns which member has died, and all members on all machines learn that one
/// has.
#[test]
fn a_death_ends_the_operation_on_all_machines() {
    for dead in [0, 1, 4, 5] {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            let backwards =
                world.split(Some(0), -world.rank().cast_signed()).await.unwrap().unwrap();
            backwards.barrier().await.unwrap();
            if world.rank() == dead {
                std::future::pending::<()>().await;
            }
            let failed = backwards.allreduce(vec![1; 8], &Op::bor()).await.unwrap_err();
            let again = backwards.barrier().await.unwrap_err();
            assert_eq!(again.class(), ErrorClass::ProcessFailed);
            failed
        };
        let kill = Kill { rank: dead, step: 3000 };
        let (ran, _) = run((6, 3), u64::from(dead), &[kill], program).unwrap();
        for (rank, failed) in (0..).zip(ran.ends).filter(|(rank, _)| *rank != dead) {
            // Ranks count backwards, so the highest process of a machine leads it.
            let named = (rank / 3 == dead / 3 && (rank % 3 == 2 || dead % 3 == 2))
                || (dead % 3 == 2 && rank % 3 == 2);
            match failed {
                Some(Error::ProcessFailed { rank: None }) if !named => {}
                Some(Error::ProcessFailed { rank: Some(at) }) if named && at == 5 - dead => {}
                other => panic!("{dead} is dead, and {rank} has {other:?}"),
            }
        }
    }
}

/// A member dies at each step of the run: while the segments are made, in each phase of an
/// operation, afterwards. The others learn of it, or are told by a revocation, and go on.
#[test]
fn survivors_of_a_death_in_any_phase_go_on() {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        let failed = async {
            for round in 0..2u32 {
                world.allreduce(to_bytes(&[round]), &Op::sum::<u32>()).await?;
                world.broadcast(3 - round, vec![1; 3000]).await?;
                world.reduce(1 + round, to_bytes(&[round]), &Op::max::<u32>()).await?;
                world.barrier().await?;
            }
            Ok::<(), Error>(())
        };
        if let Err(error) = failed.await {
            let is_failure =
                matches!(error.class(), ErrorClass::ProcessFailed | ErrorClass::Revoked);
            assert!(is_failure, "{error:?}");
            world.revoke();
        }
        loop {
            let left = world.shrink().await.unwrap();
            let sum = left.allreduce(to_bytes(&[1u32]), &Op::sum::<u32>()).await;
            // As by messages, some members may succeed where others fail.
            if left.agree(u64::from(sum.is_ok())).await.unwrap().flags & 1 == 1 {
                assert_eq!(from_bytes::<u32>(&sum.unwrap()), [left.size()]);
                break;
            }
            left.revoke();
        }
    };
    for (of, seed) in [((4, 2), 1), ((5, 3), 2)] {
        survive(of, seed, program);
    }
}

/// Members wait in an operation that one of them never calls: a member of the same machine, a
/// leader, a member of another machine. The revocation ends all waits.
#[test]
fn a_revocation_ends_the_wait_in_each_phase() {
    for seed in 0..24 {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            assert!(matches!(world.barrier().await, Ok(()) | Err(Error::Revoked)));
            if u64::from(world.rank()) == seed % 6 {
                world.revoke();
            }
            assert_eq!(world.allreduce(vec![7; 8], &Op::bor()).await, Err(Error::Revoked));
            assert_eq!(world.barrier().await, Err(Error::Revoked));
        };
        run((6, 3), seed, &[], program).unwrap();
    }
}

/// Members that call with different lengths get an error, and the communicator can be used further.
#[test]
fn calls_that_differ_are_an_error_and_leave_no_trace() {
    for wrong in 0..5 {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            for _ in 0..10 {
                let length = if world.rank() == wrong { 7 } else { 100 };
                let error = world.allreduce(vec![1; length], &Op::bor()).await.unwrap_err();
                let is_known =
                    matches!(error.class(), ErrorClass::Peer | ErrorClass::ProcessFailed);
                assert!(is_known, "{error:?}");
                let sum = world.allreduce(to_bytes(&[1u32]), &Op::sum::<u32>()).await.unwrap();
                assert_eq!(from_bytes::<u32>(&sum), [5]);
            }
        };
        run((5, 3), 5, &[], program).unwrap();
    }
}
