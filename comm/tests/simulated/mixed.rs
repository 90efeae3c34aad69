//! Short programs that use several parts of a communicator at once. `ci/planted` runs them against planted slips.

use crate::common;
use std::sync::{Arc, Mutex};

use common::{Sims, try_run};
use tagmatch::{Buffer, TagLayout};
use tagmatch_comm::coll::{Attached, Coll, CollLayer, Op, TableBuilder};
use tagmatch_comm::net::sim::{Kill, Sim, SimConfig, SimNet};
use tagmatch_comm::net::{Mode, Net, ProcessId};
use tagmatch_comm::{CommInfo, Config, Error, ErrorClass, Runtime, Source, TagChoice};

/// Runs a program under several seeds.
fn each<F: Future>(processes: u32, program: impl Fn(Sims) -> F) {
    for seed in 0..30 {
        let ran = try_run(processes, seed, &[], Config::default, &program);
        ran.unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

/// Keeps the first byte of the left operand and the last one of the right operand, so that the order of operands shows.
fn pairs() -> Op {
    let combine = |left: &[u8], right: &mut [u8]| right[0] = left[0];
    Op::new(2, false, combine).unwrap()
}

#[test]
fn collective_operations_under_way_together_stay_apart() {
    each(5, |runtime| async move {
        let world = runtime.world();
        let rank = u8::try_from(world.rank()).unwrap();
        let mut any = world.recv(Source::Any, TagChoice::Any, vec![0; 64]);
        let first = world.iallreduce(vec![rank, rank], &pairs());
        // Some are far in the first one when they begin the second, others are not.
        for _ in 0..10 * (rank % 2) {
            runtime.progress();
            common::turn().await;
        }
        let second = world.ialltoall((0..10).map(|at| 10 * rank + at / 2).collect());
        let expected: Vec<u8> = (0..5).flat_map(|from| [10 * from + rank; 2]).collect();
        assert_eq!(second.await.unwrap(), expected);
        assert_eq!(first.await.unwrap(), [0, 4]);
        assert!(any.test().is_none());
        let part = world.isplit(Some(0), -i32::from(rank)).await.unwrap().unwrap();
        assert_eq!(part.rank(), 4 - world.rank());
        part.ibarrier().await.unwrap();
        drop(part);
        assert_eq!(runtime.free_ids(), 2046);
    });
}

#[test]
fn a_reduction_ends_with_the_sum_or_with_the_failure() {
    let program = |runtime: Sims| async move {
        runtime.world().iallreduce(vec![1, 1], &Op::sum::<u8>()).await
    };
    for seed in 0..10 {
        for step in 0..30 {
            let kills = [Kill { rank: 2, step }];
            let ran = try_run(5, seed, &kills, Config::default, program);
            for end in ran.unwrap_or_else(|stuck| panic!("{stuck}")).ends.into_iter().flatten() {
                let is_right = end.as_ref().map_or_else(
                    |error| error.class() == ErrorClass::ProcessFailed,
                    |sum| *sum == [5, 5],
                );
                assert!(is_right, "seed {seed}, step {step}: {end:?}");
            }
        }
    }
}

#[test]
fn forged_and_truncated_messages_are_errors() {
    let sim = Sim::new(SimConfig { processes: 3, ..SimConfig::default() });
    let program = |rank: u32| {
        let net = sim.net(rank);
        async move {
            if rank == 2 {
                // Sends without a communicator, with a tag that claims to be from rank 1.
                let mut net = net;
                let tag = TagLayout::MPI.pack(0, 1, 7).unwrap();
                net.send(ProcessId(0), tag, Buffer::from(vec![6]), Mode::Standard);
                return;
            }
            let runtime = Runtime::new(net, Config::default()).unwrap();
            let world = runtime.world();
            if rank == 0 {
                let forged = world.recv(Source::Any, 7, vec![0; 8]).await.unwrap_err();
                assert_eq!(forged.error, Error::Forged { rank: 1 });
                let long = world.recv(1, 8, vec![0; 4]).await.unwrap_err();
                assert_eq!(long.error, Error::Truncated { length: 8, room: 4 });
            } else {
                world.send(0, 8, vec![0; 8]).await.unwrap();
            }
        }
    };
    sim.run((0..3).map(program), &[]).unwrap();
}

/// Notes each call, and each drop of what it has attached.
struct Layer {
    level: u32,
    lines: Arc<Mutex<Vec<String>>>,
}

struct Line(String, Arc<Mutex<Vec<String>>>);

impl Drop for Line {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0.clone());
    }
}

impl CollLayer<SimNet> for Layer {
    fn name(&self) -> &str {
        "layer"
    }

    fn level(&self) -> u32 {
        self.level
    }

    /// The lower layer doesn't patch the predefined communicator of one process.
    fn variant(&self, comm: &CommInfo) -> Option<u64> {
        (self.level == 2 || comm.id.bits() != 16).then_some(0)
    }

    fn patch(&self, _: u64, table: &mut TableBuilder<SimNet>) -> Result<(), Error> {
        let (beneath, lines) = (Arc::clone(table.beneath()), Arc::clone(&self.lines));
        let line = format!("barrier {}", self.level);
        table.start(Coll::Barrier, move |comm, call| {
            lines.lock().unwrap().push(line.clone());
            beneath.start(comm, call)
        });
        Ok(())
    }

    fn attach(&self, _: &CommInfo) -> Result<Attached, Error> {
        Ok(Box::new(Line(format!("drop {}", self.level), Arc::clone(&self.lines))))
    }
}

#[test]
fn layers_are_called_from_the_highest_level_down() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let said = || -> Vec<String> { lines.lock().unwrap().drain(..).collect() };
    let layer = |level| Arc::new(Layer { level, lines: Arc::clone(&lines) });
    let sim = Sim::new(SimConfig { processes: 1, ..SimConfig::default() });
    // The level decides, not the order in which they are given.
    let config = Config { layers: vec![layer(2), layer(1)], ..Config::default() };
    let runtime = Runtime::new(sim.net(0), config).unwrap();
    let copy = runtime.world().dup().unwrap();
    copy.barrier().unwrap();
    assert_eq!(said(), ["barrier 2", "barrier 1"]);
    runtime.oneself().barrier().unwrap();
    assert_eq!(said(), ["barrier 2"]);
    copy.free();
    assert_eq!(said(), ["drop 2", "drop 1"]);
}
