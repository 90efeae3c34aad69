//! The functions of a domain: fi_domain(3), and cxi's own commands of fi_control(3).

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, enter, head, table};
use tagmatch_ofi_sys::stub::{Stub, closable};

use super::object::{Domain, DomainObject, FabricObject, Object};
use super::{av, cq, ep};
use crate::settings::Mode;

/// Its argument is a name.
const SET_MATCH_MODE: c_int = sys::FI_OPT_CXI_SET_RX_MATCH_MODE_OVERRIDE;
/// Its argument has room for a name.
const GET_MATCH_MODE: c_int = sys::FI_OPT_CXI_GET_RX_MATCH_MODE_OVERRIDE;

static HEAD: sys::fi_ops = sys::fi_ops { control: Some(control), ..closable(close) };

static DOMAIN: sys::fi_ops_domain = sys::fi_ops_domain {
    size: size_of::<sys::fi_ops_domain>(),
    av_open: Some(av::open),
    cq_open: Some(cq::open),
    endpoint: Some(ep::open),
    scalable_ep: Stub::STUB,
    cntr_open: Stub::STUB,
    poll_open: Stub::STUB,
    stx_ctx: Stub::STUB,
    srx_ctx: Stub::STUB,
    query_atomic: Stub::STUB,
    query_collective: Stub::STUB,
    endpoint2: Stub::STUB,
};

static REGISTER: sys::fi_ops_mr = sys::fi_ops_mr {
    size: size_of::<sys::fi_ops_mr>(),
    reg: Stub::STUB,
    regv: Stub::STUB,
    regattr: Stub::STUB,
};

/// `fi_domain`.
pub(crate) unsafe extern "C" fn open(
    fabric: *mut sys::fid_fabric,
    info: *mut sys::fi_info,
    domain: *mut *mut sys::fid_domain,
    context: *mut c_void,
) -> c_int {
    enter(|| {
        if info.is_null() || domain.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives a fabric, and a place for the domain.
        unsafe {
            let fabric = FabricObject::of(fabric).clone();
            let mode = Mutex::new(fabric.settings.mode);
            let fid = head(sys::FI_CLASS_DOMAIN, context, &HEAD);
            let object = sys::fid_domain { fid, ops: table(&DOMAIN), mr: table(&REGISTER) };
            let endpoints = AtomicU32::new(0);
            let inner = Domain { fabric, mode, endpoints };
            *domain = Object::into_raw(object, Arc::new(inner));
        }
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut sys::fid) -> c_int {
    // SAFETY: the caller closes a domain.
    enter(|| unsafe { DomainObject::close(fid) })
}

unsafe extern "C" fn control(fid: *mut sys::fid, command: c_int, argument: *mut c_void) -> c_int {
    enter(|| {
        // SAFETY: the caller gives a domain, and the argument that the command asks for.
        unsafe {
            let domain = DomainObject::of(fid.cast());
            if argument.is_null() || !domain.fabric.settings.has_mode_control {
                return Err(Errno::INVALID);
            }
            match command {
                SET_MATCH_MODE => set_mode(domain, CStr::from_ptr(argument.cast())),
                GET_MATCH_MODE => {
                    let mode = domain.mode.lock().unwrap_or_else(PoisonError::into_inner);
                    let name = mode.name();
                    sys::calls::copy_text(name.as_bytes(), argument.cast(), name.len() + 1);
                    Ok(())
                }
                // As cxip_dom_control answers to what it doesn't know.
                _ => Err(Errno::INVALID),
            }
        }
    })
}

/// cxi takes a mode after the first endpoint as well, and doesn't apply it to that endpoint. Here
/// this mistake of a program is an error.
fn set_mode(domain: &Domain, name: &CStr) -> Result<()> {
    let mode = name.to_str().ok().and_then(Mode::named).ok_or(Errno::INVALID)?;
    if domain.endpoints.load(Ordering::Relaxed) > 0 {
        return Err(Errno::BUSY);
    }
    *domain.mode.lock().unwrap_or_else(PoisonError::into_inner) = mode;
    Ok(())
}
