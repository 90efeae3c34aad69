//! The profile `one-sided`: seeds of random one-sided operations.

use std::path::Path;

use tagmatch_sim::{OneSidedCounts, OneSidedRun, Violation};

use crate::output::{Stopwatch, write_history};

pub(crate) const NAME: &str = "one-sided";
pub(crate) const ABOUT: &str =
    "puts, gets and atomic operations, by messages and without; regions that close";

/// Runs of the profile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneSidedSeeds<'a> {
    pub(crate) first: u64,
    pub(crate) seeds: u64,
    pub(crate) steps: u32,
    /// The file for the history of a failure, or of a single seed.
    pub(crate) history: Option<&'a Path>,
}

impl OneSidedSeeds<'_> {
    /// Runs all seeds. Returns whether nothing was found.
    pub(crate) fn run(&self) -> bool {
        let stopwatch = Stopwatch::start();
        let mut all = OneSidedCounts::default();
        for index in 0..self.seeds {
            let run = OneSidedRun::of_seed(self.first.wrapping_add(index), self.steps);
            let mut lines = Vec::new();
            let keeps_lines = self.seeds == 1 && self.history.is_some();
            match run.run(keeps_lines.then_some(&mut lines)) {
                Ok(counts) => all.add(&counts),
                Err(violation) => {
                    self.explain(run, &violation);
                    return false;
                }
            }
            if keeps_lines {
                write_history(self.history, &lines);
            }
        }
        let OneSidedCounts { begun, succeeded, closed, direct, events } = all;
        let (seconds, on_cpu) = stopwatch.seconds();
        println!("{NAME} seed {} + {}: {all:?}", self.first, self.seeds);
        eprintln!(
            "{NAME:18} {} seeds, {begun} operations ({succeeded} succeeded, {direct} of them without \
             a message, {closed} on closed regions, {events} events), {seconds:.2} s, \
             {:.2} million/s of processor",
            self.seeds,
            begun as f64 / on_cpu.max(1e-9) / 1e6
        );
        true
    }

    /// Finds the fewest steps with which the run fails, and prints what happens then.
    fn explain(&self, run: OneSidedRun, violation: &Violation) {
        let fails = |steps: &u32| OneSidedRun { steps: *steps, ..run }.run(None).is_err();
        let steps = (0..run.steps).find(fails).unwrap_or(run.steps);
        let mut lines = Vec::new();
        let shorter = OneSidedRun { steps, ..run }.run(Some(&mut lines)).err();
        let violation = shorter.as_ref().unwrap_or(violation);
        lines.push(format!("--> {violation}"));
        write_history(self.history, &lines);
        eprintln!(
            "FAILED: profile {NAME} seed {}: {violation}\n  repeat it with:\n  \
             tagmatch-sim --profile {NAME} --seed {} --steps {steps}",
            run.seed, run.seed
        );
    }
}
