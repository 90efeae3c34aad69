//! Options of the tests of N ranks.

use clap::{Arg, Args};

use super::common::Common;
use super::effort::Effort;
use crate::spec::bounds::RANKS_MAX;
use crate::units::Sizes;

#[derive(Args, Clone, Debug)]
pub(crate) struct Ranks {
    /// Ranks to start here; under a launcher, the launcher's number [2; shrink: 4]
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=RANKS_MAX))]
    pub(crate) n: Option<u32>,
    /// Collective operations by messages, also among ranks that share memory
    #[arg(long)]
    pub(crate) by_messages: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Collective {
    #[command(flatten)]
    pub(crate) ranks: Ranks,
    #[command(flatten)]
    pub(crate) effort: Effort,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Bulk {
    /// Bytes a message: 8..1M (powers of two) or 8,4K,1M; allreduce: multiples of 8 [8..1M]
    #[arg(long, alias = "size", value_name = "SIZES")]
    pub(crate) sizes: Option<Sizes>,
    #[command(flatten)]
    pub(crate) collective: Collective,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Recovery {
    #[command(flatten)]
    pub(crate) ranks: Ranks,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Words the help of shared options for the tests of N ranks.
pub(super) fn reword(arg: Arg) -> Arg {
    let help = match arg.get_id().as_str() {
        "iters" => "Calls a row",
        "duration" => "Time a row: 1s, 500ms; with --iters the first reached [500ms]",
        "warmup" => "Calls before it, not counted [1000, at most 50 ms]",
        "pin" => {
            "CPU numbers that ranks take in turn, or none [each its own, if there are as many; \
             under a launcher that binds: its]"
        }
        "no_validate" => "Do not check results",
        "histogram" => "Spread of rank 0's times: bars (us) below each row, bins (ns) in JSON",
        "osu" => "What OSU's benchmarks print (means over ranks in us) instead",
        _ => return arg,
    };
    arg.help(help)
}
