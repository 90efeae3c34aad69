//! A process that lacks what its connections need counts itself out.

use std::cell::Cell;
use std::rc::Rc;

use tagmatch_comm::coll::Op;
use tagmatch_comm::net::{Net, ProcessId};
use tagmatch_comm::{Comm, Error, ErrorClass, Group, Source};
use tagmatch_comm_sim::{Sim, SimConfig};

use crate::common::{Sims, join, linger};

/// Agreements until a process has noticed at the latest that it lacks something.
pub(crate) const AGREEMENTS_MAX: u32 = 1000;

/// Calls of many kinds, until one fails.
pub(crate) async fn work<N>(world: &Comm<N>) -> Result<(), Error>
where
    N: Net<Send: Unpin, Receive: Unpin>,
{
    let own = world.rank();
    let size = world.size();
    for round in 0..2 {
        world.barrier().await?;
        world.allreduce(vec![1; 3000], &Op::bor()).await?;
        let receive = world.recv((own + size - 1) % size, 1, vec![0; 100]);
        world.send((own + 1) % size, 1, vec![round; 100]).await?;
        receive.await?;
        // A member that has the duplicate may not wait in it for one that has not.
        drop(world.dup().await?);
        world.broadcast(0, vec![round; 8]).await?;
    }
    Ok(())
}

/// Whichever process lacks something, and at whichever step: it ends everything with the error, and
/// the others agree that it has failed, and go on.
#[test]
fn a_process_that_lacks_something_takes_out_itself_alone() {
    for (processes, shares_memory) in [(2, false), (3, true), (3, false), (4, true)] {
        for (rank, at) in (0..processes).flat_map(|rank| (0..90u64).map(move |at| (rank, at))) {
            let seed = at;
            let lacks = Some((rank, at * 9));
            let config =
                SimConfig { processes, seed, lacks, shares_memory, ..SimConfig::default() };
            let sim = Sim::new(SimConfig { turns_in_vain: 2000, ..config });
            let busy = Rc::new(Cell::new(processes));
            let program = |runtime: Sims| async move {
                let world = runtime.world();
                let ended = work(&world).await;
                let is_out = matches!(ended, Err(Error::CountedOut { .. }));
                if is_out || world.rank() == rank {
                    // The process may lack something after its last call, too.
                    for _ in 0..AGREEMENTS_MAX {
                        if world.agree(1).await.is_err() {
                            break;
                        }
                    }
                    let is_end = |error: Error| matches!(error, Error::CountedOut { .. });
                    assert!(is_end(world.agree(1).await.unwrap_err()));
                    assert!(is_end(world.shrink().await.map(drop).unwrap_err()));
                    assert!(is_end(world.barrier().await.unwrap_err()));
                    assert!(is_end(world.dup().await.map(drop).unwrap_err()));
                    let any = world.recv(Source::Any, 7, vec![0; 8]).await.unwrap_err();
                    assert!(is_end(any.error));
                    assert_eq!(any.buffer.total_len(), 8);
                    assert!(is_end(world.send(0, 7, vec![1]).await.unwrap_err().error));
                    return None;
                }
                match ended.map_err(|error| error.class()) {
                    Ok(()) | Err(ErrorClass::ProcessFailed) => {}
                    Err(ErrorClass::Revoked) => {}
                    Err(class) => panic!("{class:?}"),
                }
                world.revoke();
                // The process that lacks something agrees until it notices.
                for _ in 0..AGREEMENTS_MAX {
                    if !world.agree(1).await.unwrap().unacknowledged.is_empty() {
                        break;
                    }
                }
                let left = world.shrink().await.unwrap();
                left.barrier().await.unwrap();
                Some(left.group().clone())
            };
            let start = |rank| {
                let runtime = join(&sim, rank);
                linger(runtime.clone(), &busy, program(runtime))
            };
            let ran = sim.run((0..processes).map(start), &[]);
            let ran = ran.unwrap_or_else(|stuck| panic!("{processes} {lacks:?}: {stuck}"));
            for (other, end) in (0..).zip(ran.ends) {
                let left = end.unwrap();
                assert_eq!(left.is_none(), other == rank);
                let has = |left: &Group, at: u32| left.rank(ProcessId(at)).is_some();
                assert!(left.is_none_or(|left| {
                    (0..processes).all(|at| has(&left, at) == (at != rank))
                }));
            }
        }
    }
}
