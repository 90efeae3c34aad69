//! The rows of a collective operation, one for each size: checked, warmed up, measured.

use std::time::{Duration, Instant};

use tagmatch_comm::coll::{from_bytes, to_bytes};
use tagmatch_results::columns::COLLECTIVE_TABLE;
use tagmatch_results::show::show_size;
use tagmatch_results::{Blocks, Matching, Means, Row, Samples};

use super::call::{Call, Operation};
use super::rank0_output::{TestDescription, finish, open};
use super::ranks::{Ranks, World, last_barrier, refused, sum_over};
use crate::args::Collective;
use crate::failure::Failure;
use crate::measure::interrupt::Interrupt;
use crate::progress::Progress;
use crate::spec::Limits;

const FIGURES: &str = "avg, min and max are over the ranks' means, p50 to p99.9 of rank 0's calls";
/// Bytes and calls between two readings of the limits: the first bound that is reached.
const BATCH_BYTES: u64 = 256 << 10;
const BATCH: u64 = 64;

/// Measures on all ranks; rank 0 prints the rows.
pub(super) fn measure(
    operation: Operation,
    sizes: &[u64],
    args: &Collective,
    ranks: &Ranks,
) -> Result<(), Failure> {
    let world = ranks.world();
    operation.fits(sizes, world.size()).map_err(|why| refused(world.rank(), why))?;
    let prepared = |size| prepared(operation, size, args, ranks, &world);
    let subject = TestDescription {
        test: operation.name(),
        title: format!("{}: us a call", operation.title()),
        facts: vec![("effort", args.effort.describe("calls", "")), ("figures", FIGURES.to_owned())],
        sizes,
        effort: &args.effort,
    };
    let columns = &COLLECTIVE_TABLE[usize::from(!operation.has_size())..];
    let Some(mut report) = open(ranks, &args.common, &subject, columns)? else {
        for &size in sizes {
            let mut call = prepared(size)?;
            CallTimes::of(&mut call, ranks, &mut |_, _| 0)?.of_all(&call, &world)?;
        }
        last_barrier(&world);
        return Ok(());
    };
    let interrupt = Interrupt::watch()?;
    let mut progress = Progress::new(sizes.len(), args.common.report.json_stream);
    let mut written = Ok(());
    let mut interrupted = false;
    // Rank 0 goes through all sizes even if it may not go on: the other ranks hear, size by size,
    // that there are no more calls.
    for &size in sizes {
        let what = format!("{} {}", operation.name(), show_size(size));
        progress.begin(what.clone());
        let mut call = prepared(size)?;
        let mut planner = BatchPlanner::new(args.effort.limits(), call.bytes());
        let measured = CallTimes::of(&mut call, ranks, &mut |done, counts| {
            // If progress can't be written, the row can't be either, and that one reports the
            // error.
            let output = progress.at(|| what.clone(), |line| report.progress(line));
            let is_wanted = output.is_ok() && written.is_ok() && !report.has_no_reader();
            if is_wanted && !interrupt.is_raised() { planner.next(done, counts) } else { 0 }
        })?;
        let (means, matching) = measured.of_all(&call, &world)?;
        progress.end();
        interrupted |= interrupt.is_raised();
        if measured.samples.count() > 0 && written.is_ok() {
            let mut row = measured.row(size, world.size(), means, interrupt.is_raised());
            row.histogram = report.histogram(&measured.samples);
            written = progress.above(|| report.row(row, &matching, None));
        }
    }
    drop(progress);
    last_barrier(&world);
    written.and_then(|()| finish(report, ranks, &args.common, interrupted))
}

/// A call whose result was checked once, unless that was switched off.
fn prepared<'a>(
    operation: Operation,
    size: u64,
    args: &Collective,
    ranks: &Ranks,
    world: &'a World,
) -> Result<Call<'a>, Failure> {
    let mut call = Call::new(operation, size, world);
    if !args.common.no_validate {
        let checked = call.check(ranks.are_here);
        checked.map_err(|why| call.failed(why))?;
    }
    Ok(call)
}

/// Decides how many calls the next batch has. Only rank 0 does, since clocks differ.
struct BatchPlanner {
    limits: Limits,
    batch: u64,
    /// The beginning of this phase, and whether it counts.
    phase: Option<(Instant, bool)>,
}

impl BatchPlanner {
    fn new(limits: Limits, bytes: u64) -> Self {
        Self { limits, batch: (BATCH_BYTES / bytes.max(1)).clamp(1, BATCH), phase: None }
    }

    fn next(&mut self, done: u64, counts: bool) -> u64 {
        let begun = match self.phase {
            Some((begun, of)) if of == counts => begun,
            _ => self.phase.insert((Instant::now(), counts)).0,
        };
        let Limits { iters, time, warmup_iters, warmup_time } = self.limits;
        let (iters, time) = if counts { (iters, time) } else { (warmup_iters, warmup_time) };
        let is_first = counts && done == 0;
        let goes_on = done < iters && (begun.elapsed() < time || is_first);
        if goes_on { self.batch.min(iters - done) } else { 0 }
    }
}

/// The times of one rank's calls.
struct CallTimes {
    samples: Samples,
    blocks: Blocks,
    took: Duration,
    /// How the receives of the calls were matched, without those of the barriers between them.
    matching: Matching,
}

impl CallTimes {
    /// Runs the warm-up, then the part that counts. At rank 0 `next` says how many calls come next;
    /// it gets the number of calls of the phase so far, and whether the phase counts.
    fn of(
        call: &mut Call<'_>,
        ranks: &Ranks,
        next: &mut dyn FnMut(u64, bool) -> u64,
    ) -> Result<Self, Failure> {
        let world = ranks.world();
        let samples = Samples::default();
        let blocks = Blocks::new();
        let matching = Matching::default();
        let mut measured = Self { samples, blocks, took: Duration::ZERO, matching };
        let mut times = Vec::new();
        for counts in [false, true] {
            let mut done = 0;
            loop {
                let wanted = if world.rank() == 0 { next(done, counts) } else { 0 };
                let next_count = world.broadcast(0, to_bytes(&[wanted])).wait();
                let next_count = next_count.map_err(|error| call.failed(error))?;
                let [count] = from_bytes::<u64>(&next_count)[..] else { break };
                if count == 0 {
                    break;
                }
                times.clear();
                let mut matching = Matching::default();
                for _ in 0..count {
                    world.barrier().wait().map_err(|error| call.failed(error))?;
                    let before = ranks.matching();
                    times.push(call.make().map_err(|error| call.failed(error))?);
                    matching.add(&ranks.matching().since(&before));
                }
                done += count;
                if counts {
                    measured.add(&times, &matching);
                }
            }
        }
        Ok(measured)
    }

    fn add(&mut self, times: &[Duration], matching: &Matching) {
        self.matching.add(matching);
        let ns = |time: &Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        times.iter().for_each(|time| self.samples.record_one_way(ns(time)));
        self.blocks.round_trips(times.iter().map(|time| 2 * ns(time)));
        self.took += times.iter().sum();
    }

    /// The mean times of all ranks, and how the receives of all were matched.
    fn of_all(&self, call: &Call<'_>, world: &World) -> Result<(Means, Matching), Failure> {
        let mean = self.took.as_secs_f64() * 1e9 / self.samples.count().max(1) as f64;
        let all = world.allgather(to_bytes(&[mean])).wait().map_err(|error| call.failed(error))?;
        let sum = sum_over(world, &self.matching).map_err(|error| call.failed(error))?;
        Ok((Means::of(&from_bytes::<f64>(&all)), sum))
    }

    fn row(&self, size: u64, ranks: u32, means: Means, interrupted: bool) -> Row {
        Row {
            size,
            iters: self.samples.count(),
            samples: self.samples.count(),
            latency_ns: self.samples.halved(),
            ranks: Some(ranks),
            rank_means_ns: Some(means),
            interrupted,
            blocks: self.blocks.figures(),
            ..Row::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_0_says_when_it_is_enough() {
        let hour = Duration::from_secs(3600);
        let limits = Limits { iters: 100, time: hour, warmup_iters: 0, warmup_time: hour };
        let mut planner = BatchPlanner::new(limits, 8);
        assert_eq!(planner.next(0, false), 0, "no warm-up");
        assert_eq!([0, 64, 100].map(|done| planner.next(done, true)), [64, 36, 0]);
        let mut planner = BatchPlanner::new(Limits { time: Duration::ZERO, ..limits }, 200 << 10);
        assert_eq!(
            [0, 1].map(|done| planner.next(done, true)),
            [1, 0],
            "one call is made in any case"
        );
        // A warm-up that has taken two minutes leaves the measurement its own minute.
        let minute = Duration::from_secs(60);
        let limits = Limits { iters: 1000, time: minute, ..limits };
        let mut planner = BatchPlanner::new(limits, 8);
        planner.phase = Instant::now().checked_sub(2 * minute).map(|begun| (begun, false));
        assert_eq!([0, 64].map(|done| planner.next(done, true)), [64, 64]);
    }
}
