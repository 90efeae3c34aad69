//! What the tests on the simulated network share.
#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod creations;
pub(crate) mod ft;
pub(crate) mod inter;
pub(crate) mod inter_coll;
pub(crate) mod job;
pub(crate) mod jobs;

use std::cell::Cell;
use std::rc::Rc;
use std::task::Poll;

use tagmatch_comm::net::Net;
use tagmatch_comm::net::sim::{Kill, Ran, Sim, SimConfig, SimNet, Stuck};
use tagmatch_comm::{Config, Runtime};

pub(crate) type Sims = Runtime<SimNet>;

/// Runs a program on each of some processes; what each returned.
pub(crate) fn try_run<F: Future>(
    processes: u32,
    seed: u64,
    kills: &[Kill],
    config: impl Fn() -> Config<SimNet>,
    program: impl Fn(Sims) -> F,
) -> Result<Ran<F::Output>, Stuck> {
    let sim = Sim::new(SimConfig { processes, seed, ..SimConfig::default() });
    let start = |rank| program(Runtime::new(sim.net(rank), config()).unwrap());
    sim.run((0..processes).map(start), kills)
}

/// The same with the default settings; all have to come to their end.
pub(crate) fn run<F: Future>(
    processes: u32,
    seed: u64,
    program: impl Fn(Sims) -> F,
) -> Vec<F::Output> {
    let ran = try_run(processes, seed, &[], Config::default, program);
    let ran = ran.unwrap_or_else(|stuck| panic!("{stuck}"));
    ran.ends.into_iter().map(|end| end.expect("nobody was killed")).collect()
}

/// Lets others do something.
pub(crate) async fn turn() {
    let mut waited = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// One of those who have not come to their end.
struct Busy(Rc<Cell<u32>>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// One process's program, of so many that are `busy`. Once it has ended, it goes on to make progress until
/// all have ended or died, as a process does until it leaves its job: others may still ask it for something.
pub(crate) fn linger<N: Net, F: Future>(
    runtime: Runtime<N>,
    busy: &Rc<Cell<u32>>,
    program: F,
) -> impl Future<Output = F::Output> + use<N, F> {
    let (own, busy) = (Busy(Rc::clone(busy)), Rc::clone(busy));
    async move {
        let end = program.await;
        drop(own);
        while busy.get() > 0 {
            runtime.progress();
            turn().await;
        }
        end
    }
}

/// Runs a program on each of some processes, each of which lingers.
pub(crate) fn run_together<F: Future>(
    processes: u32,
    seed: u64,
    kills: &[Kill],
    config: impl Fn() -> Config<SimNet>,
    program: impl Fn(Sims) -> F,
) -> Result<Ran<F::Output>, Stuck> {
    let busy = Rc::new(Cell::new(processes));
    try_run(processes, seed, kills, config, |runtime| {
        linger(runtime.clone(), &busy, program(runtime))
    })
}

/// Runs a program without deaths, then with each rank killed at each step of that run, then with pairs of
/// ranks killed at steps that the seed chooses. What is not killed has to come to its end.
pub(crate) fn kill_everywhere<F: Future>(
    processes: u32,
    seeds: u64,
    defect: Option<Planted>,
    program: impl Fn(Sims) -> F,
    check: impl Fn(&[Kill], Vec<Option<F::Output>>),
) {
    let config = || with(defect);
    for seed in 0..seeds {
        let run = |kills: &[Kill]| {
            let ran = run_together(processes, seed, kills, config, &program);
            let ran = ran.unwrap_or_else(|stuck| panic!("{kills:?}: {stuck}"));
            check(kills, ran.ends);
            ran.steps
        };
        let steps = run(&[]);
        for step in 0..steps {
            let rank = |by: u64| u32::try_from((step + by) % u64::from(processes)).unwrap();
            let first = Kill { rank: rank(seed), step };
            run(&[first]);
            let second = Kill { rank: rank(seed * 3 + 1), step: step + seed * 7 % 23 };
            if processes > 2 && second.rank != first.rank {
                run(&[first, second]);
            }
        }
    }
}

/// Runs a program without deaths, then with each rank killed at every `stride`th step of that run, and each two
/// ranks, the second one at the same step as the first or some steps later. Seeds take different steps.
pub(crate) fn kill_pairs<F: Future>(
    processes: u32,
    seeds: u64,
    stride: usize,
    defect: Option<Planted>,
    program: impl Fn(Sims) -> F,
    check: impl Fn(&[Kill], Vec<Option<F::Output>>),
) {
    let config = || with(defect);
    for seed in 0..seeds {
        let run = |kills: &[Kill]| {
            let ran = run_together(processes, seed, kills, config, &program);
            let ran = ran.unwrap_or_else(|stuck| panic!("{kills:?}: {stuck}"));
            check(kills, ran.ends);
            ran.steps
        };
        let steps = run(&[]);
        for (step, rank) in
            (0..steps).step_by(stride).flat_map(|s| (0..processes).map(move |r| (s, r)))
        {
            let first = Kill { rank, step };
            run(&[first]);
            for rank in (0..processes).filter(|rank| *rank != first.rank && processes > 2) {
                for later in [0, 1, 4, 15, 50] {
                    run(&[first, Kill { rank, step: step + later }]);
                }
            }
        }
    }
}

#[cfg(feature = "defects")]
pub(crate) type Planted = tagmatch_comm::Defect;
#[cfg(not(feature = "defects"))]
pub(crate) type Planted = std::convert::Infallible;

/// The default settings, with a bug.
pub(crate) fn with(defect: Option<Planted>) -> Config<SimNet> {
    #[cfg(feature = "defects")]
    return Config { defect, ..Config::default() };
    #[cfg(not(feature = "defects"))]
    defect.map_or_else(Config::default, |never| match never {})
}
