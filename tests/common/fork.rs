//! Forked children, and how processes end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Runs `program` in a forked child, which ends afterwards. Returns whether it ended without a
/// panic. A child that hangs is killed.
pub(crate) fn ends_in_a_forked_child(program: impl FnOnce()) -> bool {
    // SAFETY: the child has this thread alone. It calls what the C library allows a child to call,
    // the allocator included, and leaves by `_exit`, so that nothing of its parent is run twice.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let is_good = catch_unwind(AssertUnwindSafe(program)).is_ok();
        // SAFETY: the call takes no pointers.
        unsafe { libc::_exit(i32::from(!is_good)) };
    }
    let start = Instant::now();
    let mut status = 0;
    // SAFETY: `status` lives through the call, and the child is ours.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if start.elapsed() > Duration::from_secs(20) {
            // SAFETY: the call takes no pointers, and the child was not waited for yet, so its id
            // is still its own.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

/// Sends a signal to a process of these tests.
pub(crate) fn signal(process: u32, signal: i32) {
    // SAFETY: the call takes no pointers.
    assert_eq!(unsafe { libc::kill(process as libc::pid_t, signal) }, 0);
}

/// Ends this process without running anything else.
pub(crate) fn exit_at_once() -> ! {
    // SAFETY: the call takes no pointers.
    unsafe { libc::_exit(0) }
}
