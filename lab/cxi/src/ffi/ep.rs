//! The functions of an endpoint that move no messages: fi_endpoint(3), fi_cm(3).

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, enter, head, table};
use tagmatch_ofi_sys::stub::{Stub, closable};
use tagmatch_os::notice;

use super::object::{DomainObject, EndpointObject, Object, OpenedEndpoint, VectorObject};
use super::{av, cq, offer, tagged};
use crate::endpoint::{Endpoint, Options};

static HEAD: sys::fi_ops =
    sys::fi_ops { bind: Some(bind), control: Some(control), ..closable(close) };

static ENDPOINT: sys::fi_ops_ep = sys::fi_ops_ep {
    size: size_of::<sys::fi_ops_ep>(),
    cancel: Some(cancel),
    getopt: Stub::STUB,
    setopt: Stub::STUB,
    tx_ctx: Stub::STUB,
    rx_ctx: Stub::STUB,
    rx_size_left: Stub::STUB,
    tx_size_left: Stub::STUB,
};

static NAMES: sys::fi_ops_cm = sys::fi_ops_cm {
    size: size_of::<sys::fi_ops_cm>(),
    setname: Stub::STUB,
    getname: Some(getname),
    getpeer: Stub::STUB,
    connect: Stub::STUB,
    listen: Stub::STUB,
    accept: Stub::STUB,
    reject: Stub::STUB,
    shutdown: Stub::STUB,
    join: Stub::STUB,
};

/// `fi_endpoint`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut sys::fid_domain,
    info: *mut sys::fi_info,
    endpoint: *mut *mut sys::fid_ep,
    context: *mut c_void,
) -> c_int {
    /// The endpoints of this process so far: their numbers are in their names.
    static OPENED: AtomicU32 = AtomicU32::new(0);
    enter(|| {
        if info.is_null() || endpoint.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives a domain, what fi_getinfo(3) gave, and a place for the endpoint.
        unsafe {
            let domain = DomainObject::of(domain).clone();
            let options = options(&*info)?;
            let mode = domain.mode_of_endpoint();
            let number = OPENED.fetch_add(1, Ordering::Relaxed);
            let inner = Endpoint::new(&domain.fabric.settings, mode, number, options);
            let inner = inner.map_err(|error| {
                notice::tell(&format!("cxi: fi_endpoint: {error}"));
                Errno::IO
            })?;
            let object = sys::fid_ep {
                fid: head(sys::FI_CLASS_EP, context, &HEAD),
                ops: table(&ENDPOINT),
                cm: table(&NAMES),
                msg: table(&tagged::MSG),
                // Programs that ask for tagged messages alone don't call these.
                rma: std::ptr::null_mut(),
                tagged: table(&tagged::TAGGED),
                atomic: std::ptr::null_mut(),
                collective: std::ptr::null_mut(),
            };
            let opened = OpenedEndpoint { endpoint: Arc::new(inner), _domain: domain };
            *endpoint = Object::into_raw(object, Arc::new(opened));
        }
        Ok(())
    })
}

/// Reads the settings of an endpoint out of the entry that a program opens it with.
///
/// # Safety
/// The parts of `info` are null or of their types.
unsafe fn options(info: &sys::fi_info) -> Result<Options> {
    // SAFETY: the caller's promise.
    let (transmit, receive, endpoint) =
        unsafe { (info.tx_attr.as_ref(), info.rx_attr.as_ref(), info.ep_attr.as_ref()) };
    if endpoint.is_some_and(|endpoint| endpoint.protocol == sys::FI_PROTO_CXI_RNR) {
        return Err(Errno::NO_SYSTEM_CALL);
    }
    Ok(Options {
        sends_max: transmit.map_or(offer::USUAL_MAX, |transmit| transmit.size),
        receives_max: receive.map_or(offer::USUAL_MAX, |receive| receive.size),
        send_flags: transmit.map_or(0, |transmit| transmit.op_flags),
        receive_flags: receive.map_or(0, |receive| receive.op_flags),
        is_directed: info.caps & sys::FI_DIRECTED_RECV != 0,
        tells_source: info.caps & sys::FI_SOURCE != 0,
    })
}

/// `fi_close`: waits for sends that are under way, for a limited time. What is left ends without a
/// completion.
unsafe extern "C" fn close(fid: *mut sys::fid) -> c_int {
    enter(|| {
        // SAFETY: the caller closes an endpoint.
        unsafe {
            EndpointObject::of(fid.cast()).endpoint.drain();
            EndpointObject::close(fid)
        }
    })
}

/// `fi_ep_bind`: to an address vector and completion queues.
unsafe extern "C" fn bind(fid: *mut sys::fid, other: *mut sys::fid, flags: u64) -> c_int {
    enter(|| {
        if other.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives an endpoint and another object, whose class says what it is.
        unsafe {
            let endpoint = &EndpointObject::of(fid.cast()).endpoint;
            match (*other).fclass {
                sys::FI_CLASS_AV => {
                    endpoint.bind_vector(VectorObject::of(other.cast()).vector.clone());
                    Ok(())
                }
                sys::FI_CLASS_CQ => endpoint.bind_queue(&cq::of(other.cast()).queue, flags),
                _ => Err(Errno::INVALID),
            }
        }
    })
}

unsafe extern "C" fn control(fid: *mut sys::fid, command: c_int, _argument: *mut c_void) -> c_int {
    enter(|| match command {
        // SAFETY: the caller gives an endpoint.
        sys::FI_ENABLE => unsafe { EndpointObject::of(fid.cast()) }.endpoint.enable(),
        _ => Err(Errno::NO_SYSTEM_CALL),
    })
}

/// `fi_cancel`: of a receive. `FI_ECANCELED` comes later, or the completion of a message that was
/// faster.
unsafe extern "C" fn cancel(fid: *mut sys::fid, context: *mut c_void) -> isize {
    // SAFETY: the caller gives an endpoint.
    enter(|| unsafe { EndpointObject::of(fid.cast()) }.endpoint.cancel(context as usize))
}

unsafe extern "C" fn getname(fid: *mut sys::fid, to: *mut c_void, room: *mut usize) -> c_int {
    enter(|| {
        // SAFETY: the caller gives an endpoint, and memory with its length.
        unsafe {
            let name = EndpointObject::of(fid.cast()).endpoint.name;
            if av::copy_name(name, to, room)? { Ok(()) } else { Err(Errno::TOO_SMALL) }
        }
    })
}
