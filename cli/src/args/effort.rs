//! Options for how much is measured.

use std::time::Duration;

use clap::Args;
use tagmatch_results::Config;
use tagmatch_results::show::show_count;

use crate::spec::Limits;
use crate::spec::bounds::ITERS_MAX;
use crate::units::{self, show_duration};

/// Default time of a row and of its warm-up.
const TIME: Duration = Duration::from_millis(500);
const WARMUP_ITERS: u64 = 1000;
const WARMUP_TIME: Duration = Duration::from_millis(50);
/// No limit of time.
const FOREVER: Duration = Duration::from_secs(1 << 32);

/// How much is measured.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Effort {
    /// Round trips (lat, depth) or messages (others; bibw: each way) a row, of each thread
    #[arg(long, value_name = "N", value_parser = units::count(1..=ITERS_MAX))]
    pub(crate) iters: Option<u64>,
    /// Time a row: 1s, 500ms; with --iters the first reached [500ms; depth: 100ms]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) duration: Option<Duration>,
    /// Round trips or messages before it, not counted [1000, at most 50 ms]
    #[arg(long, value_name = "N", value_parser = units::count(0..=ITERS_MAX))]
    pub(crate) warmup: Option<u64>,
}

impl Effort {
    /// The time limit of a row, unless only the number of iterations counts.
    pub(crate) fn time(&self) -> Option<Duration> {
        self.duration.or(self.iters.is_none().then_some(TIME))
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            iters: self.iters.unwrap_or(ITERS_MAX),
            time: self.time().unwrap_or(FOREVER),
            warmup_iters: self.warmup.unwrap_or(WARMUP_ITERS),
            warmup_time: if self.warmup.is_some() { FOREVER } else { WARMUP_TIME },
        }
    }

    /// These options as JSON has them.
    pub(crate) fn config(&self) -> Config {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Config {
            iters: self.iters,
            duration_ms: self.time().map(ms),
            warmup: self.warmup,
            ..Config::default()
        }
    }

    /// How long each row is measured, in words. `each` says of how many threads.
    pub(crate) fn describe(&self, what: &str, each: &str) -> String {
        let iters = self.iters.map(|iters| format!("{} {what}", show_count(iters)));
        let time = self.time().map(show_duration);
        let limits = [iters, time].into_iter().flatten().collect::<Vec<_>>().join(" or ");
        let warmup = match self.warmup {
            Some(iters) => format!("{} {what} of warm-up", show_count(iters)),
            None => format!(
                "{} {what} or {} of warm-up",
                show_count(WARMUP_ITERS),
                show_duration(WARMUP_TIME)
            ),
        };
        format!("{limits}{each} a row, after {warmup}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_the_first_reached() {
        let effort = |iters, duration| Effort { iters, duration, warmup: None };
        let limits = |iters, duration| effort(iters, duration).limits();
        assert_eq!(limits(None, None).time, TIME);
        assert_eq!((limits(Some(7), None).iters, limits(Some(7), None).time), (7, FOREVER));
        let second = Duration::from_secs(1);
        assert_eq!(limits(Some(7), Some(second)).time, second);
        assert_eq!(Effort { warmup: Some(0), ..effort(None, None) }.limits().warmup_iters, 0);
        assert_eq!(
            effort(Some(7), Some(second)).describe("calls", " of all"),
            "7 calls or 1 s of all a row, after 1 000 calls or 50 ms of warm-up"
        );
    }
}
