//! Two kinds of lists must agree on a trace.

use std::convert::Infallible;

use crate::depth::DepthCounter;
use crate::matcher::{IndexedLists, Matcher as _};
use crate::plain::PlainLists;
use crate::run::run;
use crate::trace::Trace;
use crate::walks::WalkCounter;

/// Runs a trace through tagmatch's lists and through plain ones, for tests and fuzzers.
///
/// # Panics
///
/// If an operation's results differ, or a count does. Either is a defect of this crate or of
/// `tagmatch-soft`.
pub fn check(trace: &Trace) {
    let mut results = Vec::with_capacity(trace.ops.len());
    let Ok(plain) = run(trace, PlainLists::default(), u64::MAX, |_, result| {
        results.push(result);
        Ok::<(), Infallible>(())
    });
    let mut depths = DepthCounter::new(trace);
    let mut walks = WalkCounter::new(trace);
    let mut wanted = results.into_iter();
    let Ok(pass) = run(trace, IndexedLists::default(), u64::MAX, |op, result| {
        assert_eq!(Some(result), wanted.next(), "the plain lists' result is on the right");
        depths.see(op, result);
        walks.see(op, result);
        Ok::<(), Infallible>(())
    });
    let (posted, unexpected) = pass.lists.leftover();
    assert_eq!((posted.len(), unexpected.len()), depths.depths());
    assert_eq!(
        walks.walks().entries(),
        plain.lists.entries_walked(),
        "what the plain lists walked is on the right"
    );
}
