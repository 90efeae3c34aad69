//! Connections that are lost between processes that live.

use std::cell::Cell;
use std::rc::Rc;

use tagmatch_comm::coll::Op;
use tagmatch_comm::net::ProcessId;
use tagmatch_comm::{Comm, Error, ErrorClass};
use tagmatch_comm_sim::{Cut, Sim, SimConfig};

use crate::common::{Sims, TestNet, join, linger};
use crate::counted_out::{AGREEMENTS_MAX, work};

/// The work of a process, the last step at which its connection is lost, and how many processes
/// there are.
const JOBS: [(Work, u64, u32); 6] = [
    (Work::OnTheWorld, 800, 3),
    (Work::OnTheWorld, 800, 4),
    (Work::OnTheWorld, 800, 5),
    (Work::OnParts, 2400, 3),
    (Work::OnParts, 2400, 4),
    (Work::OnParts, 2400, 5),
];

/// Which end is told of the loss.
const TOLD: [[bool; 2]; 3] = [[true, true], [true, false], [false, true]];

#[derive(Clone, Copy, Debug)]
enum Work {
    OnTheWorld,
    OnParts,
}

/// The operations that the other work has not, on communicators that are made first.
async fn work_on_parts(world: &Comm<TestNet>) -> Result<(), Error> {
    let rank = world.rank();
    let size = world.size();
    let made = [world.dup().await, world.split(Some(rank % 2), 0).await.map(Option::unwrap)];
    // A member that has the communicators may not wait in them for one that has not.
    let are_made = made.iter().all(Result::is_ok);
    if world.agree(are_made.into()).await?.flags & 1 == 0 {
        return Err(Error::Revoked);
    }
    let [all, half] = made.map(Result::unwrap);
    let worked = async {
        work_on_part(&all).await?;
        work_on_part(&half).await?;
        let receive = world.recv((rank + size - 1) % size, 1, vec![0; 100]);
        world.send_sync((rank + 1) % size, 1, vec![1; 100]).await?;
        receive.await?;
        world.barrier().await
    };
    let worked = worked.await;
    if worked.is_err() {
        [all, half].iter().for_each(Comm::revoke);
    }
    worked
}

async fn work_on_part(part: &Comm<TestNet>) -> Result<(), Error> {
    let size = part.size() as usize;
    let block = vec![1; 70];
    part.reduce(0, block.clone(), &Op::bor()).await?;
    part.gather(0, block.clone()).await?;
    let of_root = if part.rank() == 0 { block.repeat(size) } else { vec![] };
    part.scatter(0, of_root, 70).await?;
    part.allgather(block.clone()).await?;
    part.alltoall(block.repeat(size)).await?;
    part.scan(block.clone(), &Op::bor()).await?;
    part.reduce_scatter(block.repeat(size), &vec![70; size], &Op::bor()).await.map(drop)
}

/// Works, and goes on without the members that have failed: who is left then. `None`: this process
/// has counted itself out.
async fn work_and_shrink(runtime: Sims, of: Work) -> Option<Vec<ProcessId>> {
    let world = runtime.world();
    let worked = match of {
        Work::OnTheWorld => work(&world).await,
        Work::OnParts => work_on_parts(&world).await,
    };
    let is_out = |error: &Error| matches!(error, Error::CountedOut { .. });
    match worked {
        Err(error) if is_out(&error) => return None,
        Err(error) => {
            let class = error.class();
            assert!(matches!(class, ErrorClass::ProcessFailed | ErrorClass::Revoked), "{error}");
        }
        Ok(()) => {}
    }
    world.revoke();
    // The connection may be lost after the work.
    for _ in 0..AGREEMENTS_MAX {
        match world.agree(1).await {
            Ok(agreed) if agreed.unacknowledged.is_empty() => {}
            Ok(_) => break,
            Err(error) => {
                assert!(is_out(&error), "{error}");
                return None;
            }
        }
    }
    match world.shrink().await {
        Ok(left) => {
            left.barrier().await.unwrap();
            Some(left.group().processes().to_vec())
        }
        Err(error) => {
            assert!(is_out(&error), "{error}");
            None
        }
    }
}

/// Whichever connection is lost, at whichever step, whoever is told of it, and in whichever words:
/// one end counts itself out, and all others agree that it has failed, and go on.
#[test]
fn one_end_of_a_lost_connection_goes_and_all_others_stay() {
    for (work, steps, processes) in JOBS {
        let each = if processes == 3 { 13 } else { 61 };
        let pairs = (0..processes).flat_map(|one| (0..one).map(move |other| [other, one]));
        for (ends, tells) in pairs.flat_map(|ends| TOLD.map(|tells| (ends, tells))) {
            for step in (1..steps).step_by(each) {
                let shares_memory = step % 2 == 0;
                // An end that has left in order knows that.
                let says_left = tells == [true, true] && step % 4 < 2;
                let cut = Cut { ends, tells, says_left, step };
                let config =
                    SimConfig { processes, seed: step, shares_memory, ..SimConfig::default() };
                let sim = Sim::new(SimConfig { cut: Some(cut), turns_in_vain: 2000, ..config });
                let busy = Rc::new(Cell::new(processes));
                let start = |rank| {
                    let runtime = join(&sim, rank);
                    linger(runtime.clone(), &busy, work_and_shrink(runtime, work))
                };
                let ran = sim.run((0..processes).map(start), &[]);
                let ran = ran.unwrap_or_else(|stuck| panic!("{work:?} {cut:?}: {stuck}"));
                let groups: Vec<_> = ran.ends.into_iter().map(Option::unwrap).collect();
                let is_out = |rank: &u32| groups[*rank as usize].is_none();
                let out: Vec<u32> = (0..processes).filter(is_out).collect();
                let notified: Vec<u32> =
                    (0..2).filter(|end| tells[*end]).map(|end| ends[end]).collect();
                assert!(out.len() == 1 && notified.contains(&out[0]), "{work:?} {cut:?}: {out:?}");
                let stay: Vec<_> =
                    (0..processes).filter(|rank| !is_out(rank)).map(ProcessId).collect();
                let is_alike = groups.iter().flatten().all(|group| *group == stay);
                assert!(is_alike, "{work:?} {cut:?}: {groups:?}");
            }
        }
    }
}
