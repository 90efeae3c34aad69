//! The bounds of a thread's sleep, and the report of a sleep that lasts long.

use std::os::fd::AsFd;
use std::time::Duration;
use std::{fmt, io};

use tagmatch_os::safety::{self, LongSleep};

use crate::access::Access;
use crate::awaited::Awaited;
use crate::interrupt::Blocked;
use crate::sync::{EventFd, sleep_until_readable};

/// The longest sleep before the thread looks at the worker again. A safety timer: nothing relies on
/// it.
pub(crate) fn sleep_max() -> Duration {
    safety::sleep_max(Duration::from_millis(500))
}

/// The descriptor on which a thread sleeps, the longest time, and the call that waits.
pub(crate) struct SleepBounds<'a> {
    /// Other threads signal it.
    pub(crate) eventfd: &'a EventFd,
    pub(crate) max: Duration,
    pub(crate) awaited: Awaited<'a>,
    /// The call that may be interrupted, which signals `eventfd` as well.
    pub(crate) blocked: Option<&'a Blocked<'a>>,
}

impl<'a> SleepBounds<'a> {
    /// A sleep for as long as a thread ever sleeps, whose end only its caller knows.
    pub(crate) fn of(eventfd: &'a EventFd) -> Self {
        SleepBounds { eventfd, max: sleep_max(), awaited: Awaited::Nothing, blocked: None }
    }
}

/// Blocks until the device has an event, another thread signals the eventfd, or the time is over.
pub(crate) fn wait_for_events<A: Access>(
    access: &A,
    eventfd: &EventFd,
    max: Duration,
    long_sleep: &mut LongSleep,
) -> io::Result<()> {
    let descriptors = [access.fixed().events.as_fd(), eventfd.as_fd()];
    long_sleep.woken(sleep_until_readable(&descriptors, max)?);
    if long_sleep.is_over() {
        // An event that has come since the end of the time has woken the thread in time.
        long_sleep.woken(sleep_until_readable(&descriptors, Duration::ZERO)?);
    }
    Ok(())
}

/// Who sleeps, for a report of a long sleep.
pub(crate) fn describe<A: Access>(access: &A, awaited: &dyn fmt::Debug) -> String {
    let fixed = access.fixed();
    let (sleepers, has_unsent) =
        access.with(|state| (state.sleepers, state.engine.as_dyn_mut().has_unsent()));
    format!(
        "worker {} ({:?}) waits for {awaited:?}; other sleepers: {sleepers}, unsent: {has_unsent},",
        fixed.worker, fixed.address
    )
}
