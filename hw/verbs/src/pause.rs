//! Bounds the time that the greetings of strangers take.
//!
//! On RoCE, making an address handle waits until the kernel has resolved the other host's hardware address: up to a
//! second if no such host answers. Whoever has this worker's address can greet it in the name of such hosts,
//! again and again. So after a handle that was slow, no stranger gets one for a multiple of the time that this
//! one took. A greeting that comes meanwhile is lost as a datagram may be lost: its sender repeats it.

use std::time::{Duration, Instant};

/// What takes longer has waited for the network.
const SLOW: Duration = Duration::from_millis(50);
/// How many times as long nothing is made for a stranger: slow handles take at most a ninth of the time.
const FACTOR: u32 = 8;

/// Whether handles are made for strangers.
#[derive(Debug, Default)]
pub(super) struct Pause {
    until: Option<Instant>,
}

impl Pause {
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// A handle was made, or not, in this time.
    pub(super) fn took(&mut self, began: Instant, ended: Instant) {
        let time = ended.saturating_duration_since(began);
        self.until = (time > SLOW).then(|| ended + time * FACTOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn handles_that_are_quick_are_made_for_all() {
        let (mut pause, start) = (Pause::default(), Instant::now());
        for at in 0..1000 {
            let began = start + at * SLOW;
            assert!(pause.is_over(began));
            pause.took(began, began + SLOW);
        }
    }

    #[test]
    fn a_flood_of_greetings_from_hosts_that_are_not_there_takes_a_ninth_of_the_time() {
        let (mut pause, start) = (Pause::default(), Instant::now());
        let (mut now, mut slow) = (start, Duration::ZERO);
        while now < start + 900 * SECOND {
            if pause.is_over(now) {
                pause.took(now, now + SECOND);
                now += SECOND;
                slow += SECOND;
            } else {
                now += SLOW;
            }
        }
        assert_eq!(slow, 100 * SECOND);
        // And others get in once it has stopped.
        pause.took(now + 8 * SECOND, now + 8 * SECOND);
        assert!(pause.is_over(now + 8 * SECOND));
    }
}
