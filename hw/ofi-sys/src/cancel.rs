//! Threads that are cancelled (pthread_cancel(3)).
//!
//! A cancelled thread unwinds its stack at the next function of the C library that is a
//! cancellation point, such as poll(2) or sendmsg(2). Rust allows that only through frames without
//! destructors; a lock that is held would stay so, and `catch_unwind` ends the process. So:
//!
//! - While a function of the provider works, its thread can't be cancelled ([`Uncancelled`]). The
//!   request waits for the next cancellation point of the program.
//! - A function that sleeps does so in a frame of its own, in which nothing has a destructor
//!   ([`sleeping`](crate::sleeping)). There the thread can be cancelled, as in other providers.
//!
//! Asynchronous cancellation is not covered: POSIX allows it in three functions only.

use std::ffi::c_int;
use std::marker::PhantomData;

/// `PTHREAD_CANCEL_DISABLE` of glibc and musl.
const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// This thread can't be cancelled until the value is dropped.
pub struct Uncancelled {
    before: c_int,
    _of_this_thread: PhantomData<*const ()>,
}

impl Uncancelled {
    /// Lets requests to cancel this thread wait.
    pub fn begin() -> Self {
        let mut before = 0;
        // SAFETY: `before` lives through the call.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Uncancelled { before, _of_this_thread: PhantomData }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut other = 0;
        // SAFETY: `other` lives through the call, which is no cancellation point.
        unsafe { pthread_setcancelstate(self.before, &raw mut other) };
    }
}
