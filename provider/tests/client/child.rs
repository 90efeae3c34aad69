//! Forked children.

use std::time::{Duration, Instant};

use super::call;

/// The longest time that a child may take.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs `program` in a forked child, and then what libfabric runs in it when it calls exit(3).
/// Gives whether it ended well. A child that hangs is killed.
pub(crate) fn ends_in_a_forked_child(program: impl FnOnce()) -> bool {
    // SAFETY: the child has this thread alone, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        program();
        call!(tagmatch_fi::fi_prov_ini(), cleanup());
        // SAFETY: the call takes no pointers.
        unsafe { libc::_exit(0) };
    }
    let began = Instant::now();
    let mut status = 0;
    // SAFETY: `status` lives through the call, and the child is ours.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if began.elapsed() > LIMIT {
            // SAFETY: the call takes no pointers; the child was not waited for yet.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}
