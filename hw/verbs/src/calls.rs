//! Results of libibverbs' calls as `io::Result`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// The object that a call created, or the error in `errno`.
pub(super) fn made<T>(raw: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(raw).ok_or_else(io::Error::last_os_error)
}

/// The result of a call that returns 0 or an error number, of either sign.
pub(super) fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result.abs())) }
}

/// The error number of an error, 0 if it has none.
pub(super) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

/// Makes reads of this descriptor return at once.
pub(super) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no pointers.
    unsafe {
        let flags = tagmatch_os::check(libc::fcntl(fd.as_raw_fd(), libc::F_GETFL))?;
        let flags = flags | libc::O_NONBLOCK;
        tagmatch_os::check(libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags)).map(drop)
    }
}
