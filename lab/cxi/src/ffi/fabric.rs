//! The functions of a fabric: fi_fabric(3), fi_poll(3).

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, enter, head, table};
use tagmatch_ofi_sys::stub::{Stub, closable};

use super::object::{Fabric, FabricObject, Object};
use super::{cq, domain};
use crate::settings;

static HEAD: sys::fi_ops = closable(close);

static FABRIC: sys::fi_ops_fabric = sys::fi_ops_fabric {
    size: size_of::<sys::fi_ops_fabric>(),
    domain: Some(domain::open),
    passive_ep: Stub::STUB,
    eq_open: Stub::STUB,
    wait_open: Stub::STUB,
    trywait: Some(trywait),
    domain2: Stub::STUB,
};

/// `fi_fabric`. The knobs are read here.
pub(crate) unsafe extern "C" fn open(
    attributes: *mut sys::fi_fabric_attr,
    fabric: *mut *mut sys::fid_fabric,
    context: *mut c_void,
) -> c_int {
    enter(|| {
        if attributes.is_null() || fabric.is_null() {
            return Err(Errno::INVALID);
        }
        let settings = Arc::new(settings::of_environment()?);
        // SAFETY: the caller gives attributes, and a place for the fabric.
        unsafe {
            let api_version = (*attributes).api_version;
            let fid = head(sys::FI_CLASS_FABRIC, context, &HEAD);
            let object = sys::fid_fabric { fid, ops: table(&FABRIC), api_version };
            *fabric = Object::into_raw(object, Arc::new(Fabric { settings, api_version }));
        }
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut sys::fid) -> c_int {
    // SAFETY: the caller closes a fabric.
    enter(|| unsafe { FabricObject::close(fid) })
}

/// `fi_trywait`: whether the program may sleep on the descriptors of completion queues.
unsafe extern "C" fn trywait(
    _fabric: *mut sys::fid_fabric,
    objects: *mut *mut sys::fid,
    count: c_int,
) -> c_int {
    enter(|| {
        for index in 0..usize::try_from(count).map_err(|_| Errno::INVALID)? {
            // SAFETY: the caller gives `count` objects, whose class says what they are.
            unsafe {
                let object = *objects.add(index);
                if object.is_null() || (*object).fclass != sys::FI_CLASS_CQ {
                    return Err(Errno::INVALID);
                }
                if !cq::may_sleep(object.cast()) {
                    return Err(Errno::AGAIN);
                }
            }
        }
        Ok(())
    })
}
