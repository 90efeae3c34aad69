//! Communicators between simulated processes: context ids, groups, lifetimes.

use common::{run, try_run};
use tagmatch_comm::ids::IdLayout;
use tagmatch_comm::{Config, Error, ErrorClass, Group, Likeness, Source, TagChoice};
use tagmatch_comm_sim::Ran;

use crate::common::{self, TestNet, plain};

#[test]
fn predefined_ones() {
    run(3, 0, |runtime| async move {
        let world = runtime.world();
        let oneself = runtime.oneself();
        assert_eq!((world.size(), world.id().bits(), world.name().as_str()), (3, 0, "world"));
        assert_eq!((oneself.size(), oneself.rank(), oneself.id().bits()), (1, 0, 16));
        let copy = oneself.dup().await.unwrap();
        assert_eq!(copy.compare(&oneself), Likeness::Identical);
        assert!(!copy.is(&oneself) && oneself.is(&runtime.oneself()));
        assert_eq!((copy.id().bits(), copy.name().as_str()), (496, ""));
        oneself.barrier().await.unwrap();
    });
}

#[test]
fn a_duplicate_has_messages_of_its_own() {
    for seed in 0..30 {
        run(4, seed, |runtime| async move {
            let world = runtime.world();
            let copy = world.dup().await.unwrap();
            copy.set_name("copy");
            assert_eq!((copy.id().bits(), copy.name().as_str()), (496, "copy"));
            let right = (world.rank() + 1) % 4;
            let left = (world.rank() + 3) % 4;
            world.send(right, 1, vec![1]).await.unwrap();
            copy.send(right, 1, vec![2]).await.unwrap();
            let of_copy = copy.recv(Source::Any, TagChoice::Any, vec![0; 8]).await.unwrap();
            let of_world = world.recv(left, 1, vec![0; 8]).await.unwrap();
            assert_eq!((of_copy.data(), of_world.data()), (&[2][..], &[1][..]));
            assert_eq!(of_copy.status.source, Some(left));
        });
    }
}

#[test]
fn split_orders_by_key_then_rank_and_leaves_out_members_without_a_colour() {
    for seed in 0..30 {
        let free = run(7, seed, |runtime| async move {
            let world = runtime.world();
            let rank = world.rank();
            let color = (rank != 6).then_some(rank % 2);
            // One colour has descending keys, the other one equal keys.
            let key = if rank.is_multiple_of(2) { -rank.cast_signed() } else { 5 };
            let part = world.split(color, key).await.unwrap();
            let Some(part) = part else {
                assert_eq!(rank, 6);
                return (runtime.free_ids(), runtime.free_ids());
            };
            let members: Vec<_> =
                part.group().processes().iter().map(|process| process.0).collect();
            assert_eq!(members, if rank.is_multiple_of(2) { [4, 2, 0] } else { [1, 3, 5] });
            // The communicators of all colours have the same context id.
            assert_eq!(part.id().bits(), 496);
            part.barrier().await.unwrap();
            let with = runtime.free_ids();
            part.free();
            (with, runtime.free_ids())
        });
        assert_eq!(free[..6], [(2045, 2046); 6]);
        assert_eq!(free[6], (2046, 2046));
    }
}

/// The rank 0 of the two parts are different processes. Messages of the second creation may arrive
/// while the first communicator is still being made, with the same number and tag.
#[test]
fn parts_that_are_made_one_after_the_other_may_have_one_tag() {
    for seed in 0..40 {
        run(3, seed, |runtime| async move {
            let world = runtime.world();
            let last = world.group().include(&[2]).unwrap();
            for other in (0..2).filter(|other| world.rank() == 2 || world.rank() == *other) {
                let part = world.group().include(&[other]).unwrap().union(&last);
                let part = world.create_group(&part, 5).await.unwrap();
                part.barrier().await.unwrap();
            }
        });
    }
}

#[test]
fn create_and_create_group() {
    for seed in 0..30 {
        run(5, seed, |runtime| async move {
            let world = runtime.world();
            let rank = world.rank();
            let odd = world.group().include(&[3, 1]).unwrap();
            let created = world.create(&odd).await.unwrap();
            assert_eq!(
                created.as_ref().map(|comm| comm.rank()),
                [None, Some(1), None, Some(0), None][rank as usize]
            );
            // The other members take no part. Two creations that share a process run at the same
            // time.
            if rank < 3 {
                let first = Group::new(world.group().processes()[..2].to_vec());
                let both = world.group().include(&[2, 1]).unwrap();
                let a = (rank < 2).then(|| world.create_group(&first, 1).start());
                let b = (rank > 0).then(|| world.create_group(&both, 2).start());
                if let Some(b) = b {
                    b.await.unwrap().barrier().await.unwrap();
                }
                if let Some(a) = a {
                    let a = a.await.unwrap();
                    assert_eq!((a.rank(), a.size()), (rank, 2));
                    a.barrier().await.unwrap();
                }
            } else {
                assert!(matches!(
                    world.create_group(&odd.include(&[1]).unwrap(), 0).await,
                    Err(Error::Group)
                ));
                let wrong = world.create_group(&odd, 1 << 22).await;
                assert_eq!(matches!(wrong, Err(Error::Tag { .. })), rank == 3);
            }
            let elsewhere = Group::new([tagmatch_comm::net::ProcessId(9)]);
            assert!(matches!(world.create(&elsewhere).await, Err(Error::Group)));
        });
    }
}

#[test]
fn many_duplicates_at_once_in_whatever_order() {
    for seed in 0..30 {
        let free = run(3, seed, |runtime| async move {
            let world = runtime.world();
            let other = world.dup().await.unwrap();
            let mut of_world: Vec<_> = (0..5).map(|_| world.dup().start()).collect();
            let mut of_other: Vec<_> = (0..5).map(|_| other.dup().start()).collect();
            if world.rank() == 1 {
                std::mem::swap(&mut of_world, &mut of_other);
            }
            let mut comms = Vec::new();
            for request in of_world.into_iter().chain(of_other) {
                comms.push(request.await.unwrap());
            }
            if world.rank() == 1 {
                comms.rotate_left(5);
            }
            let ids: Vec<_> = comms.iter().map(|comm| comm.id()).collect();
            let mut apart = ids.clone();
            apart.sort_unstable();
            apart.dedup();
            assert_eq!(apart.len(), 10);
            for comm in comms {
                comm.barrier().await.unwrap();
            }
            drop(other);
            (ids, runtime.free_ids())
        });
        assert_eq!(free[0], free[1]);
        assert_eq!(free[0], free[2]);
        assert_eq!(free[0].1, 2046);
    }
}

/// Without eager words every allocation needs the same part of the mask. So does the allocation of
/// a single process, which needs no message to begin its next round.
#[test]
fn an_allocation_of_one_process_lets_others_have_their_turn() {
    for seed in 0..30 {
        let config = || Config::default().eager_words(0);
        let program = |runtime: common::Sims| async move {
            let of_all: Vec<_> = (0..3).map(|_| runtime.world().dup().start()).collect();
            let own: Vec<_> = (0..3).map(|_| runtime.oneself().dup().start()).collect();
            for request in own.into_iter().chain(of_all) {
                request.await.unwrap().barrier().await.unwrap();
            }
        };
        try_run(3, seed, &[], config, program).unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

/// A layout with only 62 context ids, so that they can run out.
fn small() -> Config<TestNet> {
    Config::default().ids(IdLayout::new(1, true, 2).unwrap()).eager_words(1)
}

#[test]
fn running_out_of_ids_is_the_same_error_everywhere_and_passes() {
    let program = |runtime: common::Sims| async move {
        let world = runtime.world();
        let mut comms = Vec::new();
        let error = loop {
            match world.dup().await {
                Ok(comm) => comms.push(comm),
                Err(error) => break error,
            }
        };
        assert_eq!((comms.len(), error.class()), (62, ErrorClass::Resource));
        assert_eq!(error, Error::Exhausted { ids: 64 });
        comms.truncate(60);
        let again = world.dup().await.unwrap();
        again.barrier().await.unwrap();
        drop(again);
        // All members have freed it then: an id that another member uses counts as taken.
        world.barrier().await.unwrap();
        // No id is free at all members: each member has kept a different one.
        let kept: Vec<_> = (0..2).map(|_| runtime.oneself().dup().start()).collect();
        for one in kept {
            comms.push(one.await.unwrap());
        }
        let dropped = comms.remove(world.rank() as usize);
        drop(dropped);
        world.barrier().await.unwrap();
        let error = world.dup().await.map(drop);
        world.barrier().await.unwrap();
        drop(comms);
        (error, runtime.free_ids())
    };
    let Ran { ends, .. } = try_run(3, 4, &[], small, program).unwrap();
    for end in ends {
        assert_eq!(end, Some((Err(Error::Fragmented { ids: 64 }), 62)));
    }
}

/// All ids but those of the first rounds are in use. A process begins an allocation together with
/// another process, which waits until the first one has allocated alone.
#[test]
fn an_allocation_does_not_wait_for_one_that_others_have_yet_to_begin() {
    let program = |runtime: common::Sims| async move {
        let world = runtime.world();
        let oneself = runtime.oneself();
        let mut taken = common::resting::leave(&runtime, 0);
        assert_eq!((taken[0].id().bits(), taken.len()), (496, 62));
        taken.drain(..30);
        if world.rank() == 1 {
            world.recv(0, 1, vec![]).await.unwrap();
            world.dup().await.unwrap().barrier().await.unwrap();
            return;
        }
        let both = world.dup().start();
        let alone: Vec<_> = (0..5).map(|_| oneself.dup().start()).collect();
        for request in alone {
            taken.push(request.await.unwrap());
        }
        world.send(1, 1, vec![]).await.unwrap();
        both.await.unwrap().barrier().await.unwrap();
    };
    for seed in 0..20 {
        try_run(2, seed, &[], small, program).unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

#[test]
fn nothing_leaks_in_many_cycles() {
    run(2, 3, |runtime| async move {
        let world = runtime.world();
        for _ in 0..10_000 {
            let comm = world.dup().await.unwrap();
            // The first ids can't be reused while others are in use.
            assert!(comm.id().bits() > 16);
            drop(comm);
            world.barrier().await.unwrap();
        }
        assert_eq!((runtime.free_ids(), runtime.tables()), (2046, 0));
    });
}

#[test]
fn operations_under_way_keep_their_communicator() {
    run(2, 8, |runtime| async move {
        let world = runtime.world();
        let comm = world.dup().await.unwrap();
        let other = 1 - world.rank();
        comm.send(other, 3, vec![5; 10]).await.unwrap();
        let message = loop {
            if let Some(message) = comm.mprobe(other, 3).unwrap() {
                break message;
            }
            common::turn().await;
        };
        let receive = comm.recv(other, 4, vec![0; 10]);
        let world_again = world.clone();
        comm.free();
        assert_eq!(runtime.free_ids(), 2045);
        drop(receive);
        assert_eq!(runtime.free_ids(), 2045);
        let received = message.recv(vec![0; 10]);
        assert_eq!(runtime.free_ids(), 2045);
        assert_eq!(received.await.unwrap().data(), [5; 10]);
        assert_eq!(runtime.free_ids(), 2046);
        world_again.barrier().await.unwrap();
    });
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    use tagmatch::TagLayout;
    use tagmatch_comm::Runtime;
    use tagmatch_comm_sim::{Sim, SimConfig};
    let sim = Sim::new(SimConfig { processes: 5, ..SimConfig::default() });
    let refusal = |config| Runtime::new(plain(&sim, 0), config).map(drop).unwrap_err();
    let refused = |config| matches!(refusal(config), Error::BadSetting { .. });
    assert!(refused(Config::default().ids(IdLayout::BITS_20)));
    let text = refusal(Config::default().eager_words(64)).to_string();
    assert_eq!(text, "eager_words = 64 is out of range: from 0 to 63");
    let tags = |context, source, tag| TagLayout::new(context, source, tag).unwrap();
    assert!(refused(Config::default().tags(tags(16, 2, 24))));
    assert!(refused(Config::default().tags(tags(16, 24, 9))));
    let wide = Config::default().ids(IdLayout::BITS_20).tags(tags(20, 13, 31));
    assert!(Runtime::new(plain(&sim, 0), wide).is_ok());
}
