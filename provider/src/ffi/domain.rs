//! The functions of a domain: fi_domain(3), fi_mr(3).

use std::ffi::{c_int, c_void};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::stub::{Stub, closable};

use super::entry::{enter, head, retire, table};
use super::handle::{DomainHandle, domain_of, fabric_of};
use super::{av, cntr, cq, ep, eq, mr};
use crate::domain::Domain;
use crate::errno::{Errno, Result};
use crate::info;

static HEAD: sys::fi_ops = sys::fi_ops { bind: Some(bind), ..closable(close) };

static DOMAIN: sys::fi_ops_domain = sys::fi_ops_domain {
    size: size_of::<sys::fi_ops_domain>(),
    av_open: Some(av::open),
    cq_open: Some(cq::open),
    endpoint: Some(ep::open),
    scalable_ep: Stub::STUB,
    cntr_open: Some(cntr::open),
    poll_open: Stub::STUB,
    stx_ctx: Stub::STUB,
    srx_ctx: Stub::STUB,
    query_atomic: Stub::STUB,
    query_collective: Stub::STUB,
    endpoint2: Some(ep::open2),
};

/// `fi_domain`.
///
/// # Safety
/// As fi_domain(3) asks.
pub(crate) unsafe fn open(
    fabric: *mut sys::fid_fabric,
    info: *mut sys::fi_info,
    domain: *mut *mut sys::fid_domain,
    context: *mut c_void,
) -> Result<()> {
    if info.is_null() || domain.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller gives a fabric.
    let fabric = unsafe { fabric_of(fabric) };
    if fabric.is_closed.load(Ordering::Relaxed) {
        return Err(Errno::CLOSED);
    }
    // SAFETY: the caller gives what fi_getinfo(3) gave, maybe changed.
    let is_shared = unsafe { info::is_shared(info) };
    fabric.children.fetch_add(1, Ordering::Relaxed);
    let object = sys::fid_domain {
        fid: head(sys::FI_CLASS_DOMAIN, context, &HEAD),
        ops: table(&DOMAIN),
        mr: table(&mr::REGISTER),
    };
    let handle = Box::new(DomainHandle { object, domain: Domain::new(fabric.clone(), is_shared) });
    // SAFETY: the caller gives a place for the domain.
    unsafe { *domain = Box::into_raw(handle).cast() };
    Ok(())
}

unsafe extern "C" fn close(fid: *mut sys::fid) -> c_int {
    enter(|| {
        // SAFETY: the caller closes a domain.
        let domain = unsafe { domain_of(fid.cast())? };
        if domain.regions.load(Ordering::Relaxed) > 0 || !domain.lock().is_empty() {
            return Err(Errno::BUSY);
        }
        domain.is_closed.store(true, Ordering::Relaxed);
        domain.events.lock().unwrap_or_else(PoisonError::into_inner).clear();
        domain.fabric.children.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: `open` made the handle, and it was not closed before.
        unsafe { retire(fid.cast::<DomainHandle>()) };
        Ok(())
    })
}

/// An event queue may be bound to a domain, for asynchronous operations, of which there are none.
unsafe extern "C" fn bind(fid: *mut sys::fid, queue: *mut sys::fid, flags: u64) -> c_int {
    enter(|| {
        if queue.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives a domain and an object.
        let (domain, class) = unsafe { (domain_of(fid.cast())?, (*queue).fclass) };
        if class != sys::FI_CLASS_EQ || flags != 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: the class says that it is an event queue.
        let bound = unsafe { eq::bound_to(queue.cast(), &domain.fabric)? };
        domain.events.lock().unwrap_or_else(PoisonError::into_inner).push(bound);
        Ok(())
    })
}
