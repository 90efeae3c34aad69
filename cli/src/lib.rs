//! tagperf: latency, bandwidth, message rate and matching depth of `tagmatch`.
#![forbid(unsafe_code)]

mod args;
mod compare;
mod control;
mod cpus;
mod device;
mod distance;
mod environment;
mod failure;
mod files;
mod info;
mod isolated_trial;
mod launch;
mod learned;
mod limits;
mod link;
mod measure;
mod nic;
mod output;
mod payload;
mod plot;
mod progress;
mod reasons;
mod replay;
mod report;
mod secret;
mod spec;
mod style;
mod units;
mod verbs;

use {
    args::{Bulk, Cli, Command, Info, OneSidedBulk},
    failure::Failure,
    measure::{Operation, Test},
    std::process::ExitCode,
};

/// Internal, no promises: what the programs of `benches/peers` share with the command.
#[doc(hidden)]
pub mod shared {
    pub use crate::cpus::cpus as allowed_cpus;
    pub use crate::measure::{Call, Operation, World};
}

/// Runs the command line of this process.
#[must_use]
pub fn run() -> ExitCode {
    limits::raise_descriptors();
    match Cli::read(std::env::args_os()).and_then(|cli| cli.map_or(Ok(()), dispatch)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn dispatch(cli: Cli) -> Result<(), Failure> {
    cli.check_verbs()?;
    verbs::adopt(cli.verbs);
    match cli.command {
        None => measure::all_tests(&cli.common),
        Some(Command::Lat(args)) => measure::command(Test::Lat, &args),
        Some(Command::Bw(args)) => measure::command(Test::Bw, &args),
        Some(Command::Bibw(args)) => measure::command(Test::Bibw, &args),
        Some(Command::Depth(args)) => measure::depth(&args),
        Some(Command::Rate(args)) => measure::command(Test::Rate, &args),
        Some(Command::Put(OneSidedBulk { sizes, one_sided })) => {
            measure::one_sided(Test::Put, sizes, &one_sided)
        }
        Some(Command::Get(OneSidedBulk { sizes, one_sided })) => {
            measure::one_sided(Test::Get, sizes, &one_sided)
        }
        Some(Command::Fadd(args)) => measure::one_sided(Test::Fadd, None, &args),
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
        Some(Command::Info(Info { learned: false, .. })) => info::command(),
        Some(Command::Info(Info { device, .. })) => learned::command(&device.unwrap_or_default()),
        Some(Command::Compare(args)) => compare::command(&args),
        Some(Command::Replay(args)) => replay::command(&args),
        Some(Command::Peer(args)) => measure::peer(args),
        Some(Command::RunHere) => launch::help(),
    }
}
