//! The functions of an endpoint that move no messages: fi_endpoint(3), fi_cm(3).

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use tagmatch::Worker;
use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::stub::{Stub, closable};
use tagmatch_os::notice;
use tagmatch_trace::Recorder;

use super::entry::{count, enter, head, table};
use super::handle::{EndpointHandle, Handle, domain_of, with_endpoint};
use super::{absent, av, cq, eq, msg, tagged};
use crate::address::Name;
use crate::errno::Errno;
use crate::info;
use crate::report;
use crate::settings::Settings;
use crate::state::{Endpoint, State, closed, insert};

static HEAD: sys::fi_ops =
    sys::fi_ops { bind: Some(bind), control: Some(control), ..closable(close) };

static ENDPOINT: sys::fi_ops_ep = sys::fi_ops_ep {
    size: size_of::<sys::fi_ops_ep>(),
    cancel: Some(cancel),
    getopt: Some(getopt),
    setopt: Some(setopt),
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

/// The least room of a multi-receive buffer, in bytes, until a program sets another one.
const MULTI_MIN: usize = 64;

/// `fi_endpoint`. The worker begins here, so the endpoint's name is known before it is enabled.
pub(crate) unsafe extern "C" fn open(
    domain: *mut sys::fid_domain,
    info: *mut sys::fi_info,
    endpoint: *mut *mut sys::fid_ep,
    context: *mut c_void,
) -> c_int {
    enter(|| {
        if info.is_null() || endpoint.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives a domain.
        let domain = unsafe { domain_of(domain)? };
        let settings = &domain.fabric.settings;
        // SAFETY: the caller gives what fi_getinfo(3) gave, maybe changed.
        let opened = unsafe { info::opened(info)? };
        let worker = new_worker(settings, opened.directed).map_err(|error| {
            // The caller gets a number only; the words are for the person who runs the program.
            notice::tell(&format!("tagmatch: fi_endpoint: {error}"));
            Errno::IO
        })?;
        let mut state = Endpoint::new(worker, opened, MULTI_MIN);
        if let Some(path) = settings.report() {
            state.depths.watches = true;
            report::begin(path);
        }
        let key = insert(&mut domain.lock().endpoints, state)?;
        let object = sys::fid_ep {
            fid: head(sys::FI_CLASS_EP, context, &HEAD),
            ops: table(&ENDPOINT),
            cm: table(&NAMES),
            msg: table(&msg::MSG),
            rma: table(&absent::RMA),
            tagged: table(&tagged::TAGGED),
            atomic: table(&absent::ATOMIC),
            collective: table(&absent::COLLECTIVE),
        };
        // SAFETY: the caller gives a place for the endpoint.
        unsafe { *endpoint = Handle::into_raw(object, domain, key) };
        Ok(())
    })
}

/// A worker, which records a trace if the settings say so.
fn new_worker(
    settings: &Settings,
    is_directed: bool,
) -> Result<Worker, Box<dyn std::error::Error>> {
    let worker = Worker::new(settings.config(is_directed))?;
    if let Some(folder) = settings.trace() {
        let recorder = Recorder::in_folder(folder, Recorder::BYTES_MAX);
        let (recorder, _) =
            recorder.map_err(|error| format!("TAGMATCH_FI_TRACE={}: {error}", folder.display()))?;
        worker.observe(Box::new(recorder))?;
    }
    Ok(worker)
}

/// `fi_endpoint2`.
pub(crate) unsafe extern "C" fn open2(
    domain: *mut sys::fid_domain,
    info: *mut sys::fi_info,
    endpoint: *mut *mut sys::fid_ep,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return enter(|| Err(Errno::BAD_FLAGS));
    }
    // SAFETY: as the caller promises.
    unsafe { open(domain, info, endpoint, context) }
}

/// `fi_close`: blocks until the peers have what the endpoint has accepted, for a limited time.
/// Receives that are posted end without an entry.
unsafe extern "C" fn close(fid: *mut sys::fid) -> c_int {
    // SAFETY: the caller closes an endpoint.
    enter(|| unsafe { Handle::<sys::fid_ep>::close(fid, State::close_endpoint) })
}

/// `fi_ep_bind`: to an address vector, completion queues, counters and an event queue.
unsafe extern "C" fn bind(fid: *mut sys::fid, other: *mut sys::fid, flags: u64) -> c_int {
    enter(|| {
        if other.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives an endpoint and another object, whose class says what it is.
        let (handle, class) = unsafe { (EndpointHandle::of(fid.cast()), (*other).fclass) };
        let (domain, key) = (&handle.domain, handle.key);
        let same = |of: &Arc<_>| if Arc::ptr_eq(of, domain) { Ok(()) } else { Err(Errno::DOMAIN) };
        // SAFETY: as above.
        unsafe {
            match class {
                sys::FI_CLASS_AV => {
                    let vector = Handle::<sys::fid_av>::of(other.cast());
                    same(&vector.domain)?;
                    if flags & !sys::FI_SYMMETRIC != 0 {
                        return Err(Errno::BAD_FLAGS);
                    }
                    domain.lock().bind_vector(key, vector.key)
                }
                sys::FI_CLASS_CQ => {
                    let queue = cq::of(other.cast());
                    same(&queue.domain)?;
                    domain.lock().bind_queue(key, queue.key, flags)
                }
                sys::FI_CLASS_CNTR => {
                    let counter = Handle::<sys::fid_cntr>::of(other.cast());
                    same(&counter.domain)?;
                    domain.lock().bind_counter(key, counter.key, flags)
                }
                // An endpoint has no events.
                sys::FI_CLASS_EQ if flags == 0 => {
                    let bound = eq::bound_to(other.cast(), &domain.fabric)?;
                    closed(domain.lock().endpoints.get_mut(key))?.events.push(bound);
                    Ok(())
                }
                _ => Err(Errno::INVALID),
            }
        }
    })
}

/// `fi_control`: `FI_ENABLE`, and the default flags of operations.
unsafe extern "C" fn control(fid: *mut sys::fid, command: c_int, argument: *mut c_void) -> c_int {
    enter(|| {
        // SAFETY: the caller gives an endpoint.
        let handle = unsafe { EndpointHandle::of(fid.cast()) };
        let mut state = handle.domain.lock();
        match command {
            sys::FI_ENABLE => state.enable(handle.key),
            sys::FI_GETOPSFLAG | sys::FI_SETOPSFLAG if !argument.is_null() => {
                let (endpoint, _) = state.endpoint(handle.key)?;
                // SAFETY: for these commands the argument is a number.
                let flags = unsafe { &mut *argument.cast::<u64>() };
                let opened = &mut endpoint.opened;
                let (kept, may) = match *flags & (sys::FI_TRANSMIT | sys::FI_RECV) {
                    sys::FI_TRANSMIT => (&mut opened.send_flags, info::SEND_FLAGS),
                    sys::FI_RECV => (&mut opened.receive_flags, info::RECEIVE_FLAGS),
                    _ => return Err(Errno::INVALID),
                };
                let wanted = *flags & !(sys::FI_TRANSMIT | sys::FI_RECV);
                if command == sys::FI_GETOPSFLAG {
                    *flags = *kept;
                } else if wanted & !may != 0 {
                    return Err(Errno::BAD_FLAGS);
                } else {
                    *kept = wanted;
                }
                Ok(())
            }
            _ => Err(Errno::NO_SYSTEM_CALL),
        }
    })
}

/// `fi_cancel`: cancels a receive. Its entry tells the outcome; without such a receive nothing
/// happens.
unsafe extern "C" fn cancel(fid: *mut sys::fid, context: *mut c_void) -> isize {
    enter(|| {
        // SAFETY: the caller gives an endpoint.
        unsafe {
            with_endpoint(fid.cast(), |endpoint, sinks| {
                endpoint.cancel(sinks, context as usize);
                Ok(())
            })
        }
    })
}

/// `fi_getopt`: `FI_OPT_MIN_MULTI_RECV`.
unsafe extern "C" fn getopt(
    fid: *mut sys::fid,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    length: *mut usize,
) -> c_int {
    enter(|| {
        if (level, option) != (sys::FI_OPT_ENDPOINT, sys::FI_OPT_MIN_MULTI_RECV) {
            return Err(Errno::NO_PROTOCOL_OPTION);
        }
        if value.is_null() || length.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives an endpoint, memory and its length.
        unsafe {
            let minimum = with_endpoint(fid.cast(), |endpoint, _| Ok(endpoint.multi_min))?;
            if length.replace(size_of::<usize>()) < size_of::<usize>() {
                return Err(Errno::TOO_SMALL);
            }
            value.cast::<usize>().write_unaligned(minimum);
        }
        Ok(())
    })
}

/// `fi_setopt`: `FI_OPT_MIN_MULTI_RECV`.
unsafe extern "C" fn setopt(
    fid: *mut sys::fid,
    level: c_int,
    option: c_int,
    value: *const c_void,
    length: usize,
) -> c_int {
    enter(|| {
        if (level, option) != (sys::FI_OPT_ENDPOINT, sys::FI_OPT_MIN_MULTI_RECV) {
            return Err(Errno::NO_PROTOCOL_OPTION);
        }
        if value.is_null() || length != size_of::<usize>() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives an endpoint, and a value of this length.
        unsafe {
            let minimum = value.cast::<usize>().read_unaligned();
            with_endpoint(fid.cast(), |endpoint, _| {
                endpoint.multi_min = minimum;
                Ok(())
            })
        }
    })
}

/// `fi_getname`.
unsafe extern "C" fn getname(fid: *mut sys::fid, to: *mut c_void, room: *mut usize) -> c_int {
    count(|| {
        // SAFETY: the caller gives an endpoint, memory and its length.
        unsafe {
            let address = with_endpoint(fid.cast(), |endpoint, _| Ok(endpoint.worker.address()))?;
            let name = Name::of(&address).ok_or(Errno::OTHER)?;
            av::copy_name(&name, to, room).map(|()| 0)
        }
    })
}
