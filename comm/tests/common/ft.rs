//! Rules that hold when members fail. A check panics if its rule is broken.

use tagmatch_comm::ft::Agreed;
use tagmatch_comm::net::ProcessId;
use tagmatch_comm::{Config, Error, Source};
use tagmatch_comm_sim::Kill;

use super::{Deaths, Sims, kill, report, resting, turn};

/// Two agreements: all survivors have the same results, in which only dead members are missing.
pub(crate) fn agreements(deaths: Deaths, processes: u32, seeds: u64) {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        let own = !(1 << world.rank());
        let first = world.agree(own).start();
        let second = world.agree(own << 1).start();
        let ends = (first.await.unwrap(), second.await.unwrap());
        // A member that has not contributed is known to have failed.
        let failed = world.failed();
        for rank in ends.0.unacknowledged.iter().chain(&ends.1.unacknowledged) {
            assert!(failed.rank(world.group().process(*rank).unwrap()).is_some());
        }
        ends
    };
    kill(deaths, processes, seeds, program, |kills, ends| {
        let ends: Vec<(Agreed, Agreed)> = ends.into_iter().flatten().collect();
        // A killed member may have had another result before. It is not among these.
        assert!(ends.windows(2).all(|two| two[0] == two[1]), "{kills:?}: {ends:?}");
        for (first, _) in &ends {
            let is_killed = |rank: &u32| kills.iter().any(|kill| kill.rank == *rank);
            assert!(first.unacknowledged.iter().all(is_killed), "{kills:?}: {first:?}");
            let contributors = (0..processes).filter(|rank| !first.unacknowledged.contains(rank));
            let flags = contributors.fold(u64::MAX, |flags, rank| flags & !(1 << rank));
            assert_eq!(first.flags, flags, "{kills:?}");
        }
    });
}

/// A member revokes the communicator or dies, and then others do: everything that is under way ends
/// at all survivors.
pub(crate) fn revocations(deaths: Deaths, processes: u32, seeds: u64) {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        let rank = world.rank();
        // No member sends these messages.
        let any = world.recv(Source::Any, 1, vec![0; 8]);
        let named = world.recv((rank + 1) % processes, 1, vec![0; 8]);
        let sync = world.send_sync((rank + 1) % processes, 2, vec![0; 8]);
        if rank == 0 {
            world.revoke();
            assert!(world.is_revoked());
        }
        match any.await.unwrap_err().error {
            Error::ProcessFailedPending => world.revoke(),
            error => assert_eq!(error, Error::Revoked),
        }
        let is_end = |error: Error| matches!(error, Error::Revoked | Error::ProcessFailed { .. });
        assert!(is_end(named.await.unwrap_err().error));
        assert!(is_end(sync.await.unwrap_err().error));
        assert_eq!(world.barrier().await, Err(Error::Revoked));
        assert_eq!(world.probe(Source::Any, 1), Err(Error::Revoked));
        // A revocation ends no agreement.
        world.agree(1 << rank).await.unwrap()
    };
    kill(deaths, processes, seeds, program, |kills, ends| {
        let ends: Vec<_> = ends.into_iter().flatten().collect();
        assert!(ends.windows(2).all(|two| two[0] == two[1]), "{kills:?}: {ends:?}");
    });
}

/// If one survivor learns of a revocation, all survivors do.
pub(crate) fn revocations_spread(processes: u32, seeds: u64) {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        if world.rank() == 0 {
            world.revoke();
        }
        for _ in 0..40 {
            // Each call handles the messages that have arrived.
            world.failed();
            turn().await;
        }
        world.is_revoked()
    };
    kill(Deaths::InTurn, processes, seeds, program, |kills, ends| {
        let living = (0..processes).filter(|rank| !kills.iter().any(|kill| kill.rank == *rank));
        let know: Vec<_> = living.filter_map(|rank| ends[rank as usize]).collect();
        assert!(know.windows(2).all(|two| two[0] == two[1]), "{kills:?}: {know:?}");
    });
}

/// A late revocation doesn't end a later communicator with the same id.
pub(crate) fn late_revocations(processes: u32, seeds: u64) {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        let taken = resting::leave(&runtime, 1);
        let first = world.dup().await.unwrap();
        let id = first.id();
        if world.rank() == 0 {
            first.revoke();
        }
        drop(first);
        for _ in 0..3 {
            let next = world.dup().await.unwrap();
            assert_eq!(next.id(), id);
            for _ in 0..10 {
                next.barrier().await.unwrap();
            }
        }
        assert!(!world.is_revoked());
        drop(taken);
        assert_eq!(runtime.free_ids(), resting::IDS);
    };
    for seed in 0..seeds {
        let config = resting::config;
        let ran = super::run_together(processes, seed, &[], config, program);
        ran.unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

/// A receive from any source reports a failure and stays posted. It receives a message that arrives
/// after the failure was acknowledged.
pub(crate) fn any_source(seeds: u64) {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        if world.rank() == 1 {
            return std::future::pending().await;
        }
        if world.rank() == 2 {
            let go = world.recv(0, 1, vec![0; 8]).await.unwrap();
            world.send(0, 2, go.data().to_vec()).await.unwrap();
            return;
        }
        let mut any = world.recv(Source::Any, 2, vec![0; 8]);
        for _ in 0..2 {
            let pending = report(&mut any).await.unwrap_err();
            assert_eq!(pending.error, Error::ProcessFailedPending);
        }
        assert_eq!(world.acknowledge(7), 1);
        assert!(any.test().is_none());
        world.send(2, 1, vec![9]).await.unwrap();
        assert_eq!(any.await.unwrap().data(), [9]);
    };
    for seed in 0..seeds {
        let kills = [Kill { rank: 1, step: seed % 10 }];
        let ran = super::run_together(3, seed, &kills, Config::default, program);
        ran.unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

/// All survivors have the same communicator, without the members that any of them had seen dead.
/// The communicator works, unless another of its members has died.
pub(crate) fn shrinks(deaths: Deaths, processes: u32, seeds: u64) {
    let program = |runtime: Sims| async move {
        let world = runtime.world();
        let seen = world.failed();
        if world.rank() == 1 {
            world.revoke();
        }
        let Ok(small) = world.shrink().await else { return None };
        assert_eq!(small.group().intersection(&seen).size(), 0);
        let works = small.barrier().await;
        // Two shrinks at once.
        let again = small.shrink().start();
        let other = world.shrink().start();
        let again = again.await.unwrap();
        let other = other.await.unwrap();
        assert_ne!(again.id(), other.id());
        let ids = [small.id(), again.id(), other.id()];
        let groups = [&small, &again, &other].map(|comm| comm.group().clone());
        drop((small, again, other));
        assert_eq!(runtime.free_ids(), 2046);
        Some((ids, groups, works.is_ok()))
    };
    kill(deaths, processes, seeds, program, |kills, ends| {
        let ends: Vec<_> = ends.into_iter().flatten().map(Option::unwrap).collect();
        let alike = ends.windows(2).all(|two| (two[0].0, &two[0].1) == (two[1].0, &two[1].1));
        assert!(alike, "{kills:?}: {ends:?}");
        let is_killed = |rank: u32| kills.iter().any(|kill| kill.rank == rank);
        let living = (0..processes).filter(|rank| !is_killed(*rank));
        for (_, groups, works) in &ends {
            assert!(
                living.clone().all(|rank| {
                    groups.iter().all(|group| group.rank(ProcessId(rank)).is_some())
                })
            );
            assert!(*works || !kills.is_empty());
        }
    });
}
