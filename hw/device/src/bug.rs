//! States that can't be, unless this program has a bug.
//!
//! Such a state must harm no more than what it concerns, and must not pass unseen. A debug build
//! stops there. Any other build counts the bug ([`bugs`]) and goes on with a [`Bug`] in hand, by
//! which the caller ends the connection or the operation that the state belongs to.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the process began. It is one for all devices and engines, since a bug belongs to
/// the program and not to one worker. Nothing but reports reads it.
static BUGS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_TOLERANT: Cell<bool> = const { Cell::new(false) };
}

/// The finding that this program has a bug. It is the reason why a connection or an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tagmatch has a bug, please report it: it expected that {expected}")]
pub struct Bug {
    /// What should have been true.
    pub expected: &'static str,
}

impl Bug {
    /// Counts a bug; a debug build stops with `expected`, which is what should have been true.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub fn found(expected: &'static str) -> Self {
        let bug = Bug { expected };
        assert!(!cfg!(debug_assertions) || IS_TOLERANT.get(), "{bug}");
        BUGS.fetch_add(1, Ordering::Relaxed);
        bug
    }
}

/// How many bugs this process has met.
pub fn bugs() -> u64 {
    BUGS.load(Ordering::Relaxed)
}

/// A value that must be there.
pub trait OrBug<T> {
    /// The value.
    ///
    /// # Errors
    /// The value is not there, so this program has a bug: see [`Bug::found`]. `expected` is what
    /// should have been true.
    fn or_bug(self, expected: &'static str) -> Result<T, Bug>;
}

impl<T> OrBug<T> for Option<T> {
    #[inline(always)]
    #[track_caller]
    fn or_bug(self, expected: &'static str) -> Result<T, Bug> {
        match self {
            Some(value) => Ok(value),
            None => Err(Bug::found(expected)),
        }
    }
}

/// While it exists, bugs that this thread meets are counted in every build, and none stops it. For
/// tests of what follows a bug.
#[doc(hidden)]
#[derive(Debug)]
pub struct ToleratedBugs(());

impl ToleratedBugs {
    #[doc(hidden)]
    pub fn new() -> Self {
        IS_TOLERANT.set(true);
        ToleratedBugs(())
    }
}

impl Drop for ToleratedBugs {
    fn drop(&mut self) {
        IS_TOLERANT.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_there_is_returned() {
        assert_eq!(Some(7).or_bug("it was just made"), Ok(7));
    }

    #[test]
    fn a_value_that_is_missing_is_counted_and_says_what_was_expected() {
        let before = bugs();
        let tolerated = ToleratedBugs::new();
        let bug = None::<u8>.or_bug("the table has it").unwrap_err();
        drop(tolerated);
        assert_eq!(bugs(), before + 1);
        assert!(bug.to_string().ends_with("it expected that the table has it"), "{bug}");
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "expected that the table has it")]
    fn a_debug_build_stops() {
        let _ = None::<u8>.or_bug("the table has it");
    }
}
