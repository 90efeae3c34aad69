//! The time that deadlines are measured in: time in which this worker polls or sleeps.
//!
//! A program that computes for a minute doesn't receive what its peers send meanwhile. If that
//! minute counted, the next poll would find all deadlines over before it finds the bytes that came
//! in time.

use std::time::{Duration, Instant};

/// A longer time between two looks at the clock counts as so much, unless the worker slept.
const GAP_MAX: Duration = Duration::from_millis(100);

/// Time in which a worker polls or sleeps.
pub(crate) struct Clock {
    seen: Instant,
    time: Duration,
}

impl Clock {
    /// Begins at zero.
    pub(crate) fn new(now: Instant) -> Self {
        Clock { seen: now, time: Duration::ZERO }
    }

    /// The time at the last look.
    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    /// Looks at the clock. `true` if the last look was long ago, so that much may have come that
    /// was not heard yet.
    pub(crate) fn look(&mut self, now: Instant, has_slept: bool) -> bool {
        let gap = now.saturating_duration_since(self.seen);
        self.time += if has_slept { gap } else { gap.min(GAP_MAX) };
        self.seen = now;
        gap > GAP_MAX
    }
}

/// What the timer was set for when the worker fell asleep, flushes aside.
#[derive(Default)]
pub(crate) struct SleepTimer {
    pub(crate) due: Option<Duration>,
    /// The polls until then.
    pub(crate) polls: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_without_a_poll_counts_as_a_moment_and_a_minute_of_sleep_as_a_minute() {
        let start = Instant::now();
        let mut clock = Clock::new(start);
        let minute = Duration::from_secs(60);
        let mut time_at = |at, has_slept| (clock.look(at, has_slept), clock.time());
        assert_eq!(time_at(start + GAP_MAX / 2, false), (false, GAP_MAX / 2));
        assert_eq!(time_at(start + minute, false), (true, GAP_MAX * 3 / 2));
        let later = minute + GAP_MAX * 3 / 2;
        assert_eq!(time_at(start + 2 * minute, true), (true, later));
        assert_eq!(time_at(start, false), (false, later), "a clock that goes back");
    }
}
