//! The cases on the command line, the measured batches, and the output of their results.

use std::error::Error;
use std::io::Write;
use std::str::FromStr;
use std::time::{Duration, Instant};

use tagperf::shared::Operation;

use crate::probe::Probe;

/// An error ends the program with its text.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

const BATCHES_MIN: usize = 5;
const BATCHES_MAX: usize = 100_000;

/// One measurement; `ci/peers` has the grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Round trips, windows or messages that are timed together.
    pub(crate) batch: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Half round trips past receives that never match.
    Latency { size: usize, any_source: bool, any_filler: bool, depth: usize },
    /// Messages one way, with an acknowledgement after each window.
    Window { size: usize, window: usize },
    /// Messages one way out of the worker's own memory, with an acknowledgement after each window.
    Buffer { size: usize, window: usize },
    /// Barriers of a launched job with this many ranks.
    Ranks { ranks: u32 },
    /// Calls of a collective operation by both ranks.
    Collective { operation: Operation, size: usize },
    /// Memory of posted receives.
    Posted,
    /// Memory of unexpected messages.
    Unexpected,
}

impl FromStr for Case {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let no_case = || format!("{name} is no case");
        let number = |text: &str| text.parse::<usize>().map_err(|_| no_case());
        let parts: Vec<_> = name.split(':').collect();
        let (kind, batch) = match parts[..] {
            ["latency", size, source, filler, depth, batch] => {
                let any_source = source == "any";
                let any_filler = filler == "any";
                let size = number(size)?;
                let depth = number(depth)?;
                (Kind::Latency { size, any_source, any_filler, depth }, batch)
            }
            ["window", size, window, batch] => {
                (Kind::Window { size: number(size)?, window: number(window)? }, batch)
            }
            ["buffer", size, window, batch] => {
                (Kind::Buffer { size: number(size)?, window: number(window)? }, batch)
            }
            ["ranks", "barrier", ranks, batch] => {
                (Kind::Ranks { ranks: ranks.parse().map_err(|_| no_case())? }, batch)
            }
            ["collective", operation, size, batch] => {
                let known = Operation::ALL.into_iter().find(|known| known.name() == operation);
                let operation = known.ok_or_else(no_case)?;
                (Kind::Collective { operation, size: number(size)? }, batch)
            }
            ["posted", batch] => (Kind::Posted, batch),
            ["unexpected", batch] => (Kind::Unexpected, batch),
            _ => return Err(no_case()),
        };
        Ok(Case { name: name.to_string(), kind, batch: number(batch)? })
    }
}

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
    fn cases_are_parsed() {
        let case: Case = "latency:8:any:exact:16:100".parse().unwrap();
        let kind = Kind::Latency { size: 8, any_source: true, any_filler: false, depth: 16 };
        assert_eq!((case.kind, case.batch), (kind, 100));
        let case: Case = "window:1024:64:3".parse().unwrap();
        assert_eq!((case.kind, case.batch), (Kind::Window { size: 1024, window: 64 }, 3));
        let case: Case = "buffer:1048576:1:5".parse().unwrap();
        assert_eq!((case.kind, case.batch), (Kind::Buffer { size: 1 << 20, window: 1 }, 5));
        let case: Case = "ranks:barrier:16:2".parse().unwrap();
        assert_eq!((case.kind, case.batch), (Kind::Ranks { ranks: 16 }, 2));
        assert_eq!("posted:7".parse::<Case>().unwrap().batch, 7);
        let case: Case = "collective:bcast:8:10".parse().unwrap();
        let kind = Kind::Collective { operation: Operation::Bcast, size: 8 };
        assert_eq!((case.kind, case.batch), (kind, 10));
        for bad in [
            "",
            "latency",
            "collective:gossip:8:10",
            "latency:8:any:exact:16",
            "window:-1:64:3",
            "posted:x",
            "post:1",
            "ranks:bcast:4:1",
        ] {
            assert!(bad.parse::<Case>().is_err(), "{bad}");
        }
    }

    #[test]
    fn quantiles_are_nearest_rank() {
        let mut samples = Samples::begin();
        (1..=10).for_each(|i| samples.push(f64::from(i)));
        assert_eq!((samples.quantile(50), samples.quantile(90)), (5.0, 9.0));
        assert_eq!((samples.quantile(0), samples.quantile(100)), (1.0, 10.0));
    }
}
