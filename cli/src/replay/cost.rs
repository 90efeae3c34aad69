//! What matching a trace costs: the bare loop timed, in tagmatch's lists and in plain ones.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::engine::{Pass, Script, pass};
use super::matcher::{Indexed, Matcher};
use super::plain::Plain;
use super::walks::Walks;

/// A short trace is run again and again for this long; a long one once.
const PASSES_TIME: Duration = Duration::from_millis(50);
const PASSES_MAX: usize = 1000;
/// Entries walked in plain lists, some 100 ms. A list of a million entries would be walked for hours:
/// by then the point is made. Not a time, so that a trace always stops at the same step.
const PLAIN_WORK_MAX: u64 = 1 << 25;

/// Time per operation, and how the plain list comes by its own.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Cost {
    pub(super) ns_per_operation: f64,
    /// The median is of this many passes over the whole trace.
    pub(super) passes: usize,
    pub(super) plain_ns_per_operation: f64,
    pub(super) plain_entries_per_search: f64,
    /// Operations that the plain list was timed over before it was stopped, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plain_stopped_after: Option<usize>,
}

/// Times `script`, which `first` has run through already and whose walks are counted; `None` if there
/// is nothing in it.
pub(super) fn measure(script: &Script, first: &Pass<Indexed>, walks: &Walks) -> Option<Cost> {
    if script.steps.is_empty() {
        return None;
    }
    let mut ns_per_step = vec![first.ns_per_step()];
    repeat(first.took, || {
        let pass = bare(script, Indexed::new());
        ns_per_step.push(pass.ns_per_step());
    });
    let plain = bare(script, Plain::default());
    let mut plain_ns_per_step = vec![plain.ns_per_step()];
    repeat(plain.took, || {
        plain_ns_per_step.push(bare(script, Plain::default()).ns_per_step());
    });
    Some(Cost {
        ns_per_operation: median(&mut ns_per_step),
        passes: ns_per_step.len(),
        plain_ns_per_operation: median(&mut plain_ns_per_step),
        plain_entries_per_search: super::ratio(walks.entries(), walks.searches),
        plain_stopped_after: (plain.steps < script.steps.len()).then_some(plain.steps),
    })
}

fn bare<M: Matcher>(script: &Script, lists: M) -> Pass<M> {
    let run = pass(script, lists, PLAIN_WORK_MAX, |_, event| {
        // The compiler must not leave out what leads to an event.
        std::hint::black_box(event);
        Ok::<(), Infallible>(())
    });
    match run {
        Ok(pass) => pass,
    }
}

/// Calls `again` until the passes' time is up, of which `spent` is gone.
fn repeat(spent: Duration, mut again: impl FnMut()) {
    let start = Instant::now();
    for _ in 1..PASSES_MAX {
        if spent + start.elapsed() >= PASSES_TIME {
            break;
        }
        again();
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
