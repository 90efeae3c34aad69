//! Objects as the caller has them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result};

use crate::endpoint::Endpoint;
use crate::queue::Queue;
use crate::settings::{Mode, Settings};
use crate::vector::Vector;

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

    /// The object that a pointer of libfabric belongs to.
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

/// A fabric.
pub(crate) struct Fabric {
    pub(crate) settings: Arc<Settings>,
    pub(crate) api_version: u32,
}

/// A domain: a NIC.
pub(crate) struct Domain {
    pub(crate) fabric: Arc<Fabric>,
    pub(crate) mode: Mutex<Mode>,
    /// Endpoints that were opened.
    pub(crate) endpoints: AtomicU32,
}

impl Domain {
    /// The mode of the next endpoint. From then on the mode stays.
    pub(crate) fn mode_of_endpoint(&self) -> Mode {
        self.endpoints.fetch_add(1, Ordering::Relaxed);
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An address vector, which keeps its domain open.
pub(crate) struct OpenedVector {
    pub(crate) vector: Arc<Vector>,
    pub(crate) _domain: Arc<Domain>,
}

/// A completion queue with the form of its entries.
pub(crate) struct OpenedQueue {
    pub(crate) queue: Arc<Queue>,
    pub(crate) domain: Arc<Domain>,
    pub(crate) format: sys::fi_cq_format,
}

/// An endpoint, which keeps its domain open.
pub(crate) struct OpenedEndpoint {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) _domain: Arc<Domain>,
}

pub(crate) type FabricObject = Object<sys::fid_fabric, Fabric>;
pub(crate) type DomainObject = Object<sys::fid_domain, Domain>;
pub(crate) type VectorObject = Object<sys::fid_av, OpenedVector>;
pub(crate) type QueueObject = Object<sys::fid_cq, OpenedQueue>;
pub(crate) type EndpointObject = Object<sys::fid_ep, OpenedEndpoint>;
