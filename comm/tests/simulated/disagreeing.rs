//! Programs whose members disagree about which collective operation was reached: one of them
//! revokes the communicator instead of calling the operation that the others are in.

use std::rc::Rc;

use tagmatch_comm::coll::Op;
use tagmatch_comm::{Comm, Error, ErrorClass, Uniformity};
use tagmatch_comm_sim::Kill;
use tagmatch_testkit::random::{Random, mix};

use crate::common::inter::{Groups, Member};
use crate::common::{Sims, TestNet, turn};
use crate::machines::{run, survive};

/// One collective call of a communicator.
async fn call(comm: &Comm<TestNet>, which: u32) -> Result<(), Error> {
    match which {
        0 => comm.barrier().await,
        1 => comm.broadcast(0, vec![1; 8]).await.map(drop),
        2 => comm.reduce(0, vec![1; 8], &Op::bor()).await.map(drop),
        3 => comm.allreduce(vec![1; 20_000], &Op::bor()).await.map(drop),
        4 => comm.allgather(vec![1; 8]).await.map(drop),
        5 => comm.alltoall(vec![1; comm.size() as usize]).await.map(drop),
        6 => comm.dup().await.map(drop),
        7 => comm.split(Some(comm.rank() % 2), 0).await.map(drop),
        _ => comm.create_group(comm.group(), 3).await.map(drop),
    }
}

const CALLS: u32 = 9;

/// Recovers as programs do after a failure: the members agree, and make a smaller communicator.
async fn recover(comm: &Comm<TestNet>, flags: u64) -> (u64, Comm<TestNet>) {
    let agreed = comm.agree(flags).await.unwrap().flags;
    assert_eq!(comm.agree(1).await.unwrap().flags, 1);
    (agreed, comm.shrink().await.unwrap())
}

#[test]
fn a_member_in_the_first_barrier_and_one_that_revokes_agree() {
    for (of, seed) in [((2, 2), 0), ((2, 2), 1), ((2, 1), 2), ((3, 2), 3), ((4, 2), 4)] {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            if world.rank() == 1 {
                world.revoke();
            } else {
                assert_eq!(world.barrier().await, Err(Error::Revoked));
            }
            let flags = if world.rank() == 1 { 7 } else { 5 };
            let (agreed, small) = recover(&world, flags).await;
            small.barrier().await.unwrap();
            agreed
        };
        let (ran, _) = run(of, seed, &[], program).unwrap();
        assert!(ran.ends.iter().all(|end| *end == Some(5)), "{:?}", ran.ends);
    }
}

/// Members make some of the same calls, in one order. One member stops earlier, and revokes.
#[test]
fn members_agree_whatever_each_of_them_has_reached() {
    for seed in 0..300u64 {
        let mut random = Random::new(mix(seed));
        let size = 2 + random.below_u32(4);
        let per_node = 1 + random.below_u32(size);
        let stops = random.below_u32(size);
        let calls: Vec<u32> = (0..4).map(|_| random.below_u32(CALLS)).collect();
        let reached = random.below_u32(4) as usize;
        let calls = &calls;
        let at_once = seed % 3 == 0;
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            if at_once && world.rank() != stops {
                // The operations are under way at the same time.
                let barrier = world.barrier().start();
                let sum = world.allreduce(vec![1; 8], &Op::bor()).start();
                let all = world.allgather(vec![1; 8]).start();
                assert_eq!(barrier.await, Err(Error::Revoked));
                assert_eq!(sum.await, Err(Error::Revoked));
                assert_eq!(all.await, Err(Error::Revoked));
            } else if world.rank() == stops {
                for which in calls.iter().take(if at_once { 0 } else { reached }) {
                    let _revoked_by_nobody: Result<(), Error> = call(&world, *which).await;
                }
                world.revoke();
            } else {
                for which in calls.iter().cycle() {
                    match call(&world, *which).await {
                        Ok(()) => {}
                        Err(Error::Revoked) => break,
                        // Partners that give up mark their messages.
                        Err(error) => assert_eq!(error.class(), ErrorClass::ProcessFailed),
                    }
                }
            }
            let (agreed, small) = recover(&world, !(1 << world.rank())).await;
            small.barrier().await.unwrap();
            agreed
        };
        let (ran, _) = run((size, per_node), seed, &[], program).unwrap_or_else(|stuck| {
            panic!("{size} {per_node} {stops} {calls:?} {reached}: {stuck}")
        });
        let due = (0..size).fold(u64::MAX, |flags, rank| flags & !(1 << rank));
        assert!(ran.ends.iter().all(|end| *end == Some(due)), "{seed}: {:?}", ran.ends);
    }
}

/// A death starts it: members that notice it in different operations revoke, agree, and shrink.
#[test]
fn a_death_at_any_step_finds_members_in_different_operations() {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        let failed = async {
            for which in [0, 6, 3, 1, 7] {
                call(&world, which).await?;
            }
            Ok::<(), Error>(())
        };
        if failed.await.is_err() {
            world.revoke();
        }
        let agreed = world.agree(1).await.unwrap();
        assert_eq!(agreed.flags, 1);
        loop {
            let small = world.shrink().await.unwrap();
            let works = small.barrier().await.is_ok();
            if small.agree(works.into()).await.unwrap().flags == 1 {
                break;
            }
        }
    };
    for (of, seed) in [((2, 2), 0), ((3, 3), 1), ((3, 2), 2), ((4, 2), 3)] {
        survive(of, seed, program);
    }
}

/// Members that wait in the first operation are killed while another one revokes.
#[test]
fn a_death_beside_a_revocation_makes_no_agreement_wrong() {
    for (seed, step) in (0..8).flat_map(|seed| (0..120u64).map(move |step| (seed, step * 3))) {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            if world.rank() == 1 {
                world.revoke();
            } else {
                world.barrier().await.unwrap_err();
                world.revoke();
            }
            world.agree(5 | u64::from(world.rank()) << 1).await.unwrap().flags
        };
        let kills = [Kill { rank: 2, step }];
        let (ran, _) = run((3, 3), seed, &kills, program).unwrap();
        let ends: Vec<_> = ran.ends.iter().take(2).flatten().collect();
        assert!(ends == [&5, &5], "{seed} {step}: {ends:?}");
    }
}

/// An agreement that was given up leaves nothing that later ones would have to keep.
#[test]
fn agreements_beside_one_that_was_given_up_keep_bounded_memory() {
    let rounds: u32 = if cfg!(debug_assertions) { 10_000 } else { 100_000 };
    for per_node in [2, 1] {
        let program = |runtime: Sims| async move {
            let world = runtime.world();
            if world.rank() == 1 {
                world.revoke();
            } else {
                assert_eq!(world.barrier().await, Err(Error::Revoked));
            }
            for round in 0..rounds {
                assert_eq!(world.agree(round.into()).await.unwrap().flags, round.into());
            }
            turn().await;
            assert!(runtime.kept_agreements() <= 4, "{}", runtime.kept_agreements());
        };
        run((2, per_node), 7, &[], program).unwrap();
    }
}

/// Many communicators are made, and the first operation of each of them is given up.
#[test]
fn communicators_whose_first_operation_was_given_up_leave_no_agreement() {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        let mut most = 0;
        for _ in 0..200 {
            let copy = world.dup().await.unwrap();
            if world.rank() == 1 {
                copy.revoke();
            } else {
                assert_eq!(copy.barrier().await, Err(Error::Revoked));
            }
            assert_eq!(copy.agree(3).await.unwrap().flags, 3);
            drop(copy);
            most = most.max(runtime.kept_agreements());
        }
        // Agreements of freed communicators stay for members that are late, but not one that was
        // given up.
        assert!(most <= 201, "{most}");
    };
    run((3, 3), 1, &[], program).unwrap();
}

/// A member of a group never takes part in the creation of an intercommunicator, which has no
/// uniformity, and revokes the communicator of its group. Nobody waits for it, in either group.
#[test]
fn a_creation_that_a_member_never_reaches_ends_in_both_groups() {
    for (sizes, seed) in
        [[2, 2], [3, 1], [2, 3]].into_iter().flat_map(|s| (0..20).map(move |n| (s, n)))
    {
        let mut groups = Groups::new(sizes, seed);
        let program = |member: Rc<Member>| async move {
            let before = member.runtime.free_ids();
            // The leader of the first group is its last member.
            let made = if member.is_first && member.part.rank() == 0 {
                for _ in 0..seed * 7 % 40 {
                    turn().await;
                }
                member.part.revoke();
                Err(Error::Revoked)
            } else {
                member.create(Uniformity::None).await.map(drop)
            };
            let agreed = member.part.agree(6 | u64::from(member.part.rank() == 0)).await.unwrap();
            assert_eq!(agreed.flags & 6, 6);
            assert_eq!(member.runtime.free_ids(), before);
            made
        };
        let ran = groups.run(&[], program).unwrap_or_else(|stuck| panic!("{sizes:?} {stuck}"));
        for end in ran.ends {
            let (_, end) = end.flatten().unwrap();
            assert!(end.is_err(), "{sizes:?} {seed}");
        }
    }
}

/// One group merges an intercommunicator, and a member of the other one revokes it instead.
#[test]
fn a_merge_that_a_member_never_reaches_ends() {
    for seed in 0..30 {
        let mut groups = Groups::new([2, 2], seed);
        let program = |member: Rc<Member>| async move {
            let inter = member.create(Uniformity::Strict).await.unwrap();
            if !member.is_first && member.part.rank() == 1 {
                inter.revoke();
            } else {
                let merged = inter.merge(false).await.map(drop);
                assert_eq!(merged, Err(Error::Revoked));
            }
            assert_eq!(inter.agree(3).await.unwrap().flags, 3);
            inter.shrink().await.unwrap().barrier().await.unwrap();
        };
        groups.run(&[], program).unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}
