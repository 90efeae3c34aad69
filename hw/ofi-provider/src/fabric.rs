//! The functions of a fabric: fi_fabric(3), fi_poll(3).

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, enter, head, table};
use tagmatch_ofi_sys::stub::{Stub, closable};

use crate::handle::FabricObject;
use crate::parent::Fabric;
use crate::policy::Provider;
use crate::{cq, domain, eq};

const fn functions<P: Provider>() -> &'static sys::fi_ops_fabric {
    const {
        &sys::fi_ops_fabric {
            size: size_of::<sys::fi_ops_fabric>(),
            domain: Some(open_domain::<P>),
            passive_ep: Stub::STUB,
            eq_open: if P::IS_TAGGED_ALONE { Stub::STUB } else { Some(eq::open::<P>) },
            wait_open: Stub::STUB,
            trywait: Some(trywait::<P>),
            domain2: Some(open_domain2::<P>),
        }
    }
}

/// `fi_fabric`.
pub(crate) unsafe extern "C" fn open<P: Provider>(
    attributes: *mut sys::fi_fabric_attr,
    fabric: *mut *mut sys::fid_fabric,
    context: *mut c_void,
) -> c_int {
    enter(|| {
        if attributes.is_null() || fabric.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives attributes.
        let api_version = unsafe { (*attributes).api_version };
        let settings = P::settings()?;
        let inner = Fabric { api_version, settings, children: 0.into(), is_closed: false.into() };
        let object = sys::fid_fabric {
            fid: head(sys::FI_CLASS_FABRIC, context, const { &closable(close::<P>) }),
            ops: table(functions::<P>()),
            api_version,
        };
        // SAFETY: the caller gives a place for the fabric.
        unsafe { *fabric = FabricObject::<P>::into_raw(object, Arc::new(inner)) };
        Ok(())
    })
}

unsafe extern "C" fn close<P: Provider>(fid: *mut sys::fid) -> c_int {
    enter(|| {
        // SAFETY: the caller closes a fabric.
        let fabric = unsafe { FabricObject::<P>::of(fid.cast()) };
        if fabric.is_closed.load(Ordering::Relaxed) {
            return Err(Errno::CLOSED);
        }
        if fabric.children.load(Ordering::Relaxed) > 0 {
            return Err(Errno::BUSY);
        }
        fabric.is_closed.store(true, Ordering::Relaxed);
        // SAFETY: it was not closed before.
        unsafe { FabricObject::<P>::close(fid) };
        Ok(())
    })
}

unsafe extern "C" fn open_domain<P: Provider>(
    fabric: *mut sys::fid_fabric,
    info: *mut sys::fi_info,
    domain: *mut *mut sys::fid_domain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller keeps the promises of fi_domain(3).
    enter(|| unsafe { domain::open::<P>(fabric, info, domain, context) })
}

unsafe extern "C" fn open_domain2<P: Provider>(
    fabric: *mut sys::fid_fabric,
    info: *mut sys::fi_info,
    domain: *mut *mut sys::fid_domain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    enter(|| {
        if flags != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        // SAFETY: the caller keeps the promises of fi_domain(3).
        unsafe { domain::open::<P>(fabric, info, domain, context) }
    })
}

/// `fi_trywait`: whether the caller may sleep on the descriptors of these objects.
unsafe extern "C" fn trywait<P: Provider>(
    _fabric: *mut sys::fid_fabric,
    objects: *mut *mut sys::fid,
    count: c_int,
) -> c_int {
    enter(|| {
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        if count == 0 || objects.is_null() {
            return if count == 0 { Ok(()) } else { Err(Errno::INVALID) };
        }
        // SAFETY: the caller gives `count` objects.
        for object in unsafe { std::slice::from_raw_parts(objects, count) } {
            // SAFETY: as above.
            unsafe { may_sleep_on::<P>(*object)? };
        }
        Ok(())
    })
}

/// # Safety
/// `object` is an object of libfabric, or null.
unsafe fn may_sleep_on<P: Provider>(object: *mut sys::fid) -> Result<()> {
    if object.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: the class says what the object is.
    let may = unsafe {
        match (*object).fclass {
            sys::FI_CLASS_CQ => cq::arm::<P>(object.cast())?,
            sys::FI_CLASS_EQ if !P::IS_TAGGED_ALONE => eq::is_empty::<P>(object.cast()),
            _ => return Err(Errno::INVALID),
        }
    };
    if may { Ok(()) } else { Err(Errno::AGAIN) }
}
