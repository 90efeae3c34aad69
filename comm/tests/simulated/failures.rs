//! Deaths at every step, on the simulated network. Operations that depend on a dead process end
//! with an error, and nothing hangs or leaks.

use common::transport::{Altered, Changes};
use common::{run, run_together, try_run, turn};
use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
use tagmatch_comm::net::ProcessId;
use tagmatch_comm::{Config, Destination, Error, ErrorClass, Runtime, Source, TagChoice};
use tagmatch_comm_sim::{Kill, Ran, Sim, SimConfig};

use crate::common;

/// Runs the program once for each of these ranks and each step of the run without deaths, and kills
/// the rank there.
fn kill_everywhere<F: Future>(
    processes: u32,
    seeds: u64,
    program: impl Fn(common::Sims) -> F,
    check: impl Fn(u32, Vec<Option<F::Output>>),
) {
    for seed in 0..seeds {
        let whole = run_together(processes, seed, &[], Config::default, &program);
        let Ran { steps, .. } = whole.unwrap_or_else(|stuck| panic!("without a death: {stuck}"));
        for step in 0..steps {
            let rank = u32::try_from((step + seed) % u64::from(processes)).unwrap();
            let kills = [Kill { rank, step }];
            let ends = run_together(processes, seed, &kills, Config::default, &program);
            let Ran { ends, .. } = ends.unwrap_or_else(|stuck| panic!("{kills:?}: {stuck}"));
            check(rank, ends);
        }
    }
}

fn is_failure(error: &Error) -> bool {
    error.class() == ErrorClass::ProcessFailed
}

#[test]
fn collective_operations_end_at_all_living_members() {
    for processes in [2, 3, 5, 8] {
        let program = |runtime: common::Sims| async move {
            let world = runtime.world();
            let sum = world.allreduce(to_bytes(&[1u32]), &Op::sum::<u32>()).start();
            let barrier = world.barrier().start();
            let large = world.broadcast(0, vec![1; 10_000]).start();
            (sum.await, barrier.await, large.await)
        };
        kill_everywhere(processes, 6, program, |_, ends| {
            for (sum, barrier, large) in ends.into_iter().flatten() {
                // A sum that a survivor has got is the sum of all values.
                assert!(
                    sum.as_ref()
                        .map_or_else(is_failure, |sum| from_bytes::<u32>(sum) == [processes])
                );
                assert!(barrier.as_ref().map_or_else(is_failure, |_| true));
                assert!(large.as_ref().map_or_else(is_failure, |large| *large == vec![1; 10_000]));
            }
        });
    }
}

#[test]
fn a_seed_decides_everything_that_happens() {
    let program = |runtime: common::Sims| async move {
        let part = runtime.world().split(Some(0), 0).await;
        let sum = runtime.world().allreduce(to_bytes(&[1u32]), &Op::sum::<u32>()).await;
        (part.map(|part| part.map(|part| part.rank())), sum)
    };
    let mut steps = Vec::new();
    for seed in 0..50 {
        let kills = [Kill { rank: 1, step: seed }, Kill { rank: 4, step: 2 * seed }];
        let run = || try_run(7, seed, &kills, Config::default, program).unwrap();
        let first = run();
        let again = run();
        assert_eq!((first.steps, &first.ends), (again.steps, &again.ends));
        steps.push(first.steps);
    }
    steps.dedup();
    assert!(steps.len() > 40, "seeds that differ in nothing");
}

#[test]
fn two_deaths_at_any_steps() {
    for processes in [4, 7] {
        let program = |runtime: common::Sims| async move {
            let world = runtime.world();
            let sum = world.allreduce(to_bytes(&[1u32]), &Op::sum::<u32>()).start();
            let all = world.allgather(vec![1; 5000]).start();
            (sum.await, all.await)
        };
        let whole = try_run(processes, 0, &[], Config::default, program).unwrap();
        for first in 0..whole.steps {
            for second in (first..whole.steps).step_by(7) {
                let rank = |step: u64| u32::try_from(step % u64::from(processes)).unwrap();
                let kills = [first, second].map(|step| Kill { rank: rank(step), step });
                let Ran { ends, .. } =
                    try_run(processes, 0, &kills, Config::default, program).unwrap();
                for (sum, all) in ends.into_iter().flatten() {
                    assert!(sum.map_or_else(
                        |e| is_failure(&e),
                        |sum| from_bytes::<u32>(&sum) == [processes]
                    ));
                    assert!(all.map_or_else(
                        |e| is_failure(&e),
                        |all| all == vec![1; 5000 * processes as usize]
                    ));
                }
            }
        }
    }
}

#[test]
fn a_split_ends_at_all_living_members() {
    for processes in [3, 5, 8] {
        let program = |runtime: common::Sims| async move {
            let world = runtime.world();
            let part = world.split(Some(world.rank() % 2), 0).await;
            let free = runtime.free_ids();
            (part.map(|part| part.map(|part| part.size())), free)
        };
        kill_everywhere(processes, 6, program, |_, ends| {
            for (part, free) in ends.into_iter().flatten() {
                assert!(part.as_ref().map_or_else(is_failure, |size| size.is_some()));
                assert_eq!(free, if part.is_ok() { 2045 } else { 2046 });
            }
        });
    }
}

#[test]
fn receives_that_name_a_dead_rank_end_and_others_stay() {
    let program = |runtime: common::Sims| async move {
        let world = runtime.world();
        match world.rank() {
            0 => {
                let named = world.recv(1, 1, vec![0; 8]);
                let mut any = world.recv(Source::Any, 2, vec![0; 8]);
                let sync = world.send_sync(1, 3, vec![0; 8]);
                let ends = (named.await.map(|_| ()), sync.await.map(|_| ()));
                let any = loop {
                    match common::report(&mut any).await {
                        Err(failed) if failed.error == Error::ProcessFailedPending => {
                            world.acknowledge(world.failed().size());
                        }
                        ended => break ended,
                    }
                };
                assert!(any.is_ok_and(|received| received.status.source == Some(2)));
                Some((ends.0.map_err(|failed| failed.error), ends.1.map_err(|failed| failed.error)))
            }
            1 => {
                world.send(0, 1, vec![1]).await.unwrap();
                world.recv(0, 3, vec![0; 8]).await.unwrap();
                None
            }
            _ => {
                world.send(0, 2, vec![1]).await.unwrap();
                None
            }
        }
    };
    for seed in 0..200 {
        for step in 0..12 {
            let kills = [Kill { rank: 1, step }];
            let Ran { ends, .. } = try_run(3, seed, &kills, Config::default, program).unwrap();
            let (received, sent) = ends[0].clone().flatten().unwrap();
            let down = Error::ProcessFailed { rank: Some(1) };
            assert!(received.is_ok() || received == Err(down.clone()));
            assert!(sent.is_ok() || sent == Err(down));
        }
    }
}

/// A wait by value for a receive from any source drops the receive after the first report. A
/// message that has matched before is the result. A message that arrives later is for another
/// receive.
#[test]
fn a_receive_from_any_source_that_is_given_up_loses_no_message() {
    for (seed, is_awaited) in (0..20).flat_map(|seed| [(seed, false), (seed, true)]) {
        let sim = Sim::new(SimConfig { processes: 3, seed, ..SimConfig::default() });
        let hiding = Changes { hides_ends: true, ..Changes::NONE };
        let start = |rank: u32| {
            let net = Altered::new(sim.net(rank), hiding);
            let world = Runtime::new(net, Config::default()).unwrap().world();
            async move {
                match world.rank() {
                    0 => {
                        let any = world.recv(Source::Any, 1, vec![0; 8]);
                        world.send(1, 2, vec![]).await.unwrap();
                        while world.failed().size() == 0 {
                            turn().await;
                        }
                        // The message of rank 1 has arrived: its sender has reported it.
                        while world.mprobe(1, 3).unwrap().is_none() {
                            turn().await;
                        }
                        let received = if is_awaited { any.await } else { any.wait() };
                        assert_eq!(received.unwrap().data(), [7]);
                        let failed = world.recv(Source::Any, 1, vec![5; 8]).await.unwrap_err();
                        assert_eq!(failed.error, Error::ProcessFailedPending);
                        assert_eq!(failed.buffer[..], [5; 8]);
                    }
                    1 => {
                        world.send_sync(0, 1, vec![7]).await.unwrap();
                        world.send(0, 3, vec![]).await.unwrap();
                    }
                    _ => std::future::pending().await,
                }
            }
        };
        sim.run((0..3).map(start), &[Kill { rank: 2, step: 5 }]).unwrap();
    }
}

#[test]
fn nothing_begins_on_a_revoked_communicator() {
    run(2, 3, |runtime| async move {
        let world = runtime.world();
        let other = 1 - world.rank();
        let nobody = Source::NoProcess;
        world.send(other, 1, vec![7]).await.unwrap();
        let taken = loop {
            if let Some(message) = world.mprobe(other, 1).unwrap() {
                break message;
            }
            turn().await;
        };
        let empty = world.mprobe(nobody, 1).unwrap().unwrap();
        world.revoke();
        for message in [taken, empty] {
            let failed = message.recv(vec![5; 8]).await.unwrap_err();
            assert_eq!((failed.error, &failed.buffer[..]), (Error::Revoked, &[5; 8][..]));
        }
        assert_eq!(world.mprobe(nobody, 1).unwrap_err(), Error::Revoked);
        assert_eq!(world.probe(nobody, 1), Err(Error::Revoked));
        assert_eq!(world.recv(nobody, 1, vec![]).await.unwrap_err().error, Error::Revoked);
        let nowhere = Destination::NoProcess;
        assert_eq!(world.send(nowhere, 1, vec![]).await.unwrap_err().error, Error::Revoked);
        assert_eq!(world.send_buffered(nowhere, 1, &[]), Err(Error::Revoked));
    });
}

#[test]
fn probes_report_a_dead_source_and_unacknowledged_failures() {
    let program = |runtime: common::Sims| async move {
        let world = runtime.world();
        if world.rank() == 1 {
            return std::future::pending().await;
        }
        let error = loop {
            match world.mprobe(1, TagChoice::Any) {
                Ok(found) => assert!(found.is_none()),
                Err(error) => break error,
            }
            turn().await;
        };
        assert_eq!(world.failed().processes(), [ProcessId(1)]);
        assert_eq!(world.mprobe(Source::Any, 1).unwrap_err(), Error::ProcessFailedPending);
        assert_eq!(world.acknowledge(1), 1);
        assert_eq!(world.acknowledged(), world.failed());
        assert!(world.mprobe(Source::Any, 1).unwrap().is_none());
        // Operations that depend on no other process go on.
        let copy = runtime.oneself().dup().await.unwrap();
        copy.barrier().await.unwrap();
        error
    };
    let kills = [Kill { rank: 1, step: 3 }];
    let Ran { ends, .. } = try_run(2, 1, &kills, Config::default, program).unwrap();
    assert_eq!(ends[0], Some(Error::ProcessFailed { rank: Some(1) }));
}

/// A member that dies during an allocation of context ids leaves nothing locked, so the survivors
/// can go on. Some survivors may have got the communicator and others not: a uniform result takes
/// an agreement.
#[test]
fn an_allocation_that_fails_leaves_nothing_held() {
    let program = |runtime: common::Sims| async move {
        let world = runtime.world();
        let rank = world.rank();
        let made = world.dup().await;
        let survivors = world.group().exclude(&[2]).unwrap();
        if rank == 2 {
            return None;
        }
        let failed = made.as_ref().map_or_else(is_failure, |_| false);
        drop(made);
        let next = world.create_group(&survivors, 1).await.unwrap();
        next.barrier().await.unwrap();
        let id = next.id();
        drop(next);
        Some((id, failed, runtime.free_ids()))
    };
    let mut failures = 0;
    for seed in 0..40 {
        for step in 0..20 {
            let kills = [Kill { rank: 2, step }];
            let Ran { ends, .. } = try_run(3, seed, &kills, Config::default, program).unwrap();
            let [Some(Some(a)), Some(Some(b)), _] = ends[..] else { panic!("{ends:?}") };
            assert_eq!((a.0, a.2, b.2), (b.0, 2046, 2046));
            failures += u32::from(a.1 || b.1);
        }
    }
    assert!(failures > 100, "{failures} of 800: too few deaths hit the allocation");
}
