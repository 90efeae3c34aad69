//! `tagperf replay`: a recorded matching history, run through the matcher.
//!
//! 1. [`crate::trace`] reads the whole trace; a mistake ends it here, with nothing printed.
//! 2. `engine` runs it under the clock, a chunk at a time; between chunks `matches` writes what
//!    matched what, if asked to, `depth` counts, and so does `walks`, what plain lists would walk.
//!    `census` counts what needs no run.
//! 3. `cost` runs a short trace again, and a trace of any length, up to a bound, through `plain` lists.
//! 4. `timeline` has the depths over the trace, `verdict` says what to make of it.
//! 5. With `--hw-tags model`, `stack` has run it through two workers before all that, a NIC in one of
//!    them: what is written is what came of that, and it must be what comes of 2. `lengths` makes a
//!    trace's lengths small enough for it, `requests` and `dice` serve it; `offload` says how much the
//!    NIC has matched.
//! 6. `report` says it all.

#[cfg(feature = "command")]
mod agreement;
#[cfg(feature = "command")]
mod census;
#[cfg(feature = "command")]
mod command;
#[cfg(feature = "command")]
mod cost;
mod depth;
#[cfg(feature = "command")]
mod dice;
mod engine;
#[cfg(feature = "command")]
mod lengths;
mod matcher;
#[cfg(feature = "command")]
mod matches;
#[cfg(feature = "command")]
mod offload;
mod plain;
mod rank;
#[cfg(feature = "command")]
mod report;
#[cfg(feature = "command")]
mod requests;
#[cfg(feature = "command")]
mod stack;
mod timeline;
#[cfg(feature = "command")]
mod verdict;
mod walks;

#[cfg(feature = "command")]
pub(crate) use command::command;
#[cfg(feature = "command")]
pub use matches::{write_matches, write_matches_by_nic};

use matcher::Matcher as _;

use crate::trace::Trace;

/// Runs a trace through tagmatch's lists and through plain ones; for tests and fuzzers.
///
/// # Panics
///
/// If an operation comes to different things, which is a defect of one of them.
pub fn check(trace: &Trace) {
    let script = engine::Script::new(trace);
    let mut events = Vec::with_capacity(script.steps.len());
    let Ok(plain) = engine::pass(&script, plain::Plain::default(), u64::MAX, |_, event| {
        events.push(event);
        Ok::<(), std::convert::Infallible>(())
    });
    let (mut count, mut walker) = (depth::Count::new(&script), walks::Walker::new(&script));
    let mut wanted = events.into_iter();
    let Ok(pass) = engine::pass(&script, matcher::Indexed::new(), u64::MAX, |step, event| {
        assert_eq!(Some(event), wanted.next(), "plain lists on the right");
        count.see(step, event);
        walker.see(step, event);
        Ok::<(), std::convert::Infallible>(())
    });
    let (posted, unexpected) = pass.lists.left();
    assert_eq!((posted.len(), unexpected.len()), count.depths);
    assert_eq!(
        walker.walks.entries(),
        plain.lists.work(),
        "plain lists walked what is on the right"
    );
}

/// `part / whole`; of nothing, nothing.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
