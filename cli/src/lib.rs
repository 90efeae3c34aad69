//! tagperf: latency, bandwidth, message rate and matching depth of `tagmatch`.
#![forbid(unsafe_code)]

mod args;
mod blocks;
mod compare;
mod control;
mod failure;
mod files;
mod histogram;
mod info;
mod json;
mod link;
mod measure;
mod output;
mod payload;
mod plot;
mod progress;
mod reasons;
pub mod replay;
mod report;
mod runs;
mod samples;
mod style;
mod table;
pub mod trace;
mod trust;
mod units;

use std::process::ExitCode;

use args::{Cli, Command};
use failure::Failure;
use measure::Test;

/// Runs the command line of this process.
#[must_use]
pub fn run() -> ExitCode {
    match Cli::read(std::env::args_os()).and_then(|cli| cli.map_or(Ok(()), dispatch)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn dispatch(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        None => measure::tour(&cli.common),
        Some(Command::Lat(args)) => measure::command(Test::Lat, &args),
        Some(Command::Bw(args)) => measure::command(Test::Bw, &args),
        Some(Command::Bibw(args)) => measure::command(Test::Bibw, &args),
        Some(Command::Depth(args)) => measure::depth(&args),
        Some(Command::Rate(args)) => measure::command(Test::Rate, &args),
        Some(Command::Serve(args)) => measure::serve(&args),
        Some(Command::Info) => info::command(),
        Some(Command::Compare(args)) => compare::command(&args),
        Some(Command::Replay(args)) => replay::command(&args),
        Some(Command::Peer(args)) => measure::peer(args),
    }
}
