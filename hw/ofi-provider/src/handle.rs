//! Objects as the caller has them.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use tagmatch_device::slab::Key;
use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result};

use crate::objects::Sinks;
use crate::parent::{Domain, Fabric};
use crate::policy::{Provider, ProviderEndpoint};
use crate::state::{State, keep_armed};

/// How many closed objects are remembered.
const CLOSED_MAX: usize = 256;

/// The closed objects. A call on a closed object, which is a mistake of the caller, finds an object
/// without content, and not memory that is used for something else.
static CLOSED: Mutex<VecDeque<Box<dyn Any + Send>>> = Mutex::new(VecDeque::new());

/// Keeps the memory of a closed object until [`CLOSED_MAX`] others were closed.
///
/// # Safety
/// `object` is a pointer that `Box::into_raw` gave, and was not retired before.
pub(crate) unsafe fn retire<T: Any + Send>(object: *mut T) {
    // SAFETY: the caller's promise.
    let object = unsafe { Box::from_raw(object) };
    let oldest = {
        let mut closed = CLOSED.lock().unwrap_or_else(PoisonError::into_inner);
        closed.push_back(object);
        if closed.len() > CLOSED_MAX { closed.pop_front() } else { None }
    };
    drop(oldest);
}

/// An object of libfabric, and what stands behind it.
#[repr(C)]
pub(crate) struct Object<F, T> {
    fid: F,
    inner: T,
}

// SAFETY: the pointers in a `fid` are those to tables, which are constant, and the caller's
// context, which is never followed.
unsafe impl<F, T: Send> Send for Object<F, T> {}

impl<F: 'static, T: Send + 'static> Object<F, T> {
    /// A pointer for the caller.
    pub(crate) fn into_raw(fid: F, inner: T) -> *mut F {
        Box::into_raw(Box::new(Object { fid, inner })).cast()
    }

    /// What stands behind a pointer of libfabric.
    ///
    /// # Safety
    /// [`Object::into_raw`] gave the pointer, for these types.
    #[inline]
    pub(crate) unsafe fn of<'a>(fid: *mut F) -> &'a T {
        // SAFETY: the object begins with the `fid`.
        unsafe { &(*fid.cast::<Self>()).inner }
    }

    /// Closes an object, whose content says from now on that it is closed.
    ///
    /// # Safety
    /// As for [`Object::of`]. `F` begins with its head, and the object was not closed before.
    pub(crate) unsafe fn close(head: *mut sys::fid) {
        // SAFETY: `into_raw` made the object, and it was not closed before.
        unsafe { retire(head.cast::<Self>()) };
    }
}

/// A fabric as the caller has it.
pub(crate) type FabricObject<P> = Object<sys::fid_fabric, Arc<Fabric<P>>>;
/// A domain as the caller has it.
pub(crate) type DomainObject<P> = Object<sys::fid_domain, Arc<Domain<P>>>;

/// The domain of a pointer.
///
/// # Errors
/// The domain was closed.
///
/// # Safety
/// `domain` is a domain that fi_domain(3) gave.
pub(crate) unsafe fn domain_of<'a, P: Provider>(
    domain: *mut sys::fid_domain,
) -> Result<&'a Arc<Domain<P>>> {
    // SAFETY: the caller's promise.
    let domain = unsafe { DomainObject::<P>::of(domain) };
    if domain.is_closed.load(Ordering::Relaxed) { Err(Errno::CLOSED) } else { Ok(domain) }
}

/// An object of a domain: what libfabric knows of it, and its key among the domain's objects.
#[repr(C)]
pub(crate) struct Handle<P: Provider, T> {
    pub(crate) object: T,
    pub(crate) domain: Arc<Domain<P>>,
    pub(crate) key: Key,
}

// SAFETY: the pointers in it are those to tables, which are constant, and the caller's context,
// which is never followed.
unsafe impl<P: Provider, T> Send for Handle<P, T> {}

impl<P: Provider, T: 'static> Handle<P, T> {
    /// A pointer for the caller.
    pub(crate) fn into_raw(object: T, domain: &Arc<Domain<P>>, key: Key) -> *mut T {
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
        take: impl FnOnce(&mut State<P>, Key) -> Result<R>,
    ) -> Result<()> {
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
pub(crate) type EndpointHandle<P> = Handle<P, sys::fid_ep>;

/// Runs an operation on an endpoint.
///
/// # Safety
/// `endpoint` is an endpoint.
#[inline(always)]
pub(crate) unsafe fn with_endpoint<P: Provider, R>(
    endpoint: *mut sys::fid_ep,
    operation: impl FnOnce(&mut P::Endpoint, &mut Sinks<'_, P::Address>) -> Result<R>,
) -> Result<R> {
    // SAFETY: the caller's promise.
    let handle = unsafe { EndpointHandle::<P>::of(endpoint) };
    let mut state = handle.domain.lock();
    let (endpoint, mut sinks) = state.endpoint(handle.key)?;
    let result = operation(endpoint, &mut sinks);
    if endpoint.bound().is_armed {
        keep_armed(endpoint, &mut sinks);
    }
    result
}
