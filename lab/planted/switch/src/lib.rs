//! Says in a patched copy of tagmatch which slip is to be made: the one that `TAGMATCH_PLANTED`
//! names; and where counters start: shortly before their end if `TAGMATCH_STARTS` is `late`.

mod mutants;

use std::env;
use std::sync::OnceLock;

pub use mutants::mutant;

/// Whether this slip is to be made. The environment is read once. The function is inlined, since
/// simulations ask often.
#[inline]
pub fn is(slip: &str) -> bool {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    CHOSEN.get_or_init(|| env::var("TAGMATCH_PLANTED").ok()).as_deref() == Some(slip)
}

/// A number that counts up, and wraps behind its last value.
pub trait Wraps: Sized {
    /// Four values are left from this one on.
    const LATE: Self;
}

impl Wraps for u16 {
    const LATE: Self = Self::MAX - 3;
}

impl Wraps for u32 {
    const LATE: Self = Self::MAX - 3;
}

impl Wraps for u64 {
    const LATE: Self = Self::MAX - 3;
}

/// Where a counter starts.
pub fn start<T: Wraps>(usual: T) -> T {
    start_at(usual, T::LATE)
}

/// Where a counter starts that has fewer bits than its type, or more than those that wrap.
pub fn start_at<T>(usual: T, late: T) -> T {
    static IS_LATE: OnceLock<bool> = OnceLock::new();
    let is_late = *IS_LATE.get_or_init(|| env::var("TAGMATCH_STARTS").is_ok_and(|it| it == "late"));
    if is_late { late } else { usual }
}
