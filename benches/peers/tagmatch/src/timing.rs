//! The measured batches of a case, and the output of their results.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::case::{Case, Outcome};
use crate::probe::Probe;

const BATCHES_MIN: usize = 5;
const BATCHES_MAX: usize = 100_000;

/// The mean of each batch.
pub(crate) struct Samples {
    nanoseconds: Vec<f64>,
    started: Instant,
}

impl Samples {
    pub(crate) fn begin() -> Self {
        Samples { nanoseconds: Vec::with_capacity(BATCHES_MAX), started: Instant::now() }
    }

    pub(crate) fn enough(&self, duration: Duration) -> bool {
        let count = self.nanoseconds.len();
        count >= BATCHES_MIN && (count == BATCHES_MAX || self.started.elapsed() >= duration)
    }

    pub(crate) fn push(&mut self, nanoseconds: f64) {
        self.nanoseconds.push(nanoseconds);
    }

    /// The smallest value that at least this share of the samples, in percent, does not exceed.
    fn quantile(&self, percent: usize) -> f64 {
        let rank = (percent * self.nanoseconds.len()).div_ceil(100);
        self.nanoseconds[rank.saturating_sub(1)]
    }

    /// `probes` are the distances that the probes before and after the samples saw, in ns; 0: there
    /// was no probe.
    pub(crate) fn print(mut self, case: &Case, probes: [f64; 2]) {
        self.nanoseconds.sort_by(f64::total_cmp);
        let min = self.nanoseconds[0];
        let p50 = self.quantile(50);
        let p90 = self.quantile(90);
        let [before, after] = probes;
        let count = self.nanoseconds.len();
        let name = &case.name;
        println!("result {name} {min:.3} {p50:.3} {p90:.3} {count} {before:.1} {after:.1}");
    }
}

/// One of the two processes of a case.
pub(crate) trait Process {
    /// Whether this process measures; the other one answers.
    fn is_first(&self) -> bool;

    fn probe(&mut self) -> &mut Probe;

    /// Both processes agree on how many operations the next batch has; 0 ends the case. This is
    /// also a barrier.
    fn agree(&self, count: usize) -> Outcome<usize>;

    /// Runs so many round trips, windows or calls of the case.
    fn batch(&mut self, case: &Case, count: usize) -> Outcome<()>;
}

/// Runs batches between two probes, and prints the mean time of an operation in them. Each round
/// trip, window or call of the case has so many operations.
pub(crate) fn measure(
    process: &mut impl Process,
    case: &Case,
    operations: usize,
    duration: Duration,
) -> Outcome<()> {
    if process.is_first() {
        print_begin(case);
    }
    let before = process.probe().distance();
    if !process.is_first() {
        loop {
            match process.agree(0)? {
                0 => {
                    process.probe().distance();
                    return Ok(());
                }
                count => process.batch(case, count)?,
            }
        }
    }
    // The first pass is warm-up.
    for (duration, is_last) in [(duration / 4, false), (duration, true)] {
        let mut samples = Samples::begin();
        while !samples.enough(duration) {
            process.agree(case.batch)?;
            let start = Instant::now();
            process.batch(case, case.batch)?;
            let nanoseconds = start.elapsed().as_nanos() as f64;
            samples.push(nanoseconds / (case.batch * operations) as f64);
        }
        if is_last {
            process.agree(0)?;
            samples.print(case, [before, process.probe().distance()]);
        }
    }
    Ok(())
}

/// Prints which case begins, so that a hang has a name.
pub(crate) fn print_begin(case: &Case) {
    println!("begin {}", case.name);
    // A closed pipe is noticed at the next line.
    let _ = std::io::stdout().flush();
}

pub(crate) fn print_value(case: &Case, value: f64) {
    println!("result {} {value:.3} {value:.3} {value:.3} 1 0 0", case.name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_rank() {
        let mut samples = Samples::begin();
        (1..=10).for_each(|i| samples.push(f64::from(i)));
        assert_eq!((samples.quantile(50), samples.quantile(90)), (5.0, 9.0));
        assert_eq!((samples.quantile(0), samples.quantile(100)), (1.0, 10.0));
    }
}
