//! Rules that hold when members fail while communicators are made. A check panics if its rule is
//! broken.

use tagmatch_comm::net::ProcessId;
use tagmatch_comm::{Error, ErrorClass, Group};
use tagmatch_comm_sim::Kill;

use super::{Deaths, Sims, kill};

/// The state of a process after its creations, and after the survivors have gone on without the
/// dead.
struct Outcome {
    living: Group,
    again: Result<u32, Error>,
    free: u32,
}

fn is_failure(error: &Error) -> bool {
    error.class() == ErrorClass::ProcessFailed
}

/// Begins three creations at once, in one order at even ranks and in another at odd ones, as
/// threads do. Each creation returns at all survivors, and leaves no message that a later one
/// receives.
async fn create(runtime: Sims) -> Outcome {
    let world = runtime.world();
    let rank = world.rank();
    let in_group = || world.create_group(world.group(), 1).start();
    let early = (rank % 2 == 1).then(in_group);
    let copy = world.dup().start();
    let part = world.split((rank != 1).then_some(rank % 2), 0).start();
    let group = early.unwrap_or_else(in_group);
    let copy = copy.await;
    let group = group.await;
    let part = part.await;
    for error in [copy.as_ref().err(), group.as_ref().err(), part.as_ref().err()] {
        assert!(error.is_none_or(is_failure), "{error:?}");
    }
    drop((copy, group, part));
    assert_eq!(runtime.free_ids(), 2046);
    let small = world.shrink().await.unwrap();
    let living = small.group().clone();
    let again = world.create_group(&living, 1).await;
    // Some survivors may have the communicator and others not: a uniform result takes an agreement.
    let have_all = small.agree(u64::from(again.is_ok())).await.unwrap().flags == 1;
    let again = match again {
        Ok(again) if have_all => again.barrier().await.map(|_| again.id().bits()),
        other => other.map(|again| again.id().bits()),
    };
    drop(small);
    Outcome { living, again, free: runtime.free_ids() }
}

/// Kills one rank, then two.
pub(crate) fn creations(deaths: Deaths, processes: u32, seeds: u64) {
    kill(deaths, processes, seeds, create, |kills: &[Kill], ends| {
        let ends: Vec<Outcome> = ends.into_iter().flatten().collect();
        let is_killed = |process: &ProcessId| kills.iter().any(|kill| kill.rank == process.0);
        for Outcome { living, again, free } in &ends {
            assert_eq!((*free, living), (2046, &ends[0].living), "{kills:?}");
            let may_fail = living.processes().iter().any(is_killed);
            assert!(again.is_ok() || may_fail, "{kills:?}: {again:?}");
        }
        let mut ids = ends.iter().filter_map(|end| end.again.as_ref().ok());
        let first = ids.next();
        assert!(ids.all(|id| Some(id) == first), "{kills:?}: not the same id");
    });
}
