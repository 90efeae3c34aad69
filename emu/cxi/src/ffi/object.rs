//! Objects as the caller has them.

use std::sync::Arc;

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result};

/// An object of libfabric, and what stands behind it.
#[repr(C)]
pub(crate) struct Object<F, T> {
    fid: F,
    inner: Arc<T>,
}

impl<F, T> Object<F, T> {
    /// A pointer for the caller, until it closes the object.
    pub(crate) fn into_raw(fid: F, inner: Arc<T>) -> *mut F {
        Box::into_raw(Box::new(Object { fid, inner })).cast()
    }

    /// What stands behind a pointer.
    ///
    /// # Safety
    /// [`Object::into_raw`] gave the pointer, for these types, and the object is open.
    pub(crate) unsafe fn of<'a>(fid: *mut F) -> &'a Arc<T> {
        // SAFETY: the object begins with the `fid`.
        unsafe { &(*fid.cast::<Self>()).inner }
    }

    /// Closes an object that no other object uses.
    ///
    /// # Errors
    /// Another object uses it.
    ///
    /// # Safety
    /// As for [`Object::of`]. `F` begins with its head.
    pub(crate) unsafe fn close(head: *mut sys::fid) -> Result<()> {
        // SAFETY: the caller's promise.
        if Arc::strong_count(unsafe { Self::of(head.cast()) }) > 1 {
            return Err(Errno::BUSY);
        }
        // SAFETY: `into_raw` made it, and it was not closed before.
        drop(unsafe { Box::from_raw(head.cast::<Self>()) });
        Ok(())
    }
}
