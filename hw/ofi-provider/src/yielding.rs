//! When reads of a completion queue that give no entry yield the processor.
//!
//! Programs read in a loop until a peer has answered. Where processes outnumber processors, the
//! peer may need the processor of the thread that reads, and a yield lets it run. Where strangers
//! want the processor, or where the program waits for something else than an entry, each yield
//! costs a time slice and brings nothing. A yield that brought no entry is followed by reads
//! without one, for a part of the time that the yield took.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Instant;

/// Reads in a row without an entry before the first yield. They take some 30 µs: more than most
/// answers take from a peer that has a processor.
const READS_BEFORE_YIELD: u32 = 1000;
/// Reads between two looks at the clock. A yield with nobody to yield to takes half a microsecond.
const READS_PER_LOOK: u32 = 64;
/// The count of reads just after a yield. A look at the clock continues one further, so that the
/// entry of the first read after a yield can be told.
const AFTER_YIELD: u32 = READS_BEFORE_YIELD - READS_PER_LOOK - 1;
/// After a yield that brought no entry, the thread keeps the processor for so many quarters of the
/// time that the yield took. Each further one in vain doubles it.
const QUARTERS_MIN: u32 = 1;
const QUARTERS_MAX: u32 = 4;

/// What the reads of a queue have learned. Threads that read at once may lose each other's counts,
/// and yield earlier or later.
#[derive(Debug)]
pub(crate) struct IdleReads {
    /// Reads in a row that gave no entry, since the last look at the clock.
    count: AtomicU32,
    quarters: AtomicU32,
    /// No yield before this time, in ns.
    not_before: AtomicU64,
    start: Instant,
}

impl IdleReads {
    pub(crate) fn new() -> Self {
        IdleReads {
            count: AtomicU32::new(0),
            quarters: AtomicU32::new(QUARTERS_MIN),
            not_before: AtomicU64::new(0),
            start: Instant::now(),
        }
    }

    /// A read gave an entry.
    #[inline]
    pub(crate) fn note_entry(&self) {
        let count = self.count.load(Relaxed);
        if count > 0 {
            self.count.store(0, Relaxed);
            if count == AFTER_YIELD {
                self.quarters.store(QUARTERS_MIN, Relaxed);
            }
        }
    }

    /// A read gave no entry. No lock is held that another thread may want.
    #[inline]
    pub(crate) fn note_idle(&self) {
        let count = self.count.load(Relaxed);
        if count < READS_BEFORE_YIELD {
            self.count.store(count + 1, Relaxed);
        } else {
            let now = || u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.look(now, std::thread::yield_now);
        }
    }

    #[cold]
    fn look(&self, now: impl Fn() -> u64, yield_now: impl FnOnce()) {
        let before = now();
        if before < self.not_before.load(Relaxed) {
            self.count.store(AFTER_YIELD + 1, Relaxed);
            return;
        }
        yield_now();
        let after = now();
        let quarters = self.quarters.load(Relaxed);
        let took = after.saturating_sub(before);
        self.not_before.store(after.saturating_add(took / 4 * u64::from(quarters)), Relaxed);
        self.quarters.store((2 * quarters).min(QUARTERS_MAX), Relaxed);
        self.count.store(AFTER_YIELD, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Reads without an entry, each of which takes 30 ns, until the time is over. The share of it
    /// that was yielded, in percent, where each yield takes `yield_ns`.
    fn yielded(idle: &IdleReads, yield_ns: u64, total_ns: u64) -> u64 {
        let now = Cell::new(0);
        let given = Cell::new(0);
        while now.get() < total_ns {
            now.set(now.get() + 30);
            if idle.count.load(Relaxed) < READS_BEFORE_YIELD {
                idle.note_idle();
                continue;
            }
            idle.look(
                || now.get(),
                || {
                    now.set(now.get() + yield_ns);
                    given.set(given.get() + yield_ns);
                },
            );
        }
        100 * given.get() / total_ns
    }

    #[test]
    fn strangers_get_half_of_the_time_of_reads_that_wait_for_something_else() {
        let share = yielded(&IdleReads::new(), 3_000_000, 200_000_000);
        assert!((45..=52).contains(&share), "{share} %");
        let share = yielded(&IdleReads::new(), 500, 10_000_000);
        assert!(share < 25, "yields to nobody take {share} %");
    }

    #[test]
    fn a_yield_that_brings_an_entry_makes_the_next_one_early() {
        let idle = IdleReads::new();
        yielded(&idle, 3_000_000, 100_000_000);
        assert_eq!(idle.quarters.load(Relaxed), QUARTERS_MAX);
        idle.count.store(AFTER_YIELD, Relaxed);
        idle.note_entry();
        assert_eq!(idle.quarters.load(Relaxed), QUARTERS_MIN);
        assert_eq!(idle.count.load(Relaxed), 0);
        idle.quarters.store(QUARTERS_MAX, Relaxed);
        idle.count.store(AFTER_YIELD + 1, Relaxed);
        idle.note_entry();
        assert_eq!(idle.quarters.load(Relaxed), QUARTERS_MAX, "an entry of a later read");
    }

    #[test]
    fn short_waits_do_not_yield() {
        let idle = IdleReads::new();
        for _ in 0..READS_BEFORE_YIELD {
            idle.note_idle();
        }
        assert_eq!(idle.not_before.load(Relaxed), 0);
    }
}
