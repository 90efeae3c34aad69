//! Bounds the time spent on creating address handles for unknown senders.
//!
//! On RoCE, creating an address handle waits until the kernel has resolved the other host's
//! hardware address, up to a second if no such host answers. Anyone who has this worker's address
//! can send requests that name such hosts, again and again. So after a slow handle, no handle is
//! created for an unknown sender for a multiple of the time that it took. A request that arrives
//! meanwhile is ignored, as if the network had lost it; its sender repeats it.

use std::time::{Duration, Instant};

/// A creation that takes longer has waited for the network.
const SLOW: Duration = Duration::from_millis(50);
/// After a slow creation, no handle is created for this many times as long. So slow creations take
/// at most a ninth of the time.
const FACTOR: u32 = 8;

/// Decides whether an address handle may be created for an unknown sender.
#[derive(Debug, Default)]
pub(super) struct HandleLimiter {
    until: Option<Instant>,
}

impl HandleLimiter {
    pub(super) fn is_allowed(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// Records the time that a creation took, successful or not.
    pub(super) fn record(&mut self, began: Instant, ended: Instant) {
        let duration = ended.saturating_duration_since(began);
        self.until = (duration > SLOW).then(|| ended + duration * FACTOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn quick_handles_are_always_allowed() {
        let mut limiter = HandleLimiter::default();
        let start = Instant::now();
        for at in 0..1000 {
            let began = start + at * SLOW;
            assert!(limiter.is_allowed(began));
            limiter.record(began, began + SLOW);
        }
    }

    #[test]
    fn a_flood_of_requests_from_hosts_that_are_not_there_takes_a_ninth_of_the_time() {
        let mut limiter = HandleLimiter::default();
        let start = Instant::now();
        let mut now = start;
        let mut slow = Duration::ZERO;
        while now < start + 900 * SECOND {
            if limiter.is_allowed(now) {
                limiter.record(now, now + SECOND);
                now += SECOND;
                slow += SECOND;
            } else {
                now += SLOW;
            }
        }
        assert_eq!(slow, 100 * SECOND);
        // A quick creation lifts the limit.
        limiter.record(now + 8 * SECOND, now + 8 * SECOND);
        assert!(limiter.is_allowed(now + 8 * SECOND));
    }
}
