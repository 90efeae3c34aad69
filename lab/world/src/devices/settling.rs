//! Going on until nothing is missing: each worker runs only when something has woken it.

use std::time::Duration;

use tagmatch_device::{Device, EventDescriptor};

use super::oracle::{Missing, SOON};
use super::scenario::Scenario;

/// In the world, a sleep that is longer than this is one that nothing has ended.
const HOUR: Duration = Duration::from_secs(3600);
/// Most events that a worker reports in a row.
const EVENTS_MAX: usize = 100_000;
impl<D: Device + EventDescriptor + 'static> Scenario<'_, D> {
    /// Lets all workers go on until nothing is missing. Each runs only when something has woken it.
    pub(super) fn settle(
        &mut self,
        what: &str,
        mut look: impl FnMut(&mut Self) -> Option<Missing>,
    ) {
        let start = self.world.now();
        loop {
            for at in 0..self.count() {
                self.run_awake(at);
            }
            let Some(missing) = look(self) else { return };
            let Missing { what: missing, within } = missing;
            let is_awake = {
                let workers = self.workers.borrow();
                self.world.sleep(&workers.sleepers(), HOUR)
            };
            let took = self.world.now().saturating_sub(start);
            assert!(is_awake, "all sleep, and nothing wakes them. Waits for {what}: {missing}");
            assert!(took < within, "it takes {took:?}. Waits for {what}: {missing}");
            for at in self.woken() {
                self.wake(at);
            }
        }
    }

    /// A worker that is awake does what it has to do, and falls asleep.
    pub(super) fn run_awake(&mut self, at: usize) {
        for _ in 0..EVENTS_MAX {
            {
                let mut workers = self.workers.borrow_mut();
                if !workers.is_here(at) || workers.all[at].is_armed {
                    return;
                }
                while self.world.run_as(at, || workers.poll(at)) {}
            }
            for other in 0..self.count() {
                let waiting = self.workers.borrow_mut().all[at].ways[other].waiting.take();
                if let Some(waiting) = waiting {
                    self.try_to_send(at, other, waiting);
                }
            }
            self.fall_asleep(at);
        }
        panic!("{at}: it always has something to do");
    }

    /// Flushes all that was sent. What is not flushed yet.
    pub(super) fn flush_all(&mut self) -> Option<Missing> {
        for at in 0..self.count() {
            for other in 0..self.count() {
                if self.workers.borrow().is_usable(at, other) {
                    self.flush(at, other);
                }
            }
        }
        // A worker that falls asleep is woken for the flushes that it asks for in one go.
        let mut missing = None;
        for at in 0..self.count() {
            self.wake(at);
            for other in 0..self.count() {
                let mut workers = self.workers.borrow_mut();
                let is_usable = workers.is_usable(at, other);
                if is_usable && !self.world.run_as(at, || workers.flush(at, other)) {
                    let what = format!("{at}: what it has sent to {other}");
                    missing = Some(Missing { what, within: SOON });
                }
            }
            self.run_awake(at);
        }
        missing
    }
}
