//! `shrink`: rank after rank is killed, and the survivors measure how long recovery takes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::SIGUSR1;
use signal_hook::flag;
use tagmatch_comm::Error;
use tagmatch_comm::coll::{from_bytes, to_bytes};
use tagmatch_results::columns::RECOVERY_TABLE;
use tagmatch_results::show::one_line;
use tagmatch_results::show::tenths;
use tagmatch_results::{Matching, Means, Recovered, Row, Samples};

use super::call::works;
use super::rank0_output::{TestDescription, finish, open};
use super::ranks::{Ranks, World, sum_over};
use crate::args::{Effort, Recovery};
use crate::failure::Failure;
use crate::measure::interrupt;
use crate::report::Report;

/// Times that each rank sends to rank 0.
const STEPS: usize = 5;

/// Kills rank after rank, the last one first, until rank 0 is left, which prints the rows.
pub(super) fn measure(args: &Recovery, ranks: &Ranks) -> Result<(), Failure> {
    let mut comm = ranks.world();
    interrupt::ignore();
    // MPICH's mpiexec reports deaths by this signal, which would end the survivors.
    let _ = flag::register(SIGUSR1, Arc::new(AtomicBool::new(false)));
    let mut report = begin(args, ranks)?;
    let mut written = Ok(());
    while comm.size() > 1 {
        let before = comm.size();
        let failed = |error: &dyn std::fmt::Display| {
            let what = format!("recovery of {before} ranks at rank {}: {error}", comm.rank());
            Failure::Measurement(one_line(what))
        };
        let (next, own, matching) = recover(&comm, ranks).map_err(|error| failed(&error))?;
        if next.size() != before - 1 {
            return Err(failed(&format!("{} live, not {}", next.size(), before - 1)));
        }
        if !args.common.no_validate {
            works(&next).map_err(|why| failed(&why))?;
        }
        let all = next.allgather(to_bytes(&own)).wait().map_err(|error| failed(&error))?;
        let matching = sum_over(&next, &matching).map_err(|error| failed(&error))?;
        // The survivors need rank 0 even if its output has lost its reader.
        if let Some(report) = report.as_mut().filter(|_| written.is_ok()) {
            let row = row(before, &from_bytes::<f64>(&all));
            written = report.row(row, &matching, None);
        }
        comm = next;
    }
    let finish = |report| finish(report, ranks, &args.common, false);
    written.and_then(|()| report.map_or(Ok(()), finish))
}

fn begin(args: &Recovery, ranks: &Ranks) -> Result<Option<Report>, Failure> {
    let what = "from the last word to the one who dies until it is known (noticed); from there \
                on the other four, together avg, min and max";
    let subject = TestDescription {
        test: "shrink",
        title: "recovery from a SIGKILL of the last rank: us, averages of those who live"
            .to_owned(),
        facts: vec![("interval", what.to_owned())],
        sizes: &[0],
        effort: &Effort { iters: Some(1), ..Effort::default() },
    };
    open(ranks, &args.common, &subject, RECOVERY_TABLE)
}

/// The last rank dies. The others return a communicator without it, the time of each step in ns,
/// and how their receives were matched in all steps.
fn recover(comm: &World, ranks: &Ranks) -> Result<(World, [f64; STEPS], Matching), Error> {
    let victim = comm.size() - 1;
    comm.barrier().wait()?;
    // After this the victim has heard of all ranks, and no rank waits for a message that its death
    // could destroy.
    comm.gather(victim, vec![1]).wait()?;
    let before = ranks.matching();
    let mut last = Instant::now();
    let mut step = || {
        let now = Instant::now();
        let before = last;
        last = now;
        (now - before).as_secs_f64() * 1e9
    };
    if comm.rank() == victim {
        // The process ends here.
        let _ = kill_process(getpid(), Signal::KILL);
    }
    // A barrier fails once the death is known.
    while comm.barrier().wait().is_ok() {}
    let noticed = step();
    comm.revoke();
    let revoke = step();
    comm.agree(1).wait()?;
    let agree = step();
    let next = comm.shrink().wait()?;
    let shrink = step();
    next.barrier().wait()?;
    let steps = [noticed, revoke, agree, shrink, step()];
    Ok((next, steps, ranks.matching().since(&before)))
}

/// The row of a recovery. `all` has the times of all survivors, rank 0's first.
fn row(ranks: u32, all: &[f64]) -> Row {
    let (each, _) = all.as_chunks::<STEPS>();
    let average = |step: usize| {
        tenths(each.iter().map(|steps| steps[step]).sum::<f64>() / each.len().max(1) as f64)
    };
    let together: Vec<f64> = each.iter().map(|steps| steps[1..].iter().sum()).collect();
    let mut samples = Samples::default();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in ns")]
    together.iter().take(1).for_each(|ns| samples.record_one_way(ns.round() as u64));
    let [noticed, revoke, agree, shrink, barrier] = [0, 1, 2, 3, 4].map(average);
    Row {
        iters: 1,
        samples: samples.count(),
        latency_ns: samples.halved(),
        ranks: Some(ranks),
        rank_means_ns: Some(Means::of(&together)),
        recovery_ns: Some(Recovered { noticed, revoke, agree, shrink, barrier }),
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_averages_and_their_sums_are_of_each_rank() {
        let row = row(3, &[100.0, 1.0, 2.0, 3.0, 4.0, 300.0, 3.0, 4.0, 5.0, 8.0]);
        let steps =
            Recovered { noticed: 200.0, revoke: 2.0, agree: 3.0, shrink: 4.0, barrier: 6.0 };
        assert_eq!(row.recovery_ns, Some(steps));
        assert_eq!(row.rank_means_ns, Some(Means { min: 10.0, avg: 15.0, max: 20.0 }));
        assert_eq!(row.latency_ns.unwrap().p50, 10.0, "rank 0's");
    }
}
