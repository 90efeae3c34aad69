//! Objects as the caller has them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tagmatch_device::slab::Key;
use tagmatch_ofi_sys as sys;

use super::entry::retire;
use crate::domain::{Domain, Fabric};
use crate::errno::{Errno, Result};
use crate::state::{Endpoint, Sinks, State};

/// A fabric as the caller has it.
#[repr(C)]
pub(crate) struct FabricHandle {
    pub(crate) object: sys::fid_fabric,
    pub(crate) fabric: Arc<Fabric>,
}

// SAFETY: the pointers in it are those to tables, which are constant, and the caller's context,
// which is never followed.
unsafe impl Send for FabricHandle {}

/// The fabric of a pointer.
///
/// # Safety
/// `fabric` is a fabric that fi_fabric(3) gave.
pub(crate) unsafe fn fabric_of<'a>(fabric: *mut sys::fid_fabric) -> &'a Arc<Fabric> {
    // SAFETY: the handle begins with the object.
    unsafe { &(*fabric.cast::<FabricHandle>()).fabric }
}

/// A domain as the caller has it.
#[repr(C)]
pub(crate) struct DomainHandle {
    pub(crate) object: sys::fid_domain,
    pub(crate) domain: Arc<Domain>,
}

// SAFETY: the pointers in it are those to tables, which are constant, and the caller's context,
// which is never followed.
unsafe impl Send for DomainHandle {}

/// The domain of a pointer.
///
/// # Errors
/// The domain was closed.
///
/// # Safety
/// `domain` is a domain that fi_domain(3) gave.
pub(crate) unsafe fn domain_of<'a>(domain: *mut sys::fid_domain) -> Result<&'a Arc<Domain>> {
    // SAFETY: the handle begins with the object.
    let domain = unsafe { &(*domain.cast::<DomainHandle>()).domain };
    if domain.is_closed.load(Ordering::Relaxed) { Err(Errno::CLOSED) } else { Ok(domain) }
}

/// An object of a domain: what libfabric knows of it, and its key among the domain's objects.
#[repr(C)]
pub(crate) struct Handle<T> {
    pub(crate) object: T,
    pub(crate) domain: Arc<Domain>,
    pub(crate) key: Key,
}

// SAFETY: the pointers in it are those to tables, which are constant, and the caller's context,
// which is never followed.
unsafe impl<T> Send for Handle<T> {}

impl<T> Handle<T> {
    /// A pointer for the caller.
    pub(crate) fn into_raw(object: T, domain: &Arc<Domain>, key: Key) -> *mut T {
        Box::into_raw(Box::new(Handle { object, domain: domain.clone(), key })).cast()
    }

    /// The handle of a pointer.
    ///
    /// # Safety
    /// [`Handle::into_raw`] gave the pointer, for an object of this type.
    #[inline]
    pub(crate) unsafe fn of<'a>(object: *mut T) -> &'a Self {
        // SAFETY: the handle begins with the object.
        unsafe { &*object.cast() }
    }

    /// Closes an object. What `take` gives is dropped without holding the domain's lock.
    ///
    /// # Safety
    /// [`Handle::into_raw`] gave the pointer, for an object of this type that begins with its head.
    pub(crate) unsafe fn close<R>(
        head: *mut sys::fid,
        take: impl FnOnce(&mut State, Key) -> Result<R>,
    ) -> Result<()>
    where
        T: 'static,
    {
        // SAFETY: the caller's promise.
        let handle = unsafe { Self::of(head.cast()) };
        let taken = take(&mut handle.domain.lock(), handle.key)?;
        drop(taken);
        // SAFETY: `into_raw` made the handle, and it was not closed before.
        unsafe { retire(head.cast::<Self>()) };
        Ok(())
    }
}

/// An endpoint as the caller has it.
pub(crate) type EndpointHandle = Handle<sys::fid_ep>;

/// Runs an operation on an endpoint.
///
/// # Safety
/// `endpoint` is an endpoint.
#[inline]
pub(crate) unsafe fn with_endpoint<R>(
    endpoint: *mut sys::fid_ep,
    operation: impl FnOnce(&mut Endpoint, &mut Sinks<'_>) -> Result<R>,
) -> Result<R> {
    // SAFETY: the caller's promise.
    let handle = unsafe { EndpointHandle::of(endpoint) };
    let mut state = handle.domain.lock();
    let (endpoint, mut sinks) = state.endpoint(handle.key)?;
    let result = operation(endpoint, &mut sinks);
    if endpoint.is_armed {
        endpoint.keep_armed(&mut sinks);
    }
    result
}
