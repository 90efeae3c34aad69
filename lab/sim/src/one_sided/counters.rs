//! Which values a counter may have that workers change by atomic operations.
//!
//! Each addition of 1 gives another old value. A counter has at least the additions that had ended
//! when a look at it began, or that the same worker has begun before, and at most those that have
//! begun when the look ends.

use std::collections::BTreeSet;

use crate::violation::{Rule, Verdict, Violation, ensure};

/// A counter of a region. An addition is an operation that adds 1, or one that replaces a value by
/// the next one if it finds it.
#[derive(Clone, Debug)]
pub(super) struct RegionCounter {
    /// Additions that have begun, or may have.
    begun: u64,
    /// Additions that were done for certain.
    done: u64,
    /// Additions of each worker that have begun for certain and have not ended.
    under_way: Vec<u64>,
    /// Values that were replaced.
    replaced: BTreeSet<u64>,
    /// The latest value that each worker has seen.
    pub(super) seen: Vec<u64>,
}

impl RegionCounter {
    pub(super) fn new(workers: usize) -> Self {
        let none = vec![0; workers];
        let replaced = BTreeSet::new();
        RegionCounter { begun: 0, done: 0, under_way: none.clone(), replaced, seen: none }
    }

    /// A look of this worker begins: the least value that it may find.
    pub(super) fn least(&self, by: usize) -> u64 {
        self.done + self.under_way[by]
    }

    /// An addition begins. `is_certain`: it adds whatever it finds.
    pub(super) fn begin(&mut self, by: usize, is_certain: bool) {
        self.begun += 1;
        self.under_way[by] += u64::from(is_certain);
    }

    /// An addition of 1 has ended with success.
    pub(super) fn added(&mut self, by: usize) {
        self.done += 1;
        self.under_way[by] -= 1;
    }

    /// An addition has ended, and is known to have added nothing.
    pub(super) fn added_nothing(&mut self) {
        self.begun -= 1;
    }

    /// An operation that was no addition for certain has added.
    pub(super) fn swapped(&mut self) {
        self.done += 1;
    }

    /// An addition has replaced this value.
    pub(super) fn replaced(&mut self, value: u64) -> Verdict {
        ensure!(self.replaced.insert(value), Twice, "a counter was {value} twice");
        Ok(())
    }

    /// A worker has found this value.
    pub(super) fn found(&mut self, by: usize, least: u64, value: u64) -> Verdict {
        let most = self.begun;
        ensure!(
            (least.max(self.seen[by])..=most).contains(&value),
            Twice,
            "w{by} finds {value} in a counter that it has seen at {}; {least} to {most} may be",
            self.seen[by]
        );
        self.seen[by] = value;
        Ok(())
    }

    /// The owner finds this value.
    pub(super) fn check(&self, value: u64) -> Verdict {
        let RegionCounter { done, begun, .. } = *self;
        let is_possible = (done..=begun).contains(&value);
        is_possible.then_some(()).ok_or_else(|| {
            let what = format!("a counter is {value}; {done} additions of {begun} are done");
            Violation::new(Rule::Twice, what)
        })
    }
}
