//! The functions of an endpoint that move no messages: fi_endpoint(3), fi_cm(3).

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Instant;

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, count, enter, head, table};
use tagmatch_ofi_sys::stub::{Stub, closable};

use crate::av::VectorHandle;
use crate::cntr::CounterHandle;
use crate::handle::{EndpointHandle, domain_of, with_endpoint};
use crate::policy::{Provider, ProviderEndpoint};
use crate::state::{State, closed};
use crate::{atomic, av, cq, eq, hints, msg, rma, tagged};

const fn functions<P: Provider>() -> &'static sys::fi_ops_ep {
    const {
        let has_options = !P::IS_TAGGED_ALONE;
        &sys::fi_ops_ep {
            size: size_of::<sys::fi_ops_ep>(),
            cancel: Some(cancel::<P>),
            getopt: if has_options { Some(getopt::<P>) } else { Stub::STUB },
            setopt: if has_options { Some(setopt::<P>) } else { Stub::STUB },
            tx_ctx: Stub::STUB,
            rx_ctx: Stub::STUB,
            rx_size_left: Stub::STUB,
            tx_size_left: Stub::STUB,
        }
    }
}

const fn head_functions<P: Provider>() -> &'static sys::fi_ops {
    const { &sys::fi_ops { bind: Some(bind::<P>), control: Some(control::<P>), ..closable(close::<P>) } }
}

const fn names<P: Provider>() -> &'static sys::fi_ops_cm {
    const {
        &sys::fi_ops_cm {
            size: size_of::<sys::fi_ops_cm>(),
            setname: Stub::STUB,
            getname: Some(getname::<P>),
            getpeer: Stub::STUB,
            connect: Stub::STUB,
            listen: Stub::STUB,
            accept: Stub::STUB,
            reject: Stub::STUB,
            shutdown: Stub::STUB,
            join: Stub::STUB,
        }
    }
}

/// The functions for untagged messages of a provider that has none.
static NO_MESSAGES: sys::fi_ops_msg = sys::fi_ops_msg {
    size: size_of::<sys::fi_ops_msg>(),
    recv: Stub::STUB,
    recvv: Stub::STUB,
    recvmsg: Stub::STUB,
    send: Stub::STUB,
    sendv: Stub::STUB,
    sendmsg: Stub::STUB,
    inject: Stub::STUB,
    senddata: Stub::STUB,
    injectdata: Stub::STUB,
};

/// `fi_endpoint`. The endpoint begins here, so its name is known before it is enabled.
pub(crate) unsafe extern "C" fn open<P: Provider>(
    domain: *mut sys::fid_domain,
    info: *mut sys::fi_info,
    endpoint: *mut *mut sys::fid_ep,
    context: *mut c_void,
) -> c_int {
    enter(|| {
        if info.is_null() || endpoint.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives a domain, and what fi_getinfo(3) gave, maybe changed.
        let (domain, wanted) = unsafe { (domain_of::<P>(domain)?, hints::read(info)) };
        let opened = P::endpoint(&domain.fabric.settings, &domain.own, &wanted)?;
        let caps = opened.bound().opened.caps;
        let key = domain.lock().add_endpoint(opened)?;
        let has = |cap: u64| domain.keys.is_some() && caps & cap != 0;
        let rma = has(sys::FI_RMA).then(rma::functions::<P>).or(P::RMA);
        let atomic = has(sys::FI_ATOMIC).then(atomic::functions::<P>).or(P::ATOMIC);
        let has_messages = !P::IS_TAGGED_ALONE;
        let object = sys::fid_ep {
            fid: head(sys::FI_CLASS_EP, context, head_functions::<P>()),
            ops: table(functions::<P>()),
            cm: table(names::<P>()),
            msg: table(if has_messages { msg::functions::<P>() } else { &NO_MESSAGES }),
            // Programs that ask for none of these don't call them.
            rma: rma.map_or(std::ptr::null_mut(), table),
            tagged: table(tagged::functions::<P>()),
            atomic: atomic.map_or(std::ptr::null_mut(), table),
            collective: P::COLLECTIVE.map_or(std::ptr::null_mut(), table),
        };
        // SAFETY: the caller gives a place for the endpoint.
        unsafe { *endpoint = EndpointHandle::<P>::into_raw(object, domain, key) };
        Ok(())
    })
}

/// `fi_endpoint2`.
pub(crate) unsafe extern "C" fn open2<P: Provider>(
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
    unsafe { open::<P>(domain, info, endpoint, context) }
}

/// `fi_close`: blocks until the peers have what the endpoint has accepted, for a limited time.
/// Receives that are posted end without an entry.
unsafe extern "C" fn close<P: Provider>(fid: *mut sys::fid) -> c_int {
    enter(|| {
        // SAFETY: the caller closes an endpoint.
        let handle = unsafe { EndpointHandle::<P>::of(fid.cast()) };
        let began = Instant::now();
        loop {
            let mut state = handle.domain.lock();
            let (endpoint, mut sinks) = state.endpoint(handle.key)?;
            if endpoint.may_close(&mut sinks, began.elapsed()) {
                break;
            }
            drop(state);
            std::thread::yield_now();
        }
        // SAFETY: as above.
        unsafe { EndpointHandle::<P>::close(fid, State::close_endpoint) }
    })
}

/// `fi_ep_bind`: to an address vector, completion queues, counters and an event queue.
unsafe extern "C" fn bind<P: Provider>(
    fid: *mut sys::fid,
    other: *mut sys::fid,
    flags: u64,
) -> c_int {
    enter(|| {
        if other.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives an endpoint and another object, whose class says what it is.
        let (handle, class) = unsafe { (EndpointHandle::<P>::of(fid.cast()), (*other).fclass) };
        let domain = &handle.domain;
        let key = handle.key;
        let same = |of: &Arc<_>| if Arc::ptr_eq(of, domain) { Ok(()) } else { Err(Errno::DOMAIN) };
        // SAFETY: as above.
        unsafe {
            match class {
                sys::FI_CLASS_AV => {
                    let vector = VectorHandle::<P>::of(other.cast());
                    same(&vector.domain)?;
                    if flags & !sys::FI_SYMMETRIC != 0 {
                        return Err(Errno::BAD_FLAGS);
                    }
                    domain.lock().bind_vector(key, vector.key)
                }
                sys::FI_CLASS_CQ => {
                    let queue = cq::of::<P>(other.cast());
                    same(&queue.domain)?;
                    domain.lock().bind_queue(key, queue.key, flags)
                }
                sys::FI_CLASS_CNTR if !P::IS_TAGGED_ALONE => {
                    let counter = CounterHandle::<P>::of(other.cast());
                    same(&counter.domain)?;
                    domain.lock().bind_counter(key, counter.key, flags)
                }
                // An endpoint has no events.
                sys::FI_CLASS_EQ if flags == 0 && !P::IS_TAGGED_ALONE => {
                    let bound = eq::bound_to(other.cast(), &domain.fabric)?;
                    let mut state = domain.lock();
                    closed(state.endpoints.get_mut(key))?.bound_mut().events.push(bound);
                    Ok(())
                }
                _ => Err(Errno::INVALID),
            }
        }
    })
}

/// `fi_control`: `FI_ENABLE`, and the default flags of operations.
unsafe extern "C" fn control<P: Provider>(
    fid: *mut sys::fid,
    command: c_int,
    argument: *mut c_void,
) -> c_int {
    enter(|| {
        // SAFETY: the caller gives an endpoint.
        let handle = unsafe { EndpointHandle::<P>::of(fid.cast()) };
        let mut state = handle.domain.lock();
        match command {
            sys::FI_ENABLE => state.enable(handle.key),
            sys::FI_GETOPSFLAG | sys::FI_SETOPSFLAG if !argument.is_null() => {
                let (endpoint, _) = state.endpoint(handle.key)?;
                // SAFETY: for these commands the argument is a number.
                let flags = unsafe { &mut *argument.cast::<u64>() };
                let opened = &mut endpoint.bound_mut().opened;
                let (kept, may) = match *flags & (sys::FI_TRANSMIT | sys::FI_RECV) {
                    sys::FI_TRANSMIT => (&mut opened.send_flags, P::SEND_FLAGS),
                    sys::FI_RECV => (&mut opened.receive_flags, P::RECEIVE_FLAGS),
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
unsafe extern "C" fn cancel<P: Provider>(fid: *mut sys::fid, context: *mut c_void) -> isize {
    enter(|| {
        // SAFETY: the caller gives an endpoint.
        unsafe {
            with_endpoint::<P, _>(fid.cast(), |endpoint, sinks| {
                endpoint.cancel(sinks, context as usize)
            })
        }
    })
}

/// `fi_getopt`: `FI_OPT_MIN_MULTI_RECV`.
unsafe extern "C" fn getopt<P: Provider>(
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
            let minimum =
                with_endpoint::<P, _>(fid.cast(), |endpoint, _| Ok(endpoint.bound().multi_min))?;
            if length.replace(size_of::<usize>()) < size_of::<usize>() {
                return Err(Errno::TOO_SMALL);
            }
            value.cast::<usize>().write_unaligned(minimum);
        }
        Ok(())
    })
}

/// `fi_setopt`: `FI_OPT_MIN_MULTI_RECV`.
unsafe extern "C" fn setopt<P: Provider>(
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
            with_endpoint::<P, _>(fid.cast(), |endpoint, _| {
                endpoint.bound_mut().multi_min = minimum;
                Ok(())
            })
        }
    })
}

/// `fi_getname`.
unsafe extern "C" fn getname<P: Provider>(
    fid: *mut sys::fid,
    to: *mut c_void,
    room: *mut usize,
) -> c_int {
    count(|| {
        // SAFETY: the caller gives an endpoint, memory and its length.
        unsafe {
            let address = with_endpoint::<P, _>(fid.cast(), |endpoint, _| Ok(endpoint.address()))?;
            let name = P::name(&address).ok_or(Errno::OTHER)?;
            av::copy_name(&name, to, room).map(|()| 0)
        }
    })
}
