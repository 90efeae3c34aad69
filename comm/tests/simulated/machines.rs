//! Processes on machines: the processes of a machine may map memory together.

use std::cell::Cell;
use std::rc::Rc;

use tagmatch_comm_sim::{Kill, Ran, Sim, SimConfig, Stuck};

use crate::common::{Deaths, Sims, join, linger};

/// Runs a program on machines of `per_node` processes each; the last machine may have fewer. The
/// result has the number of messages, too. Each process makes progress until all others have ended.
pub(crate) fn run<F: Future>(
    (processes, per_node): (u32, u32),
    seed: u64,
    kills: &[Kill],
    program: impl Fn(Sims) -> F,
) -> Result<(Ran<F::Output>, u64), Stuck> {
    // Members get on in shared memory without an event of the network.
    let config = SimConfig { processes, seed, turns_in_vain: 2000, ..SimConfig::default() };
    // A process learns of the deaths of those alone that it watches or exchanges messages with.
    let config = SimConfig { tells_unconnected: false, ..config };
    let sim = Sim::new(SimConfig { shares_memory: true, per_node, ..config });
    let busy = Rc::new(Cell::new(processes));
    let start = |rank| {
        let runtime = join(&sim, rank);
        linger(runtime.clone(), &busy, program(runtime))
    };
    let ran = sim.run((0..processes).map(start), kills)?;
    Ok((ran, sim.sent()))
}

/// Runs a program without deaths, then with a death at each step. The program must end at all
/// processes that are not killed.
pub(crate) fn survive<F: Future>(of: (u32, u32), seed: u64, program: impl Fn(Sims) -> F) {
    Deaths::InTurn.each(of.0, seed, |kills| {
        let (ran, _) =
            run(of, seed, kills, &program).unwrap_or_else(|stuck| panic!("{kills:?}: {stuck}"));
        let dead = |rank: usize| kills.iter().any(|kill| kill.rank as usize == rank);
        assert!(ran.ends.iter().enumerate().all(|(rank, end)| end.is_some() || dead(rank)));
        ran.steps
    });
}
