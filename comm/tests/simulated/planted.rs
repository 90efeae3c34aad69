//! Each planted bug is found. With `--nocapture`: how it shows. Those of the allocation alone, and one of
//! agreements, are found where these are explored, `src/alloc/tests.rs` and `src/ft/tests.rs`.

use crate::common;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use common::Deaths::{InTurn, Pairs};
use common::{Sims, creations, ft, inter, inter_coll, resting, try_run};
use tagmatch::{Buffer, TagLayout};
use tagmatch_comm::coll::{Attached, Coll, CollLayer, Op, TableBuilder};
use tagmatch_comm::net::sim::{Kill, Sim, SimConfig, SimNet};
use tagmatch_comm::net::{Mode, Net, ProcessId};
use tagmatch_comm::{CommInfo, Config, Defect, Error, ErrorClass, Runtime, Source, TagChoice};

type Planted = Option<Defect>;

fn config(defect: Planted) -> Config<SimNet> {
    Config { defect, ..Config::default() }
}

/// Runs a program under several seeds.
fn each<F: Future>(defect: Planted, processes: u32, program: impl Fn(Sims) -> F) {
    for seed in 0..30 {
        let ran = try_run(processes, seed, &[], || config(defect), &program);
        ran.unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

/// The first of the left operand and the last of the right one: the order shows.
fn pairs() -> Op {
    let combine = |left: &[u8], right: &mut [u8]| right[0] = left[0];
    Op::new(2, false, combine).unwrap()
}

fn collectives(defect: Planted) {
    each(defect, 5, |runtime| async move {
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

fn deaths(defect: Planted) {
    let program = |runtime: Sims| async move {
        runtime.world().iallreduce(vec![1, 1], &Op::sum::<u8>()).await
    };
    for seed in 0..10 {
        for step in 0..30 {
            let kills = [Kill { rank: 2, step }];
            let ran = try_run(5, seed, &kills, || config(defect), program);
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

fn point_to_point(defect: Planted) {
    let sim = Sim::new(SimConfig { processes: 3, ..SimConfig::default() });
    let program = |rank: u32| {
        let net = sim.net(rank);
        async move {
            if rank == 2 {
                // Past the room: a message of rank 1, it says.
                let mut net = net;
                let tag = TagLayout::MPI.pack(0, 1, 7).unwrap();
                net.send(ProcessId(0), tag, Buffer::from(vec![6]), Mode::Standard);
                return;
            }
            let runtime = Runtime::new(net, config(defect)).unwrap();
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

/// Writes down what it is asked for.
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

    /// The lower one doesn't patch self.
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

fn layers(defect: Planted) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let said = || -> Vec<String> { lines.lock().unwrap().drain(..).collect() };
    let layer = |level| Arc::new(Layer { level, lines: Arc::clone(&lines) });
    let sim = Sim::new(SimConfig { processes: 1, ..SimConfig::default() });
    // The level decides, not the order in which they are given.
    let config = Config { layers: vec![layer(2), layer(1)], ..config(defect) };
    let runtime = Runtime::new(sim.net(0), config).unwrap();
    let copy = runtime.world().dup().unwrap();
    copy.barrier().unwrap();
    assert_eq!(said(), ["barrier 2", "barrier 1"]);
    runtime.oneself().barrier().unwrap();
    assert_eq!(said(), ["barrier 2"]);
    copy.free();
    assert_eq!(said(), ["drop 2", "drop 1"]);
}

/// Panics where something is wrong.
type Check = fn(Planted);

const CHECKS: [(&str, Check); 20] = [
    ("collectives", collectives),
    ("deaths", deaths),
    ("point to point", point_to_point),
    ("layers", layers),
    ("any source", |defect| ft::any_source(defect, 20)),
    ("agreements", |defect| ft::agreements(InTurn, defect, 5, 20)),
    ("revocations", |defect| ft::revocations(InTurn, defect, 3, 4)),
    ("revocations spread", |defect| ft::revocations_spread(defect, 6, 4)),
    ("shrinks", |defect| ft::shrinks(InTurn, defect, 4, 4)),
    ("late revocations", |defect| ft::late_revocations(defect, 4, 40)),
    ("eventual creations", |defect| inter::kill_everywhere([2, 2], 2, defect, inter::eventual)),
    ("strict creations", |defect| inter::kill_everywhere([2, 2], 1, defect, inter::strict)),
    ("collectives of two groups", |defect| {
        inter_coll::deaths([2, 2], 1, 5, defect, inter_coll::all_at_once);
    }),
    ("shrinks of two groups", |defect| {
        inter_coll::deaths([2, 2], 2, 1, defect, inter_coll::shrinks);
    }),
    ("what a revoked one left", |defect| resting::revoked(Pairs(40), defect, 3, 1)),
    ("few ids", |defect| resting::exhaustion(defect, 2)),
    ("ids that others use", |defect| resting::late(defect, 30)),
    ("ids of two groups", |defect| resting::groups(defect, [2, 3], 10)),
    ("leftovers", |defect| resting::leftovers(defect, 3, 2)),
    ("creations", |defect| creations::creations(Pairs(5), defect, 3, 2)),
];

/// Found where ids and their allocation are tested.
const FOUND_ELSEWHERE: [Defect; 11] = [
    Defect::FreeDerived,
    Defect::ShareEager,
    Defect::ShareBase,
    Defect::NoOrder,
    Defect::KeepClaims,
    Defect::StayListed,
    Defect::IgnoredTakes,
    Defect::HastyExhaustion,
    Defect::HoldLast,
    Defect::AnyBallot,
    Defect::KeepGathered,
];

#[test]
fn every_planted_bug_is_found_and_nothing_else() {
    for (_, check) in CHECKS {
        check(None);
    }
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for defect in Defect::ALL.into_iter().filter(|defect| !FOUND_ELSEWHERE.contains(defect)) {
        let finds = |check: Check| catch_unwind(AssertUnwindSafe(|| check(Some(defect))));
        let found = CHECKS.iter().find_map(|(name, check)| Some((name, finds(*check).err()?)));
        match found {
            Some((name, panic)) => println!("{defect:?}: {name}: {:?}", panic.downcast::<String>()),
            None => missed.push(defect),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
