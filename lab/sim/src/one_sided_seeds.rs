//! The profile `one-sided`: seeds of random one-sided operations.

use tagmatch_sim::{OneSidedCounts, OneSidedRun, Violation};

use crate::{Args, Stopwatch, write_history};

pub(crate) const NAME: &str = "one-sided";
pub(crate) const ABOUT: &str =
    "puts, gets and atomic operations, by messages and without; regions that close";

/// Runs all seeds. Returns whether nothing was found.
pub(crate) fn run(args: &Args) -> bool {
    let stopwatch = Stopwatch::start();
    let mut all = OneSidedCounts::default();
    for index in 0..args.seeds {
        let run = OneSidedRun::of_seed(args.seed.wrapping_add(index), args.steps);
        let mut lines = Vec::new();
        let keeps_lines = args.seeds == 1 && args.history.is_some();
        match run.run(keeps_lines.then_some(&mut lines)) {
            Ok(counts) => all.add(&counts),
            Err(violation) => {
                explain(args, run, &violation);
                return false;
            }
        }
        if keeps_lines {
            write_history(args, &lines);
        }
    }
    let OneSidedCounts { begun, succeeded, closed, direct, events } = all;
    let (seconds, on_cpu) = stopwatch.seconds();
    println!("{NAME} seed {} + {}: {all:?}", args.seed, args.seeds);
    eprintln!(
        "{NAME:18} {} seeds, {begun} operations ({succeeded} succeeded, {direct} of them without a \
         message, {closed} on closed regions, {events} events), {seconds:.2} s, \
         {:.2} million/s of processor",
        args.seeds,
        begun as f64 / on_cpu.max(1e-9) / 1e6
    );
    true
}

/// Finds the fewest steps with which the run fails, and prints what happens then.
fn explain(args: &Args, run: OneSidedRun, violation: &Violation) {
    let fails = |steps: &u32| OneSidedRun { steps: *steps, ..run }.run(None).is_err();
    let steps = (0..run.steps).find(fails).unwrap_or(run.steps);
    let mut lines = Vec::new();
    let shorter = OneSidedRun { steps, ..run }.run(Some(&mut lines)).err();
    let violation = shorter.as_ref().unwrap_or(violation);
    lines.push(format!("--> {violation}"));
    write_history(args, &lines);
    eprintln!(
        "FAILED: profile {NAME} seed {}: {violation}\n  repeat it with:\n  \
         tagmatch-sim --profile {NAME} --seed {} --steps {steps}",
        run.seed, run.seed
    );
}
