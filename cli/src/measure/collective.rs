//! Tests of N ranks: collective operations, duplicates of communicators, agreement and recovery.
//!
//! 1. Without a launcher this process is the launcher: it starts itself N times.
//! 2. Each rank joins the job and makes its part of a runtime ([`Ranks`]).
//! 3. For each row, the result is checked once; then follow warm-up calls, then batches of measured
//!    calls. Rank 0 tells the others how many calls each batch has. A barrier before each call,
//!    which isn't timed, keeps the ranks together, as in OSU's benchmarks.
//! 4. All ranks send their means to rank 0, which prints them (`rank0_output`).

mod call;
mod rank0_output;
mod ranks;
mod recovery;
mod rows;

pub use call::{Call, Operation};
pub use ranks::World;

use tagmatch_launch::Job;

use crate::args::{Collective, Common, RanksArgs, Recovery};
use crate::failure::Failure;
use crate::report::Report;
use crate::units::Sizes;
use ranks::Ranks;

/// Default number of ranks to start.
const RANKS: u32 = 2;
const RANKS_OF_RECOVERY: u32 = 4;

/// `tagperf barrier | bcast | allreduce | alltoall | dup | agree`.
pub(crate) fn command(
    operation: Operation,
    sizes: Option<Sizes>,
    args: &Collective,
) -> Result<(), Failure> {
    let sizes = operation.sizes(sizes)?;
    match started(&args.ranks, RANKS, &args.common, false)? {
        None => Ok(()),
        Some(ranks) => {
            let done = rows::measure(operation, &sizes, args, &ranks);
            ranks.leave().and(done)
        }
    }
}

/// `tagperf shrink`.
pub(crate) fn shrink(args: &Recovery) -> Result<(), Failure> {
    match started(&args.ranks, RANKS_OF_RECOVERY, &args.common, true)? {
        None => Ok(()),
        Some(ranks) => {
            let done = recovery::measure(args, &ranks);
            ranks.leave().and(done)
        }
    }
}

/// Makes the ranks. Options that can be refused are refused by one process, before any rank is
/// started.
fn started(
    wanted: &RanksArgs,
    default: u32,
    common: &Common,
    dies: bool,
) -> Result<Option<Ranks>, Failure> {
    if dies && (common.report.plot.is_some() || common.report.histogram) {
        let why = "--plot, --histogram: one recovery a row makes neither";
        return Err(Failure::usage(why, "--json or --csv"));
    }
    if !Job::is_launched() {
        Report::open(common)?;
    }
    ranks::start(wanted, default, common, dies)
}
