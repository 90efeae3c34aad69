//! Runs the programs of all processes in one thread.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::Sim;
use crate::net::ProcessId;

/// A death: a process does nothing any more after the simulation's step `step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// Which process, numbered through all jobs.
    pub rank: u32,
    /// After which step: a step is an event of the network, or a turn of one process.
    pub step: u64,
}

/// Some processes wait for what will never come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}: processes {ranks:?} are stuck after {steps} steps")]
pub struct Stuck {
    /// The simulation's seed.
    pub seed: u64,
    /// Which processes.
    pub ranks: Vec<usize>,
    /// Steps until then.
    pub steps: u64,
}

/// How a simulation ended.
#[derive(Debug)]
pub struct Ran<T> {
    /// What each process's program returned; `None` if it died before.
    pub ends: Vec<Option<T>>,
    /// How many steps it took.
    pub steps: u64,
}

impl Sim {
    /// Runs a program on each process, in the order of their ranks, until all have ended or died.
    ///
    /// # Errors
    /// Nothing moves any more, and some have not ended.
    pub fn run<F: Future>(
        &self,
        programs: impl IntoIterator<Item = F>,
        kills: &[Kill],
    ) -> Result<Ran<F::Output>, Stuck> {
        let mut programs: Vec<Option<Pin<Box<F>>>> =
            programs.into_iter().map(|program| Some(Box::pin(program))).collect();
        let mut ends: Vec<Option<F::Output>> = programs.iter().map(|_| None).collect();
        let mut context = Context::from_waker(Waker::noop());
        let (mut steps, mut in_vain) = (0, 0);
        let turns_in_vain = self.world.borrow().config.turns_in_vain as usize;
        loop {
            for kill in kills.iter().filter(|kill| kill.step == steps) {
                // The network first: what the process lets go of is not done in order any more.
                self.world.borrow_mut().kill(ProcessId(kill.rank));
                programs[kill.rank as usize] = None;
                // Those who are left have yet to learn of it.
                in_vain = 0;
            }
            let running: Vec<usize> =
                (0..programs.len()).filter(|at| programs[*at].is_some()).collect();
            if running.is_empty() {
                return Ok(Ran { ends, steps });
            }
            steps += 1;
            self.world.borrow_mut().steps = steps;
            let before = self.world.borrow().activity();
            let choice = u32::try_from(running.len()).unwrap_or(u32::MAX);
            let (event, which) = {
                let rng = &mut self.world.borrow_mut().rng;
                (rng.below(2) == 0, rng.below(choice) as usize)
            };
            if event && self.world.borrow_mut().step() {
                in_vain = 0;
                continue;
            }
            // In turn while nothing is on its way, so that nobody is forgotten.
            let at = running[if in_vain > running.len() { in_vain % running.len() } else { which }];
            if let Some(program) = &mut programs[at]
                && let Poll::Ready(end) = program.as_mut().poll(&mut context)
            {
                ends[at] = Some(end);
                programs[at] = None;
                in_vain = 0;
            }
            in_vain = if self.world.borrow().activity() == before { in_vain + 1 } else { 0 };
            if in_vain > turns_in_vain * running.len() && !self.world.borrow_mut().step() {
                return Err(Stuck { seed: self.world.borrow().config.seed, ranks: running, steps });
            }
        }
    }
}
