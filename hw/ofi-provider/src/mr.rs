//! Memory regions: fi_mr(3). Messages need none. Programs that register memory all the same get a
//! region that means nothing.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, enter, head};
use tagmatch_ofi_sys::stub::{Stub, closable};

use crate::handle::{Object, domain_of};
use crate::parent::Domain;
use crate::policy::Provider;

struct MemoryRegion<P: Provider> {
    domain: Arc<Domain<P>>,
    is_closed: AtomicBool,
}

type RegionObject<P> = Object<sys::fid_mr, MemoryRegion<P>>;

/// The functions that register memory.
pub(crate) const fn functions<P: Provider>() -> &'static sys::fi_ops_mr {
    const {
        let is_there = !P::IS_TAGGED_ALONE;
        &sys::fi_ops_mr {
            size: size_of::<sys::fi_ops_mr>(),
            reg: if is_there { Some(register::<P, c_void>) } else { Stub::STUB },
            regv: if is_there { Some(register::<P, libc::iovec>) } else { Stub::STUB },
            regattr: if is_there { Some(register_attributes::<P>) } else { Stub::STUB },
        }
    }
}

/// Keys are given in order: nobody uses them.
static KEYS: AtomicU64 = AtomicU64::new(1);

/// # Safety
/// As fi_mr_reg(3) asks.
unsafe fn open<P: Provider>(
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
    let domain = unsafe { domain_of::<P>(domain.cast())? };
    domain.regions.fetch_add(1, Ordering::Relaxed);
    let key = KEYS.fetch_add(1, Ordering::Relaxed);
    let object = sys::fid_mr {
        fid: head(sys::FI_CLASS_MR, context, const { &closable(close::<P>) }),
        mem_desc: std::ptr::null_mut(),
        key,
    };
    let inner = MemoryRegion { domain: domain.clone(), is_closed: false.into() };
    // SAFETY: the caller gives a place for the region.
    unsafe { *region = RegionObject::into_raw(object, inner) };
    Ok(())
}

/// `fi_mr_reg` and `fi_mr_regv`: neither looks at the memory.
unsafe extern "C" fn register<P: Provider, Memory>(
    domain: *mut sys::fid,
    _memory: *const Memory,
    _length: usize,
    access: u64,
    _offset: u64,
    _key: u64,
    _flags: u64,
    region: *mut *mut sys::fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller keeps the promises of fi_mr(3).
    enter(|| unsafe { open::<P>(domain, access, region, context) })
}

unsafe extern "C" fn register_attributes<P: Provider>(
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
        unsafe { open::<P>(domain, (*attributes).access, region, (*attributes).context) }
    })
}

unsafe extern "C" fn close<P: Provider>(fid: *mut sys::fid) -> c_int {
    enter(|| {
        // SAFETY: the caller closes a region.
        let region = unsafe { RegionObject::<P>::of(fid.cast()) };
        if region.is_closed.swap(true, Ordering::Relaxed) {
            return Err(Errno::CLOSED);
        }
        region.domain.regions.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: it was not closed before.
        unsafe { RegionObject::<P>::close(fid) };
        Ok(())
    })
}
