//! How a wait for the other side goes on between two polls, and when it is given up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::error::LinkError;
use crate::control::Attention;

/// Polls between two looks at the control channel.
const POLLS_PER_LOOK: u32 = 64;
/// Polls before the processor is told that this thread spins. On some processors, above all
/// emulated ones, telling it costs more than a poll. Longer than a message between two machines
/// takes.
const POLLS_WITHOUT_PAUSE: u32 = 256;
/// Polls without result after which each further one is followed by a yield. Some 50 us: longer
/// than any small message takes, so the other side is copying a large one, or has no core to run
/// on.
const POLLS_BEFORE_YIELD: u32 = 1000;
/// Polls before a yield where there are more threads than cores: the thread that is waited for may
/// need this one.
const POLLS_WHEN_CROWDED: u32 = 16;

/// How long this side waits for its peer.
struct WaitLimit {
    longest: Duration,
    /// The origin of times, and when the last long wait began, in ms after it.
    begun: Instant,
    since_ms: AtomicU64,
}

/// How long, and in which way, this side waits.
pub(super) struct Patience {
    pub(super) attention: Attention,
    polls_before_yield: u32,
    limit: Option<WaitLimit>,
}

impl Patience {
    pub(super) fn new(attention: Attention) -> Self {
        Self { attention, polls_before_yield: POLLS_BEFORE_YIELD, limit: None }
    }

    /// Ends waits with [`LinkError::Stuck`] after `longest`.
    pub(super) fn set_limit(&mut self, longest: Duration) {
        let begun = Instant::now();
        let since_ms = AtomicU64::new(0);
        self.limit = Some(WaitLimit { longest, begun, since_ms });
    }

    /// Says that there are more threads than cores.
    pub(super) fn crowded(&mut self) {
        self.polls_before_yield = POLLS_WHEN_CROWDED;
    }

    /// Between two polls: spins, or yields after many. An error if the other side wants attention
    /// or has let this one wait too long. `polls` starts at 0 for each wait.
    #[inline]
    pub(super) fn pause(&self, polls: &mut u32) -> Result<(), LinkError> {
        *polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS_PER_LOOK) {
            if self.attention.is_wanted() {
                return Err(LinkError::Attention);
            }
            self.check_limit(*polls)?;
        }
        if *polls > self.polls_before_yield {
            std::thread::yield_now();
        } else if *polls > POLLS_WITHOUT_PAUSE {
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// The first look of a wait that yields stores the time, later ones compare with it. Threads
    /// share the stored time: the thread that began a long wait last counts.
    fn check_limit(&self, polls: u32) -> Result<(), LinkError> {
        let Some(limit) = &self.limit else { return Ok(()) };
        if polls <= self.polls_before_yield {
            return Ok(());
        }
        let now = limit.begun.elapsed();
        if polls - self.polls_before_yield <= POLLS_PER_LOOK {
            let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
            limit.since_ms.store(now_ms, Ordering::Relaxed);
            return Ok(());
        }
        let since = Duration::from_millis(limit.since_ms.load(Ordering::Relaxed));
        if now.saturating_sub(since) > limit.longest {
            return Err(LinkError::Stuck(limit.longest));
        }
        Ok(())
    }
}
