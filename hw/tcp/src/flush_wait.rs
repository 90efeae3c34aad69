//! Flushes that wait while the worker sleeps.

use std::time::Duration;

/// How often acknowledgements are looked for while a flush waits for them: nothing reports them.
const FLUSH_TIME: Duration = Duration::from_millis(1);

/// Whether a flush waits for acknowledgements, which no descriptor reports. A flush that isn't done
/// asks again each time that the worker has made progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushWait {
    No,
    /// A flush has asked since the timer was set.
    Asked,
    /// The timer is set for it.
    Timed,
}

impl FlushWait {
    /// The timer is set. Gives the time for it, if a flush waits.
    pub(crate) fn arm(&mut self) -> Option<Duration> {
        let waits = *self != FlushWait::No;
        if waits {
            *self = FlushWait::Timed;
        }
        waits.then_some(FLUSH_TIME)
    }

    /// The timer's time is over. A flush that has asked since it was set still waits.
    pub(crate) fn end_time(&mut self) {
        if *self == FlushWait::Timed {
            *self = FlushWait::No;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FLUSH_TIME, FlushWait};

    #[test]
    fn a_flush_that_does_not_ask_again_is_waited_for_once() {
        let mut wait = FlushWait::No;
        assert_eq!(wait.arm(), None);
        wait = FlushWait::Asked;
        let twice = [wait.arm(), wait.arm()];
        assert_eq!(twice, [Some(FLUSH_TIME); 2], "the worker is armed again before it sleeps");
        wait.end_time();
        assert_eq!(wait.arm(), None);
    }

    #[test]
    fn a_flush_that_asks_before_the_end_of_the_time_is_taken_in_is_not_forgotten() {
        let mut wait = FlushWait::Asked;
        wait.arm();
        wait = FlushWait::Asked;
        wait.end_time();
        assert_eq!(wait.arm(), Some(FLUSH_TIME));
    }
}
