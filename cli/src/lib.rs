//! tagperf: latency, bandwidth, message rate and matching depth of `tagmatch`.
#![forbid(unsafe_code)]
// What replay counts is for the command to say.
#![cfg_attr(not(feature = "command"), allow(dead_code))]

#[cfg(feature = "command")]
mod args;
#[cfg(feature = "command")]
mod compare;
#[cfg(feature = "command")]
mod control;
#[cfg(feature = "command")]
mod cpus;
#[cfg(feature = "command")]
mod device;
#[cfg(feature = "command")]
mod environment;
#[cfg(feature = "command")]
mod failure;
#[cfg(feature = "command")]
mod files;
#[cfg(feature = "command")]
mod info;
#[cfg(feature = "command")]
mod isolated_trial;
#[cfg(feature = "command")]
mod launch;
#[cfg(feature = "command")]
mod link;
#[cfg(feature = "command")]
mod measure;
#[cfg(feature = "command")]
mod output;
#[cfg(feature = "command")]
mod payload;
#[cfg(feature = "command")]
mod plot;
#[cfg(feature = "command")]
mod progress;
#[cfg(feature = "command")]
mod reasons;
pub mod replay;
#[cfg(feature = "command")]
mod report;
#[cfg(feature = "command")]
mod result;
#[cfg(feature = "command")]
mod saved_run;
#[cfg(feature = "command")]
mod spec;
#[cfg(feature = "command")]
mod style;
#[cfg(feature = "command")]
mod table;
pub mod trace;
#[cfg(feature = "command")]
mod units;

#[cfg(feature = "command")]
use {
    args::{Bulk, Cli, Command},
    failure::Failure,
    measure::{Operation, Test},
    std::process::ExitCode,
};

/// Runs the command line of this process.
#[cfg(feature = "command")]
#[must_use]
pub fn run() -> ExitCode {
    match Cli::read(std::env::args_os()).and_then(|cli| cli.map_or(Ok(()), dispatch)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

#[cfg(feature = "command")]
fn dispatch(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        None => measure::all_tests(&cli.common),
        Some(Command::Lat(args)) => measure::command(Test::Lat, &args),
        Some(Command::Bw(args)) => measure::command(Test::Bw, &args),
        Some(Command::Bibw(args)) => measure::command(Test::Bibw, &args),
        Some(Command::Depth(args)) => measure::depth(&args),
        Some(Command::Rate(args)) => measure::command(Test::Rate, &args),
        Some(Command::Barrier(args)) => measure::collective(Operation::Barrier, None, &args),
        Some(Command::Bcast(Bulk { sizes, collective })) => {
            measure::collective(Operation::Bcast, sizes, &collective)
        }
        Some(Command::Allreduce(Bulk { sizes, collective })) => {
            measure::collective(Operation::Allreduce, sizes, &collective)
        }
        Some(Command::Alltoall(Bulk { sizes, collective })) => {
            measure::collective(Operation::Alltoall, sizes, &collective)
        }
        Some(Command::Dup(args)) => measure::collective(Operation::Dup, None, &args),
        Some(Command::Agree(args)) => measure::collective(Operation::Agree, None, &args),
        Some(Command::Shrink(args)) => measure::shrink(&args),
        Some(Command::Serve(args)) => measure::serve(&args),
        Some(Command::Run(args)) => launch::command(&args),
        Some(Command::Info) => info::command(),
        Some(Command::Compare(args)) => compare::command(&args),
        Some(Command::Replay(args)) => replay::command(&args),
        Some(Command::Peer(args)) => measure::peer(args),
    }
}
