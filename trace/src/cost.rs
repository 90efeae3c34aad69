//! The time that matching a trace takes, in tagmatch's lists and in plain ones.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::matcher::{IndexedLists, Matcher};
use crate::plain::PlainLists;
use crate::run::{Pass, run};
use crate::trace::Trace;
use crate::walks::Walks;

/// A trace is run again until all runs together have taken this long; a long trace is run once.
const RUNS_TIME: Duration = Duration::from_millis(50);
const RUNS_MAX: usize = 1000;
/// The most entries that are walked in plain lists, which takes some 100 ms. A list of a million
/// entries would be walked for hours.
const PLAIN_ENTRIES_MAX: u64 = 1 << 25;

/// Mean times of an operation; each is the median of several runs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Cost {
    /// In tagmatch's lists.
    pub ns_per_operation: f64,
    /// How many runs of the whole trace that is the median of.
    pub passes: usize,
    /// In plain lists.
    pub plain_ns_per_operation: f64,
    /// Entries that a search through plain lists looks at, in the mean of the whole trace.
    pub plain_entries_per_search: f64,
    /// How many operations were run through plain lists, if not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plain_stopped_after: Option<usize>,
}

impl Cost {
    /// Times a trace. `first` is a run of it that was timed, and `walks` was counted over the whole
    /// of it. `None` if the trace is empty.
    #[must_use]
    pub fn measure(trace: &Trace, first: &Pass<IndexedLists>, walks: &Walks) -> Option<Self> {
        if trace.ops.is_empty() {
            return None;
        }
        let mut indexed = vec![first.ns_per_op()];
        repeat(first.took, || indexed.push(timed(trace, IndexedLists::default()).ns_per_op()));
        let first = timed(trace, PlainLists::default());
        let mut plain = vec![first.ns_per_op()];
        repeat(first.took, || plain.push(timed(trace, PlainLists::default()).ns_per_op()));
        Some(Self {
            ns_per_operation: median(&mut indexed),
            passes: indexed.len(),
            plain_ns_per_operation: median(&mut plain),
            plain_entries_per_search: walks.entries_per_search(),
            plain_stopped_after: (first.ops < trace.ops.len()).then_some(first.ops),
        })
    }
}

fn timed<M: Matcher>(trace: &Trace, lists: M) -> Pass<M> {
    let Ok(pass) = run(trace, lists, PLAIN_ENTRIES_MAX, |_, result| {
        // Without a use of the result the compiler could leave out the search.
        std::hint::black_box(result);
        Ok::<(), Infallible>(())
    });
    pass
}

/// Calls `again` until the time for all runs is over, of which the first one has taken `spent`.
fn repeat(spent: Duration, mut again: impl FnMut()) {
    let start = Instant::now();
    for _ in 1..RUNS_MAX {
        if spent + start.elapsed() >= RUNS_TIME {
            break;
        }
        again();
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_has_as_many_values_above_as_below() {
        assert_eq!(median(&mut [5.0, 1.0, 9.0]), 5.0);
        assert_eq!(median(&mut [4.0]), 4.0);
    }
}
