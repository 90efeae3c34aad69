//! Functions that sleep, and in which a thread may be cancelled: see [`cancel`](crate::cancel).

use std::ffi::c_int;
use std::mem::needs_drop;
use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

use crate::calls::{Answer, Result, caught};
use crate::cancel::Uncancelled;

// Unlike the declaration of the crate libc, this one may unwind.
unsafe extern "C-unwind" {
    fn ppoll(
        fds: *mut libc::pollfd,
        count: libc::nfds_t,
        time: *const libc::timespec,
        signals: *const libc::sigset_t,
    ) -> c_int;
}

/// What a function that may sleep does next.
pub enum Next {
    /// It answers with a count.
    Answer(usize),
    /// It takes its next step at once.
    Step,
    /// It sleeps for so long.
    Sleep(Duration),
    /// It sleeps until the descriptor is readable, at most for so long.
    SleepUntilReadable(RawFd, Duration),
}

/// Runs the body of a function that may sleep, step by step. A step learns whether the descriptor
/// of the sleep before it was readable; the end of the time, a signal and an error of the sleep are
/// alike.
///
/// The caller is `extern "C-unwind"`, and neither its frame nor `step` has anything with a
/// destructor. What a step keeps for a thread that doesn't come back from its sleep lies in
/// thread-local storage, whose destructors run at the thread's end.
#[inline]
pub fn sleeping<A: Answer, F: FnMut(bool) -> Result<Next>>(mut step: F) -> A {
    const { assert!(!needs_drop::<F>() && !needs_drop::<Next>()) };
    let mut is_readable = false;
    loop {
        is_readable = match uncancelled(|| step(is_readable)) {
            Err(errno) => return A::of(Err(errno)),
            Ok(Next::Answer(count)) => return A::of(Ok(count)),
            Ok(Next::Step) => false,
            Ok(Next::Sleep(time)) => sleep(-1, time),
            Ok(Next::SleepUntilReadable(fd, time)) => sleep(fd, time),
        };
    }
}

/// Runs a step, in a frame of its own: this one has a destructor.
#[inline(never)]
fn uncancelled(step: impl FnOnce() -> Result<Next>) -> Result<Next> {
    let _uncancelled = Uncancelled::begin();
    caught(step)
}

/// Sleeps until the descriptor, unless that is negative, is readable, at most for so long. Gives
/// whether it is. The thread may be cancelled: the frame has nothing with a destructor.
#[inline(never)]
fn sleep(fd: RawFd, time: Duration) -> bool {
    let mut watched = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    // SAFETY: all arguments live through the call. poll(2) passes over a negative descriptor.
    unsafe { ppoll(&raw mut watched, 1, &raw const time, ptr::null()) > 0 }
}
