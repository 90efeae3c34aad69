//! How long a connection has been silent.

use std::time::{Duration, Instant};

/// The silence of a connection, as it is found at looks some time apart.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// The look since which nothing was received.
    since: Option<Instant>,
}

impl Silence {
    /// Notes a look, and whether anything was received since the one before. Returns how long the
    /// silence has lasted.
    pub(super) fn look(&mut self, has_received: bool, now: Instant) -> Duration {
        if has_received {
            self.since = None;
            return Duration::ZERO;
        }
        now.duration_since(*self.since.get_or_insert(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_begins_at_the_first_look_that_finds_it_and_ends_with_what_is_received() {
        let start = Instant::now();
        let mut silence = Silence::default();
        let looks = [
            (1, true, 0),
            (2, false, 0),
            (5, false, 3),
            (6, true, 0),
            // A silence that has ended doesn't count.
            (7, false, 0),
            (9, false, 2),
        ];
        for (at, has_received, lasts) in looks {
            let found = silence.look(has_received, start + Duration::from_secs(at));
            assert_eq!(found, Duration::from_secs(lasts), "at {at} s");
        }
    }
}
