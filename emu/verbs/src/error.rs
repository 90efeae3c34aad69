//! Errors, as libibverbs' calls return them and as [`enable`](crate::enable) does.

use std::io;
use std::ptr::{NonNull, null_mut};

use libc::ENOMEM;
use tagmatch_rdma_core_sys::LoadError;

use crate::settings::BadSetting;

/// Why a device can't be emulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnableError {
    /// libibverbs can't be loaded.
    #[error(transparent)]
    NotLoaded(#[from] &'static LoadError),
    /// The context has no room for tag-matching calls: the library is older than rdma-core 16.
    #[error("the context ends before post_srq_ops: rdma-core is older than 16")]
    NotExtended,
    /// The device lacks this call.
    #[error("the device has no {0}")]
    Lacks(&'static str),
    /// The context has been enabled already.
    #[error("the device has been enabled already")]
    Twice,
    /// A setting is out of its range.
    #[error(transparent)]
    BadSetting(#[from] BadSetting),
}

/// The object that a call made, or the error in `errno`.
pub(crate) fn made<T>(raw: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(raw).ok_or_else(io::Error::last_os_error)
}

/// A null pointer, with the error number in `errno`.
pub(crate) fn failed<T>(errno: i32) -> *mut T {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
    null_mut()
}

/// The error number, for a call that returns one.
pub(crate) fn errno(error: io::Error) -> i32 {
    error.raw_os_error().unwrap_or(ENOMEM)
}
