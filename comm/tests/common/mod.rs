//! Code that the tests on the simulated network share.
#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod creations;
pub(crate) mod ft;
pub(crate) mod inter;
pub(crate) mod inter_coll;
pub(crate) mod jobs;
pub(crate) mod resting;
pub(crate) mod settings;
pub(crate) mod transport;

use std::cell::Cell;
use std::rc::Rc;
use std::task::Poll;

use tagmatch_comm::net::Net;
use tagmatch_comm::{Config, Pending, Request, Runtime};
use tagmatch_comm_sim::{Kill, Ran, Sim, SimConfig, SimNet, Stuck};

use self::transport::{Altered, Changes};

/// The transport of the tests on the simulated network.
pub(crate) type TestNet = Altered<SimNet>;
pub(crate) type Sims = Runtime<TestNet>;

/// The transport of a process, without a change.
pub(crate) fn plain(sim: &Sim, number: u32) -> TestNet {
    Altered::new(sim.net(number), Changes::NONE)
}

/// A process joins its job, with the default settings.
pub(crate) fn join(sim: &Sim, number: u32) -> Sims {
    Runtime::new(plain(sim, number), Config::default()).unwrap()
}

/// Runs a program on each of some processes. Returns the result of each.
pub(crate) fn try_run<F: Future>(
    processes: u32,
    seed: u64,
    kills: &[Kill],
    config: impl Fn() -> Config<TestNet>,
    program: impl Fn(Sims) -> F,
) -> Result<Ran<F::Output>, Stuck> {
    let sim = Sim::new(SimConfig { processes, seed, ..SimConfig::default() });
    let start = |rank| program(Runtime::new(plain(&sim, rank), config()).unwrap());
    sim.run((0..processes).map(start), kills)
}

/// Runs a program on each of some processes, with the default settings. All programs must end.
pub(crate) fn run<F: Future>(
    processes: u32,
    seed: u64,
    program: impl Fn(Sims) -> F,
) -> Vec<F::Output> {
    let ran = try_run(processes, seed, &[], Config::default, program);
    let ran = ran.unwrap_or_else(|stuck| panic!("{stuck}"));
    ran.ends.into_iter().map(|end| end.expect("nobody was killed")).collect()
}

/// Gives other processes a turn.
pub(crate) async fn turn() {
    let mut waited = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// The next report of a request. The request may go on after it.
pub(crate) async fn report<N: Net, P: Pending<N>>(request: &mut Request<N, P>) -> P::Output {
    loop {
        if let Some(output) = request.test() {
            return output;
        }
        turn().await;
    }
}

/// A program that has not ended.
struct Busy(Rc<Cell<u32>>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Runs the program of one process; `busy` counts the programs that have not ended. A process whose
/// program has ended makes progress until all others have ended or died: they may still need its
/// answers. A real process does so until it leaves its job.
pub(crate) fn linger<N: Net, F: Future>(
    runtime: Runtime<N>,
    busy: &Rc<Cell<u32>>,
    program: F,
) -> impl Future<Output = F::Output> + use<N, F> {
    let own = Busy(Rc::clone(busy));
    let busy = Rc::clone(busy);
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

/// Runs a program on each of some processes by [`linger`].
pub(crate) fn run_together<F: Future>(
    processes: u32,
    seed: u64,
    kills: &[Kill],
    config: impl Fn() -> Config<TestNet>,
    program: impl Fn(Sims) -> F,
) -> Result<Ran<F::Output>, Stuck> {
    let busy = Rc::new(Cell::new(processes));
    try_run(processes, seed, kills, config, |runtime| {
        linger(runtime.clone(), &busy, program(runtime))
    })
}

/// Which processes die, and when.
#[derive(Clone, Copy)]
pub(crate) enum Deaths {
    /// One rank at each step; the seeds take different ranks. Then also a second rank, at a step
    /// that the seed chooses.
    InTurn,
    /// Each rank at every step that is a multiple of this number, and each pair of ranks: the
    /// second rank dies at the same step as the first one or some steps later. The seeds take
    /// different steps.
    Pairs(usize),
    /// Each rank at each step, and each pair of ranks at each pair of steps.
    AllPairs,
}

impl Deaths {
    /// Calls `run` without deaths, then with each of these deaths. `run` returns the number of its
    /// steps.
    pub(crate) fn each(self, processes: u32, seed: u64, run: impl Fn(&[Kill]) -> u64) {
        let steps = run(&[]);
        let kills = |at: Vec<u64>| -> Vec<Kill> {
            let of = |step| (0..processes).map(move |rank| Kill { rank, step });
            at.into_iter().flat_map(of).collect()
        };
        let firsts = match self {
            Deaths::InTurn => {
                let rank = |step: u64, by: u64| u32::try_from((step + by) % u64::from(processes));
                for step in 0..steps {
                    let first = Kill { rank: rank(step, seed).unwrap(), step };
                    run(&[first]);
                    let later = step + seed * 7 % 23;
                    let second = Kill { rank: rank(step, seed * 3 + 1).unwrap(), step: later };
                    if processes > 2 && second.rank != first.rank {
                        run(&[first, second]);
                    }
                }
                return;
            }
            Deaths::Pairs(stride) => kills((0..steps).step_by(stride).collect()),
            Deaths::AllPairs => kills((0..steps).collect()),
        };
        for first in firsts {
            run(&[first]);
            let later = match self {
                Deaths::AllPairs => (first.step..steps).collect(),
                _ => [0, 1, 4, 15, 50].map(|later| first.step + later).to_vec(),
            };
            let others = kills(later).into_iter().filter(|other| other.rank != first.rank);
            for second in others.filter(|_| processes > 2) {
                run(&[first, second]);
            }
        }
    }
}

/// Runs a program without deaths, then with each of these deaths. The program must end at all
/// processes that are not killed.
pub(crate) fn kill<F: Future>(
    deaths: Deaths,
    processes: u32,
    seeds: u64,
    program: impl Fn(Sims) -> F,
    check: impl Fn(&[Kill], Vec<Option<F::Output>>),
) {
    let config = Config::default;
    for seed in 0..seeds {
        deaths.each(processes, seed, |kills| {
            let ran = run_together(processes, seed, kills, config, &program);
            let ran = ran.unwrap_or_else(|stuck| panic!("{kills:?}: {stuck}"));
            check(kills, ran.ends);
            ran.steps
        });
    }
}
