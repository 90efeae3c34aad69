//! What the tests on the simulated network share.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::task::Poll;

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
