//! Processes with different settings: all of them get the error that names the setting.

use std::cell::Cell;
use std::rc::Rc;

use tagmatch_comm::coll::{Op, to_bytes};
use tagmatch_comm::{Config, Error, PortName, Runtime, Uniformity};
use tagmatch_comm_sim::{Kill, Ran, Sim, SimConfig, Stuck};

use crate::common::settings::others;
use crate::common::{Sims, TestNet, linger, plain, turn};

/// Calls of all processes together, the first one of a program. Each must end.
async fn call(runtime: Sims, which: u64) -> Result<(), Error> {
    let world = runtime.world();
    let rank = world.rank();
    let size = world.size();
    match which % 6 {
        0 => world.barrier().await,
        1 => world.allreduce(to_bytes(&vec![1u64; 100]), &Op::sum::<u64>()).await.map(drop),
        2 => world.dup().await.map(drop),
        3 => world.shrink().await.map(drop),
        4 => world.split(Some(0), 0).await.map(drop),
        _ => {
            let next = world.send_sync((rank + 1) % size, 5, vec![0; 100]);
            let previous = world.recv((rank + size - 1) % size, 5, vec![0; 100]);
            let received = previous.await.map(drop).map_err(|failed| failed.error);
            let sent = next.await.map(drop).map_err(|failed| failed.error);
            // Both neighbours of a rank may have its settings.
            world.barrier().await.and(received).and(sent)
        }
    }
}

/// Runs a call in a job of which one process has other settings.
fn run(
    (size, odd): (u32, u32),
    seed: u64,
    kills: &[Kill],
    other: impl Fn() -> Config<TestNet>,
    which: u64,
) -> Result<Ran<Result<(), Error>>, Stuck> {
    let sim = Sim::new(SimConfig {
        processes: size,
        seed,
        shares_memory: true,
        turns_in_vain: 2000,
        ..SimConfig::default()
    });
    let runtime = |rank: u32| {
        let config = if rank == odd { other() } else { Config::default() };
        Runtime::new(plain(&sim, rank), config).unwrap()
    };
    if kills.is_empty() {
        // A process that leaves because of the error leaves nobody waiting.
        return sim.run((0..size).map(|rank| call(runtime(rank), which)), kills);
    }
    let busy = Rc::new(Cell::new(size));
    let lingering = |rank: u32| {
        let runtime = runtime(rank);
        linger(runtime.clone(), &busy, call(runtime, which))
    };
    sim.run((0..size).map(lingering), kills)
}

#[test]
fn each_setting_that_differs_is_named_at_all_ranks_with_both_values() {
    for (at, (name, _, [default, other])) in others::<TestNet>().into_iter().enumerate() {
        for seed in 0..24 {
            let size = 2 + u32::try_from(seed % 5).unwrap();
            let odd = u32::try_from(seed / 5).unwrap() % size;
            let ran = run((size, odd), seed, &[], || others().swap_remove(at).1, seed);
            let ran = ran.unwrap_or_else(|stuck| panic!("{name}: {stuck}"));
            for (rank, end) in (0..).zip(ran.ends) {
                let (own, other) = if rank == odd { (other, default) } else { (default, other) };
                let due = Error::UnequalSetting { setting: name, own, other };
                assert_eq!(end, Some(Err(due)), "{name}, seed {seed}, rank {rank}");
            }
        }
    }
}

#[test]
fn nobody_waits_for_ever_when_a_process_dies_and_settings_differ() {
    for seed in 0..30 {
        let other = || others().swap_remove(4).1;
        let steps = run((4, 1), seed, &[], other, seed).unwrap().steps;
        for step in (0..steps).step_by(3) {
            let rank = u32::try_from((step + seed) % 4).unwrap();
            let ran = run((4, 1), seed, &[Kill { rank, step }], other, seed);
            for end in ran.unwrap_or_else(|stuck| panic!("{stuck}")).ends {
                // A process that has died before it told its settings is like any dead one.
                let is_known = matches!(
                    end,
                    None | Some(
                        Ok(()) | Err(Error::UnequalSetting { .. } | Error::ProcessFailed { .. })
                    )
                );
                assert!(is_known, "{end:?}");
            }
        }
    }
}

/// After the error, all calls end with it.
#[test]
fn calls_after_the_error_end_with_it() {
    let sim = Sim::new(SimConfig { processes: 3, ..SimConfig::default() });
    let program = |rank: u32| {
        let config = if rank == 1 { others().swap_remove(3).1 } else { Config::default() };
        let runtime = Runtime::new(plain(&sim, rank), config).unwrap();
        async move {
            let world = runtime.world();
            for _ in 0..6 {
                call(runtime.clone(), 0).await.unwrap_err();
            }
            let errors = [
                world.agree(0).await.map(drop).unwrap_err(),
                world.shrink().await.map(drop).unwrap_err(),
                runtime.oneself().dup().await.map(drop).unwrap_err(),
                world.send(0, 0, vec![1]).await.unwrap_err().error,
                world.recv(0, 0, vec![1]).await.unwrap_err().error,
                world.probe(0, 0).unwrap_err(),
            ];
            for error in errors {
                assert!(matches!(error, Error::UnequalSetting { .. }), "{error}");
            }
        }
    };
    sim.run((0..3).map(program), &[]).unwrap_or_else(|stuck| panic!("{stuck}"));
}

#[test]
fn jobs_with_different_settings_that_meet_at_a_port_get_the_error_on_both_sides() {
    const SIZES: [u32; 2] = [2, 3];
    for (at, (name, _, [default, other])) in others::<TestNet>().into_iter().enumerate() {
        // A job whose ids have no bit L has no intercommunicators, and so doesn't call.
        for seed in if name == "bits of ids" { 0..0 } else { 0..6 } {
            let sim = Sim::of_jobs(SimConfig { seed, ..SimConfig::default() }, &SIZES);
            let all = SIZES[0] + SIZES[1];
            let busy = Rc::new(Cell::new(all));
            let board: Rc<Cell<Option<PortName>>> = Rc::default();
            // With half of the seeds, the callers have given up before the others accept.
            let may_accept = Rc::new(Cell::new(seed < 3));
            let uniformity = [Uniformity::None, Uniformity::Eventual, Uniformity::Strict]
                [usize::try_from(seed).unwrap() % 3];
            let program = |number: u32| {
                let is_first = number < SIZES[0];
                let config = if is_first { Config::default() } else { others().swap_remove(at).1 };
                let runtime = Runtime::new(plain(&sim, number), config).unwrap();
                let kept = runtime.clone();
                let board = Rc::clone(&board);
                let may_accept = Rc::clone(&may_accept);
                linger(kept, &busy, async move {
                    let world = runtime.world();
                    let before = runtime.free_ids();
                    let is_leader = world.rank() == 0;
                    let end = if is_first {
                        let port = is_leader.then(|| runtime.open_port().unwrap());
                        if let Some(port) = &port {
                            board.set(Some(port.name()));
                        }
                        while !may_accept.get() {
                            runtime.progress();
                            turn().await;
                        }
                        world.accept(uniformity, 0, port.as_ref()).await
                    } else {
                        while board.get().is_none() {
                            turn().await;
                        }
                        let name = board.get().filter(|_| is_leader);
                        let end = world.connect(uniformity, 0, name).await;
                        may_accept.set(true);
                        end
                    };
                    // Nothing else is impossible in either job, and no id is lost.
                    world.barrier().await.unwrap();
                    assert_eq!(runtime.free_ids(), before);
                    world.dup().await.unwrap();
                    end.map(drop).unwrap_err()
                })
            };
            let ran = sim.run((0..all).map(program), &[]);
            let ran = ran.unwrap_or_else(|stuck| panic!("{name}: {stuck}"));
            for (number, end) in (0..).zip(ran.ends) {
                let is_first = number < SIZES[0];
                let (own, other) = if is_first { (default, other) } else { (other, default) };
                let due = Error::UnequalSetting { setting: name, own, other };
                let end = match end.unwrap() {
                    Error::NotCreated { cause } => *cause,
                    error => error,
                };
                assert_eq!(end, due, "{name}, seed {seed}, process {number}");
            }
        }
    }
}
