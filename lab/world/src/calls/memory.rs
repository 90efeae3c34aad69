//! Shared memory. The real kernel has it; the calls only fail.

use std::ffi::{c_char, c_void};

use libc::{c_int, c_uint, off_t};

use super::answers::{failure, result};
use crate::faults::Call;

#[unsafe(no_mangle)]
unsafe extern "C" fn memfd_create(name: *const c_char, flags: c_uint) -> c_int {
    match failure(Call::MemFd) {
        Some(errno) => result(Err(errno)),
        None => real!(memfd_create as fn(name: *const c_char, flags: c_uint) -> c_int),
    }
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate(fd: c_int, length: off_t) -> c_int {
    match failure(Call::Truncate) {
        Some(errno) => result(Err(errno)),
        None => real!(ftruncate as fn(fd: c_int, length: off_t) -> c_int),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    if let Some(errno) = failure(Call::Map) {
        let _: c_int = result(Err(errno));
        return libc::MAP_FAILED;
    }
    real!(
        mmap as fn(
            address: *mut c_void,
            length: usize,
            protection: c_int,
            flags: c_int,
            fd: c_int,
            offset: off_t,
        ) -> *mut c_void
    )
}

/// The same call under the name that it has for large files.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller keeps the promises of the call.
    unsafe { mmap(address, length, protection, flags, fd, offset) }
}

/// A function of this file, which keeps all of them.
pub(super) fn names() -> *const () {
    memfd_create as *const ()
}
