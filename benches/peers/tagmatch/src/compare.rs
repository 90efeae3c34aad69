//! The run of `ci/peers`: installs the programs, lets them take turns, prints the tables.
//!
//! `options` reads the command line, `programs` starts programs, `plan` has their cases, `runner`
//! keeps the record, `networks` makes network namespaces, `real` measures real programs.

mod networks;
mod options;
mod plan;
mod programs;
mod real;
mod runner;

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::case::Outcome;
use crate::report::{self, Next, Record};
use options::{Options, Setup};
use programs::install;
use runner::Runner;

/// How long the run waits for another distance between two probes.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs `ci/peers` with these arguments. `Ok(false)`: something could not be measured, and is
/// listed.
///
/// # Errors
/// Wrong options, or the machine refuses what every program needs.
pub(crate) fn command(arguments: &[String]) -> Outcome<bool> {
    let name = "ci/peers".to_owned();
    let options = Options::parse_from([name].iter().chain(arguments));
    if let Some(path) = &options.from {
        print_tables(&options, &Record::parse(&fs::read_to_string(path)?)?)?;
        return Ok(true);
    }
    let setup = options.setup()?;
    if options.programs {
        return real::measure(&setup);
    }
    let mut missing = Vec::new();
    for &program in &setup.programs {
        if let Err(why) = install(program, setup.is_newest) {
            eprintln!("ci/peers: {program}: {why}");
            missing.push((program, why));
        }
    }
    if options.check {
        if missing.is_empty() {
            let names = setup.programs.join(" ");
            println!("ci/peers: all compile without a warning: {names}");
        }
        return Ok(missing.is_empty());
    }
    if let Some(ranks) = &options.scale {
        let ranks = ranks.iter().map(u32::to_string);
        return Err(Command::new("benches/peers/scale").args(ranks).exec().into());
    }
    let mut runner = Runner::new(&options, &setup)?;
    for (program, why) in missing {
        runner.fail(program, "all", &why)?;
    }
    measure(&mut runner, &setup)?;
    if let Some(path) = &options.record {
        fs::write(path, &runner.text)?;
    }
    print_tables(&options, &runner.record)?;
    Ok(runner.record.failures.is_empty())
}

/// Lets programs take turns until all have enough samples, or the time is over.
fn measure(runner: &mut Runner<'_>, setup: &Setup) -> Outcome<()> {
    let begin = Instant::now();
    let took = || begin.elapsed().as_secs();
    while took() < 60 * setup.minutes {
        let next = report::next(&runner.record);
        let step = match &next {
            Next::Turn { program, group } => format!("{program} {group}"),
            Next::Wait => "another distance".to_owned(),
            Next::Done => break,
        };
        setup.show_progress(&format!("{} of {} minutes: {step}", took() / 60, setup.minutes));
        match next {
            Next::Turn { program, group } => {
                let program = program.to_owned();
                let group = group.to_owned();
                runner.turn(&program, &group)?;
            }
            Next::Wait | Next::Done => {
                runner.probe()?;
                std::thread::sleep(PAUSE);
            }
        }
    }
    setup.show_progress("");
    runner.push(&format!("run\ttook\t{} s", took()))
}

/// Prints the tables, and writes JSON, Markdown and charts if they are wanted.
fn print_tables(options: &Options, record: &Record) -> Outcome<()> {
    print!("{}", report::text(record, options.stat));
    if let Some(path) = &options.json {
        fs::write(path, format!("{:#}\n", report::document(record, options.stat)))?;
    }
    if let Some(path) = &options.markdown {
        fs::write(path, report::markdown(record, options.stat))?;
    }
    if let Some(folder) = &options.plot {
        for name in report::write_charts(record, options.stat, folder)? {
            eprintln!("{}", folder.join(name).display());
        }
    }
    Ok(())
}
