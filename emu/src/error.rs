//! Errors, as libibverbs' calls return them and as [`enable`](crate::enable) does.

use std::io;
use std::ptr::{NonNull, null_mut};

use libc::ENOMEM;
use tagmatch_rdma_core_sys::LoadError;

use crate::settings::BadSetting;

/// Why a device can't be emulated.
#[derive(Debug, thiserror::Error)]
pub enum EnableError {
    /// libibverbs is not there.
    #[error(transparent)]
    NotLoaded(#[from] &'static LoadError),
    /// The context is of an interface without tag matching: a library older than rdma-core 16.
    #[error("its context ends before post_srq_ops")]
    NotExtended,
    /// The device has no such call.
    #[error("it has no {0}")]
    Lacks(&'static str),
    /// It has been enabled already.
    #[error("it has been enabled already")]
    Twice,
    /// A setting is out of its range.
    #[error(transparent)]
    BadSetting(#[from] BadSetting),
}

/// The object that a call made, or the error in `errno`.
pub(crate) fn made<T>(raw: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(raw).ok_or_else(io::Error::last_os_error)
}

/// Null, with an error number in `errno`.
pub(crate) fn failed<T>(errno: i32) -> *mut T {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
    null_mut()
}

/// The error number, for a call that returns one.
pub(crate) fn errno(error: io::Error) -> i32 {
    error.raw_os_error().unwrap_or(ENOMEM)
}
