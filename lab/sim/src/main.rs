//! `tagmatch-sim`: runs seeds, and makes those that fail small.

mod exhausting;
mod one_sided_seeds;
mod output;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tagmatch_sim::{Counts, PROFILES, Plan, Profile, WireFault, shrink};

use crate::one_sided_seeds::OneSidedSeeds;
use crate::output::{Stopwatch, write_history};

/// Simulates workers on wires that delay, refuse, fail and die, and judges every match.
///
/// The same seed gives the same history. A seed that fails is made small, and its history printed.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit status: 0 nothing found, 1 a rule was broken, 2 wrong usage."
)]
struct Args {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of seeds. They run one after the other.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The number of steps of each program.
    #[arg(long, default_value_t = 2000)]
    steps: u32,
    /// The number of workers. Without this option each seed draws it.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: Option<u32>,
    /// The profile of the runs; all profiles without this option. `--profiles` lists them.
    #[arg(long, value_parser = profile)]
    profile: Option<Runs>,
    /// List the profiles, and exit.
    #[arg(long)]
    profiles: bool,
    /// The file for the history of a failure, or of a single seed, instead of stderr.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// The fault that the wires have. The run must fail.
    #[arg(long, value_parser = wire_fault)]
    wire_fault: Option<WireFault>,
    /// Search small scopes instead of running seeds: every interleaving, on a NIC that the search
    /// drives. `ci`, `full`, or one size: the numbers of receives, messages, cancels and tags, and
    /// the number of outstanding completions at which nothing new begins (0: no such number).
    #[arg(long, value_name = "SCOPE")]
    exhaust: Option<exhausting::Families>,
}

/// What is run with each seed.
#[derive(Clone, Copy, Debug)]
enum Runs {
    Messages(&'static Profile),
    OneSided,
}

impl Runs {
    fn all() -> impl Iterator<Item = Runs> {
        PROFILES.iter().map(Runs::Messages).chain([Runs::OneSided])
    }

    fn name(self) -> &'static str {
        match self {
            Runs::Messages(profile) => profile.name,
            Runs::OneSided => one_sided_seeds::NAME,
        }
    }
}

fn profile(name: &str) -> Result<Runs, String> {
    let names: Vec<&str> = Runs::all().map(Runs::name).collect();
    let named = Runs::all().find(|runs| runs.name() == name);
    named.ok_or_else(|| format!("no such profile; there are: {}", names.join(", ")))
}

fn wire_fault(name: &str) -> Result<WireFault, String> {
    let named = |wire_fault: &WireFault| format!("{wire_fault:?}").eq_ignore_ascii_case(name);
    let names =
        WireFault::ALL.map(|wire_fault| format!("{wire_fault:?}").to_lowercase()).join(", ");
    WireFault::ALL.into_iter().find(named).ok_or_else(|| format!("there are: {names}"))
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(families) = &args.exhaust {
        return exhausting::run(families);
    }
    if args.profiles {
        for profile in &PROFILES {
            println!("{:18} {}", profile.name, profile.about);
        }
        println!("{:18} {}", one_sided_seeds::NAME, one_sided_seeds::ABOUT);
        return ExitCode::SUCCESS;
    }
    let all = args.profile.map_or_else(|| Runs::all().collect(), |one| vec![one]);
    for runs in all {
        let is_clean = match runs {
            Runs::Messages(profile) => run_profile(&args, profile),
            Runs::OneSided => {
                let history = args.history.as_deref();
                OneSidedSeeds { first: args.seed, seeds: args.seeds, steps: args.steps, history }
                    .run()
            }
        };
        if !is_clean {
            return ExitCode::from(1);
        }
    }
    ExitCode::SUCCESS
}

/// Runs all seeds of one profile. Returns whether nothing was found.
fn run_profile(args: &Args, profile: &Profile) -> bool {
    let stopwatch = Stopwatch::start();
    let mut counts = Counts::default();
    let mut digest = 0u64;
    for index in 0..args.seeds {
        let seed = args.seed.wrapping_add(index);
        let mut plan = Plan::new(profile, seed, args.steps, args.workers);
        plan.wire_fault = args.wire_fault;
        let keeps_lines = args.seeds == 1 && args.history.is_some();
        let report = plan.run(keeps_lines);
        if report.violation.is_some() {
            explain(args, profile, &plan);
            return false;
        }
        if keeps_lines {
            write_history(args.history.as_deref(), &report.lines);
        }
        counts.add(&report.counts);
        digest = digest.rotate_left(1) ^ report.digest;
    }
    let operations = counts.operations();
    let (seconds, on_cpu) = stopwatch.seconds();
    println!("{} seed {} + {}: digest {digest:016x}", profile.name, args.seed, args.seeds);
    eprintln!(
        "{:18} {} seeds, {operations} operations ({} calls, {} events, {} completions, {} received), \
         {seconds:.2} s, {:.2} million/s of processor",
        profile.name,
        args.seeds,
        counts.calls,
        counts.events,
        counts.completions,
        counts.received,
        operations as f64 / on_cpu.max(1e-9) / 1e6
    );
    true
}

/// Makes a failing plan small and prints it.
fn explain(args: &Args, profile: &Profile, plan: &Plan) {
    // A panic of the code under test is a violation, and the report has its text.
    std::panic::set_hook(Box::new(|_| {}));
    let small = shrink(plan);
    let report = small.run(true);
    let _ = std::panic::take_hook();
    let Some(violation) = report.violation else {
        eprintln!(
            "seed {} failed, but not when it ran again: the run is not deterministic",
            plan.seed
        );
        return;
    };
    let mut lines = report.lines;
    lines.push(format!("--> {violation}"));
    write_history(args.history.as_deref(), &lines);
    eprintln!(
        "FAILED: profile {} seed {}: {violation}\n  shrunk from {} to {} steps, {} workers; repeat it with:\n  \
         tagmatch-sim --profile {} --seed {} --steps {}{}{}",
        profile.name,
        plan.seed,
        plan.program.len(),
        small.program.len(),
        small.setup.workers,
        profile.name,
        plan.seed,
        args.steps,
        args.workers.map_or(String::new(), |workers| format!(" --workers {workers}")),
        args.wire_fault
            .map_or(String::new(), |what| format!(" --wire_fault {what:?}").to_lowercase())
    );
}
