//! Orders of atomic accesses that a model runs weakened, one at a time, to see that a program of
//! the model notices (`ci/orders`).
//!
//! The atomics of a model pass each order through [`order`], and each fence through
//! [`fence_order`]. A place is named by file, line and column of the call.
//!
//! - `TAGMATCH_ORDERS_SEEN` names a file. Each place that is reached is appended to it once, with
//!   what can be left of its order: `relaxed` or `acqrel`; of a fence `none` or `acqrel`.
//! - `TAGMATCH_ORDER_WEAKENED` is one of these lines. The place has the weaker order then.

use std::collections::HashSet;
use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::Location;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::{LazyLock, Mutex, PoisonError};

/// A kind of access, for which an order of acquire and release has another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// Acquires at most.
    Load,
    /// Releases at most.
    Store,
    /// Exchanges, and everything else that reads and writes.
    Exchange,
}

static SEEN: LazyLock<Option<Mutex<HashSet<String>>>> =
    LazyLock::new(|| env::var_os("TAGMATCH_ORDERS_SEEN").map(|_| Mutex::default()));
static WEAKENED: LazyLock<Option<String>> =
    LazyLock::new(|| env::var("TAGMATCH_ORDER_WEAKENED").ok());

/// The order that an access has in this run.
#[track_caller]
pub fn order(order: Ordering, kind: AccessKind) -> Ordering {
    let place = Location::caller();
    if order != Relaxed {
        note(place, "relaxed");
    }
    if order == SeqCst {
        note(place, "acqrel");
    }
    match what_is_left(place) {
        Some("acqrel") if order == SeqCst => match kind {
            AccessKind::Load => Acquire,
            AccessKind::Store => Release,
            AccessKind::Exchange => AcqRel,
        },
        Some("relaxed") => Relaxed,
        _ => order,
    }
}

/// The order that a fence has in this run; `None` if it is left out.
#[track_caller]
pub fn fence_order(order: Ordering) -> Option<Ordering> {
    let place = Location::caller();
    note(place, "none");
    if order == SeqCst {
        note(place, "acqrel");
    }
    match what_is_left(place) {
        Some("none") => None,
        Some("acqrel") => Some(AcqRel),
        _ => Some(order),
    }
}

/// Records a place that is reached.
fn note(place: &Location<'_>, left: &str) {
    let Some(seen) = &*SEEN else { return };
    let line = format!("{place} {left}");
    if seen.lock().unwrap_or_else(PoisonError::into_inner).insert(line.clone()) {
        let path = env::var_os("TAGMATCH_ORDERS_SEEN").expect("it was set before");
        let file = OpenOptions::new().create(true).append(true).open(path);
        writeln!(file.expect("the file can be opened"), "{line}").expect("the file takes a line");
    }
}

/// What is left of the order of this place, if it is weakened in this run.
fn what_is_left(place: &Location<'_>) -> Option<&'static str> {
    let (weakened, left) = WEAKENED.as_ref()?.split_once(' ')?;
    let rest = weakened.strip_prefix(place.file())?.strip_prefix(':')?;
    let (line, column) = rest.split_once(':')?;
    let is_here = line.parse() == Ok(place.line()) && column.parse() == Ok(place.column());
    is_here.then_some(left)
}
