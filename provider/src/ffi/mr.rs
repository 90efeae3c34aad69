//! Memory regions: fi_mr(3). Messages need none. Programs that register memory all the same get a
//! region that means nothing.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::stub::closable;

use super::entry::{enter, head, retire};
use super::handle::domain_of;
use crate::domain::Domain;
use crate::errno::{Errno, Result};

#[repr(C)]
struct RegionHandle {
    object: sys::fid_mr,
    domain: Arc<Domain>,
    is_closed: AtomicBool,
}

// SAFETY: the pointers in it are those to tables, which are constant, and the caller's context,
// which is never followed.
unsafe impl Send for RegionHandle {}

static HEAD: sys::fi_ops = closable(close);

/// The functions that register memory.
pub(crate) static REGISTER: sys::fi_ops_mr = sys::fi_ops_mr {
    size: size_of::<sys::fi_ops_mr>(),
    reg: Some(register),
    regv: Some(register_vector),
    regattr: Some(register_attributes),
};

/// Keys are given in order: nobody uses them.
static KEYS: AtomicU64 = AtomicU64::new(1);

/// # Safety
/// As fi_mr_reg(3) asks.
unsafe fn open(
    domain: *mut sys::fid,
    access: u64,
    region: *mut *mut sys::fid_mr,
    context: *mut c_void,
) -> Result<()> {
    const MESSAGES: u64 = sys::FI_SEND | sys::FI_RECV;
    const ACCESS: u64 =
        MESSAGES | sys::FI_READ | sys::FI_WRITE | sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;
    if region.is_null() || domain.is_null() || access & !ACCESS != 0 {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller gives an object.
    if unsafe { (*domain).fclass } != sys::FI_CLASS_DOMAIN {
        return Err(Errno::INVALID);
    }
    // SAFETY: it is a domain.
    let domain = unsafe { domain_of(domain.cast())? };
    domain.regions.fetch_add(1, Ordering::Relaxed);
    let key = KEYS.fetch_add(1, Ordering::Relaxed);
    let object = sys::fid_mr {
        fid: head(sys::FI_CLASS_MR, context, &HEAD),
        mem_desc: std::ptr::null_mut(),
        key,
    };
    let handle = RegionHandle { object, domain: domain.clone(), is_closed: false.into() };
    // SAFETY: the caller gives a place for the region.
    unsafe { *region = Box::into_raw(Box::new(handle)).cast() };
    Ok(())
}

unsafe extern "C" fn register(
    domain: *mut sys::fid,
    _start: *const c_void,
    _length: usize,
    access: u64,
    _offset: u64,
    _key: u64,
    _flags: u64,
    region: *mut *mut sys::fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller keeps the promises of fi_mr(3).
    enter(|| unsafe { open(domain, access, region, context) })
}

unsafe extern "C" fn register_vector(
    domain: *mut sys::fid,
    _parts: *const libc::iovec,
    _count: usize,
    access: u64,
    _offset: u64,
    _key: u64,
    _flags: u64,
    region: *mut *mut sys::fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller keeps the promises of fi_mr(3).
    enter(|| unsafe { open(domain, access, region, context) })
}

unsafe extern "C" fn register_attributes(
    domain: *mut sys::fid,
    attributes: *const sys::fi_mr_attr,
    _flags: u64,
    region: *mut *mut sys::fid_mr,
) -> c_int {
    enter(|| {
        if attributes.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller keeps the promises of fi_mr(3).
        unsafe { open(domain, (*attributes).access, region, (*attributes).context) }
    })
}

unsafe extern "C" fn close(fid: *mut sys::fid) -> c_int {
    enter(|| {
        // SAFETY: the caller closes a region.
        let handle = unsafe { &*fid.cast::<RegionHandle>() };
        if handle.is_closed.swap(true, Ordering::Relaxed) {
            return Err(Errno::CLOSED);
        }
        handle.domain.regions.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: `open` made the handle, and it was not closed before.
        unsafe { retire(fid.cast::<RegionHandle>()) };
        Ok(())
    })
}
