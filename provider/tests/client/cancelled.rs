//! Threads that are cancelled (pthread_cancel(3)).

use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::Duration;

/// The longest time that a cancelled thread may live.
const LIMIT_SECONDS: libc::time_t = 20;

type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

// A cancelled thread unwinds its stack, so its functions may not be those of std or libc, which
// promise that they don't unwind.
unsafe extern "C-unwind" {
    fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        start: Start,
        argument: *mut c_void,
    ) -> c_int;
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    fn pthread_timedjoin_np(
        thread: libc::pthread_t,
        result: *mut *mut c_void,
        until: *const libc::timespec,
    ) -> c_int;
}

/// # Safety
/// `body` is a pointer to a function of this type.
unsafe extern "C-unwind" fn run<F: Fn() + Sync>(body: *mut c_void) -> *mut c_void {
    // SAFETY: `is_cancelled` passes a function, and lives longer than the thread.
    unsafe { (*body.cast::<F>())() };
    ptr::null_mut()
}

/// Runs `body` in a thread that is cancelled after a while. Gives whether it ended by that. No
/// value of `body` may have a destructor.
pub(crate) fn is_cancelled<F: Fn() + Copy + Sync>(body: F) -> bool {
    let mut thread = 0;
    let mut result = ptr::null_mut();
    let argument = (&raw const body).cast_mut().cast();
    let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `body` lives until the thread has ended: this function panics otherwise, and the
    // process of the test ends.
    unsafe {
        assert_eq!(pthread_create(&raw mut thread, ptr::null(), run::<F>, argument), 0);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(pthread_cancel(thread), 0);
        libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut until);
        until.tv_sec += LIMIT_SECONDS;
        if pthread_timedjoin_np(thread, &raw mut result, &raw const until) != 0 {
            eprintln!("the thread lives on");
            libc::_exit(1);
        }
    }
    // PTHREAD_CANCELED
    result.addr() == usize::MAX
}
