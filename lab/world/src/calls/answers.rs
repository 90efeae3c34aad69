//! The results of the functions.

use std::ffi::c_void;

use libc::{c_int, c_uint, ssize_t};

use crate::faults::Call;
use crate::kernel::{Answer, File};
use crate::scope::ask;

/// The result as C programs get it: -1 with errno for an error.
pub(super) fn result<T: From<i8>>(answer: Result<T, i32>) -> T {
    answer.unwrap_or_else(|errno| {
        // SAFETY: the place of the thread's errno.
        unsafe { *libc::__errno_location() = errno };
        T::from(-1)
    })
}

/// The world's answer. `None`: the real kernel answers.
pub(super) fn answer<T>(world: Option<Answer<T>>, call: Call) -> Option<Result<T, i32>> {
    match world? {
        Some(answer) => Some(answer),
        // A descriptor of the real kernel: its calls fail as well.
        None => failure(call).map(Err),
    }
}

/// The error of a call that the real kernel would answer, if the call is to fail.
pub(super) fn failure(call: Call) -> Option<i32> {
    ask(|kernel| kernel.strike(call))?.err()
}

pub(super) fn count(length: usize) -> ssize_t {
    ssize_t::try_from(length).unwrap_or(ssize_t::MAX)
}

/// A number of a descriptor that no other file has: the real kernel keeps an empty file open for
/// it.
pub(super) fn place_holder() -> Result<c_int, i32> {
    let value: c_uint = 0;
    let flags = libc::EFD_CLOEXEC;
    let fd = real!(eventfd as fn(value: c_uint, flags: c_int) -> c_int);
    if fd < 0 { Err(libc::EMFILE) } else { Ok(fd) }
}

/// Opens a file of the world, unless the call fails.
pub(super) fn open_file(call: Call, file: impl FnOnce() -> File) -> Option<Result<c_int, i32>> {
    ask(|kernel| {
        if !kernel.has_network {
            return kernel.strike(call).err().map(Err);
        }
        Some(
            kernel
                .strike(call)
                .and_then(|()| place_holder())
                .inspect(|fd| kernel.open(*fd, file())),
        )
    })
    .flatten()
}

/// Stores bytes.
///
/// # Safety
/// There is room for them.
pub(super) unsafe fn put(bytes: &[u8], to: *mut c_void) {
    // SAFETY: there is room, and the bytes are the world's.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len()) };
}
