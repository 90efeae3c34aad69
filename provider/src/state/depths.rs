//! How long an endpoint's lists were at most.

use tagmatch::Worker;

/// How often the unexpected list is looked at: every so many times of progress.
const EVERY: u32 = 64;

/// The most receives that were posted at one time, and the most unexpected messages that were seen.
#[derive(Default)]
pub(crate) struct Depths {
    posted: u64,
    pub(crate) posted_max: u64,
    pub(crate) unexpected_max: u64,
    /// Times of progress since the last look.
    rounds: u32,
    /// A report wants the unexpected messages.
    pub(crate) watches: bool,
}

impl Depths {
    /// A receive was posted.
    #[inline]
    pub(crate) fn posted(&mut self) {
        self.posted += 1;
        self.posted_max = self.posted_max.max(self.posted);
    }

    /// A receive has ended.
    #[inline]
    pub(crate) fn ended(&mut self) {
        self.posted -= 1;
    }

    /// The endpoint has made progress.
    #[inline]
    pub(crate) fn progressed(&mut self, worker: &Worker) {
        if self.watches {
            self.look(worker);
        }
    }

    #[cold]
    fn look(&mut self, worker: &Worker) {
        self.rounds += 1;
        if self.rounds >= EVERY {
            self.rounds = 0;
            self.unexpected_max = self.unexpected_max.max(worker.counters().unexpected_now);
        }
    }
}
