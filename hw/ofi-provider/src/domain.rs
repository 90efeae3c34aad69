//! The functions of a domain: fi_domain(3), fi_mr(3).

use std::ffi::{c_int, c_void};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, enter, head, table};
use tagmatch_ofi_sys::stub::{Stub, closable};

use crate::handle::{DomainObject, FabricObject, domain_of};
use crate::parent::{Domain, RegionKeys};
use crate::policy::Provider;
use crate::{atomic, av, cntr, cq, ep, eq, hints, mr};

/// `ONE_SIDED`: endpoints of the domain may have one-sided operations.
const fn functions<P: Provider, const ONE_SIDED: bool>() -> &'static sys::fi_ops_domain {
    const {
        &sys::fi_ops_domain {
            size: size_of::<sys::fi_ops_domain>(),
            av_open: Some(av::open::<P>),
            cq_open: Some(cq::open::<P>),
            endpoint: Some(ep::open::<P>),
            scalable_ep: Stub::STUB,
            cntr_open: if P::IS_TAGGED_ALONE { Stub::STUB } else { Some(cntr::open::<P>) },
            poll_open: Stub::STUB,
            stx_ctx: Stub::STUB,
            srx_ctx: Stub::STUB,
            query_atomic: if ONE_SIDED { Some(atomic::query::<P>) } else { Stub::STUB },
            query_collective: Stub::STUB,
            endpoint2: Some(ep::open2::<P>),
        }
    }
}

const fn head_functions<P: Provider>() -> &'static sys::fi_ops {
    const {
        &sys::fi_ops {
            bind: Some(bind::<P>),
            control: if P::CONTROLS_DOMAINS { Some(control::<P>) } else { Stub::STUB },
            ..closable(close::<P>)
        }
    }
}

/// `fi_domain`.
///
/// # Safety
/// As fi_domain(3) asks.
pub(crate) unsafe fn open<P: Provider>(
    fabric: *mut sys::fid_fabric,
    info: *mut sys::fi_info,
    domain: *mut *mut sys::fid_domain,
    context: *mut c_void,
) -> Result<()> {
    if info.is_null() || domain.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller gives a fabric.
    let fabric = unsafe { FabricObject::<P>::of(fabric) };
    if fabric.is_closed.load(Ordering::Relaxed) {
        return Err(Errno::CLOSED);
    }
    // SAFETY: the caller gives what fi_getinfo(3) gave, maybe changed.
    let wanted = unsafe { hints::read(info) }.domain;
    let is_automatic = P::CONSTANTS.has_auto_progress
        && wanted.is_some_and(|domain| domain.data_progress == sys::FI_PROGRESS_AUTO);
    let is_shared =
        is_automatic || wanted.is_none_or(|domain| domain.threading != sys::FI_THREAD_DOMAIN);
    let mode = wanted.map_or(0, |domain| domain.mr_mode);
    let keys = P::has_one_sided(&fabric.settings).then(|| RegionKeys::new(mode));
    let functions = if keys.is_some() { functions::<P, true>() } else { functions::<P, false>() };
    let object = sys::fid_domain {
        fid: head(sys::FI_CLASS_DOMAIN, context, head_functions::<P>()),
        ops: table(functions),
        mr: table(mr::functions::<P>()),
    };
    let inner = Domain::new(fabric.clone(), keys, is_shared);
    if is_automatic {
        inner.start_progress()?;
    }
    fabric.children.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller gives a place for the domain.
    unsafe { *domain = DomainObject::into_raw(object, inner) };
    Ok(())
}

unsafe extern "C" fn close<P: Provider>(fid: *mut sys::fid) -> c_int {
    enter(|| {
        // SAFETY: the caller closes a domain.
        let domain = unsafe { domain_of::<P>(fid.cast())? };
        if domain.regions.load(Ordering::Relaxed) > 0 || !domain.lock().is_empty() {
            return Err(Errno::BUSY);
        }
        domain.is_closed.store(true, Ordering::Relaxed);
        domain.end_progress();
        domain.events.lock().unwrap_or_else(PoisonError::into_inner).clear();
        domain.fabric.children.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: it was not closed before.
        unsafe { DomainObject::<P>::close(fid) };
        Ok(())
    })
}

/// An event queue may be bound to a domain, for asynchronous operations, of which there are none.
unsafe extern "C" fn bind<P: Provider>(
    fid: *mut sys::fid,
    queue: *mut sys::fid,
    flags: u64,
) -> c_int {
    enter(|| {
        if queue.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives a domain and an object.
        let (domain, class) = unsafe { (domain_of::<P>(fid.cast())?, (*queue).fclass) };
        if class != sys::FI_CLASS_EQ || flags != 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: the class says that it is an event queue.
        let bound = unsafe { eq::bound_to(queue.cast(), &domain.fabric)? };
        domain.events.lock().unwrap_or_else(PoisonError::into_inner).push(bound);
        Ok(())
    })
}

/// `fi_control`: commands that one provider has.
unsafe extern "C" fn control<P: Provider>(
    fid: *mut sys::fid,
    command: c_int,
    argument: *mut c_void,
) -> c_int {
    enter(|| {
        // SAFETY: the caller gives a domain.
        let domain = unsafe { domain_of::<P>(fid.cast())? };
        // SAFETY: the caller gives the argument that the command asks for.
        unsafe { P::control(&domain.fabric.settings, &domain.own, command, argument) }
    })
}
