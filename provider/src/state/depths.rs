//! How long an endpoint's lists were at most.

use tagmatch::Worker;

/// The most receives that were posted at one time, and the most unexpected messages that were seen.
#[derive(Default)]
pub(crate) struct Depths {
    posted: u64,
    pub(crate) posted_max: u64,
    pub(crate) unexpected_max: u64,
    /// A report wants these numbers.
    pub(crate) watches: bool,
}

impl Depths {
    /// A receive was posted.
    #[inline]
    pub(crate) fn posted(&mut self) {
        if self.watches {
            self.posted += 1;
            self.posted_max = self.posted_max.max(self.posted);
        }
    }

    /// A receive has ended.
    #[inline]
    pub(crate) fn ended(&mut self) {
        if self.watches {
            self.posted -= 1;
        }
    }

    /// Looks at the unexpected list. To be called now and then.
    pub(crate) fn look(&mut self, worker: &Worker) {
        if self.watches {
            self.unexpected_max = self.unexpected_max.max(worker.counters().unexpected_now);
        }
    }
}
