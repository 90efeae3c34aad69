//! The functions of libibverbs that a program calls by name, as they stand in the table.
//!
//! Each has the contract of the manual page of its name, and passes calls on objects that aren't
//! emulated on.

use std::ffi::c_void;

use libc::{EBUSY, EOPNOTSUPP};
use tagmatch_os::notice;
use tagmatch_rdma_core_sys::{self as sys, Verbs, ibv_context};

use crate::enable::{enable, forget};
use crate::queue_pairs;
use crate::regions::KeyedRegion;
use crate::registry;
use crate::settings::Settings;

/// The real libibverbs. It has been loaded: the caller has an object of it, or a table that was
/// made from it.
fn below() -> &'static Verbs {
    match Verbs::get() {
        Ok(verbs) => verbs,
        Err(error) => {
            notice::tell(&format!("tagmatch-emu: {error}"));
            std::process::abort()
        }
    }
}

/// Emulates a context that was opened. A device that can't be emulated is left as it is, with a
/// line on standard error.
///
/// # Safety
/// Null, or a context that was just opened.
unsafe fn opened(context: *mut ibv_context) -> *mut ibv_context {
    if context.is_null() {
        return context;
    }
    // SAFETY: just opened.
    let enabled = unsafe { enable(context, Settings::default()) };
    if let Err(error) = enabled {
        notice::tell(&format!("tagmatch-emu: no tag matching on this device: {error}"));
    }
    context
}

/// # Safety
/// As `ibv_open_device(3)` says.
unsafe extern "C" fn ibv_open_device(device: *mut sys::ibv_device) -> *mut ibv_context {
    // SAFETY: the caller keeps the contract of this function, which is that of the one called here.
    unsafe { opened((below().ibv_open_device)(device)) }
}

/// # Safety
/// As `ibv_close_device(3)` says.
unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> i32 {
    forget(context);
    // SAFETY: the caller keeps the contract of this function, which is that of the one called here.
    unsafe { (below().ibv_close_device)(context) }
}

/// # Safety
/// As `ibv_create_qp(3)` says.
unsafe extern "C" fn ibv_create_qp(
    pd: *mut sys::ibv_pd,
    attr: *mut sys::ibv_qp_init_attr,
) -> *mut sys::ibv_qp {
    // SAFETY: the caller keeps the contract of this function, which is that of the one called here.
    unsafe {
        let make = || (below().ibv_create_qp)(pd, attr);
        match registry::device((*pd).context) {
            Some(device) => queue_pairs::create(&device, attr, make),
            None => make(),
        }
    }
}

/// # Safety
/// As `ibv_modify_qp(3)` says.
unsafe extern "C" fn ibv_modify_qp(
    qp: *mut sys::ibv_qp,
    attr: *mut sys::ibv_qp_attr,
    mask: i32,
) -> i32 {
    // SAFETY: the caller keeps the contract of this function, which is that of the one called here.
    unsafe {
        match registry::queue_pair(qp) {
            Some(pair) => queue_pairs::modify(&pair, qp, attr, mask),
            None => (below().ibv_modify_qp)(qp, attr, mask),
        }
    }
}

/// # Safety
/// As `ibv_destroy_qp(3)` says.
unsafe extern "C" fn ibv_destroy_qp(qp: *mut sys::ibv_qp) -> i32 {
    // SAFETY: the caller keeps the contract of this function, which is that of the one called here.
    unsafe {
        match registry::queue_pair(qp) {
            Some(pair) => queue_pairs::destroy(&pair, qp),
            None => (below().ibv_destroy_qp)(qp),
        }
    }
}

/// # Safety
/// As `ibv_destroy_cq(3)` says.
unsafe extern "C" fn ibv_destroy_cq(cq: *mut sys::ibv_cq) -> i32 {
    let registered = registry::completions(cq);
    if registered.is_some_and(|completions| completions.is_used()) {
        return EBUSY;
    }
    // Removed first: once it is destroyed, a new object may have the same address.
    let registered = registry::take_completions(cq);
    // SAFETY: the caller keeps the contract of this function, which is that of the one called here.
    let answer = unsafe { (below().ibv_destroy_cq)(cq) };
    if answer != 0 {
        registry::write().completions.extend(registered.map(|queue| (cq.addr(), queue)));
    }
    answer
}

/// # Safety
/// As `ibv_destroy_srq(3)` says.
unsafe extern "C" fn ibv_destroy_srq(srq: *mut sys::ibv_srq) -> i32 {
    // Removed first: once it is destroyed, a new object may have the same address.
    let Some(queue) = registry::write().tag_queues.remove(&srq.addr()) else {
        // SAFETY: the caller keeps the contract of this function, which is that of the one called
        // here.
        return unsafe { (below().ibv_destroy_srq)(srq) };
    };
    if let Err(errno) = queue.destroy() {
        registry::write().tag_queues.insert(srq.addr(), queue);
        return errno;
    }
    if let Some(completions) = registry::completions_at(queue.reports_to) {
        completions.detach(&queue);
    }
    0
}

/// Refuses changes of a tag-matching queue: the NIC has no limit event, and can't be resized.
///
/// # Safety
/// As `ibv_modify_srq(3)` says.
unsafe extern "C" fn ibv_modify_srq(
    srq: *mut sys::ibv_srq,
    attr: *mut sys::ibv_srq_attr,
    mask: i32,
) -> i32 {
    if registry::tag_queue(srq).is_some() {
        return EOPNOTSUPP;
    }
    // SAFETY: the caller keeps the contract of this function, which is that of the one called here.
    unsafe { (below().ibv_modify_srq)(srq, attr, mask) }
}

/// # Safety
/// As `ibv_query_srq(3)` says.
unsafe extern "C" fn ibv_query_srq(srq: *mut sys::ibv_srq, attr: *mut sys::ibv_srq_attr) -> i32 {
    // SAFETY: there is room for it; the arguments are the caller's, who keeps the contract.
    unsafe {
        let Some(queue) = registry::tag_queue(srq) else {
            return (below().ibv_query_srq)(srq, attr);
        };
        attr.write(queue.attr);
    }
    0
}

/// Records a registration.
///
/// # Safety
/// Null, or a registration that was just made.
unsafe fn registered(mr: *mut sys::ibv_mr, access: u32) -> *mut sys::ibv_mr {
    // SAFETY: the caller keeps the promise of this function's Safety section.
    let Some(made) = (unsafe { mr.as_ref() }) else { return mr };
    if let Some(device) = registry::device(made.context) {
        let region = KeyedRegion {
            address: made.addr.expose_provenance(),
            length: made.length,
            domain: made.pd.addr(),
            is_writable: access & sys::IBV_ACCESS_LOCAL_WRITE != 0,
        };
        device.regions.insert(made.lkey, region);
    }
    mr
}

/// # Safety
/// As `ibv_reg_mr(3)` says.
unsafe extern "C" fn ibv_reg_mr(
    pd: *mut sys::ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: i32,
) -> *mut sys::ibv_mr {
    // SAFETY: the caller keeps the contract of this function, which is that of the one called here.
    unsafe {
        let mr = (below().ibv_reg_mr)(pd, addr, length, access);
        registered(mr, access.cast_unsigned())
    }
}

/// # Safety
/// As `ibv_dereg_mr(3)` says.
unsafe extern "C" fn ibv_dereg_mr(mr: *mut sys::ibv_mr) -> i32 {
    // SAFETY: the registration is alive; the arguments are the caller's, who keeps the contract.
    unsafe {
        let lkey = (*mr).lkey;
        let device = registry::device((*mr).context);
        // Removed first: once it is deregistered, a new registration may have the same key.
        let before = device.as_ref().and_then(|device| device.regions.remove(lkey));
        let answer = (below().ibv_dereg_mr)(mr);
        if let Some((device, region)) = device.zip(before).filter(|_| answer != 0) {
            device.regions.insert(lkey, region);
        }
        answer
    }
}

/// A copy of the library's table, with the functions of this file in it.
pub(crate) fn table(below: &Verbs) -> Verbs {
    let mut table = below.clone();
    table.ibv_open_device = ibv_open_device;
    table.ibv_close_device = ibv_close_device;
    table.ibv_create_qp = ibv_create_qp;
    table.ibv_modify_qp = ibv_modify_qp;
    table.ibv_destroy_qp = ibv_destroy_qp;
    table.ibv_destroy_cq = ibv_destroy_cq;
    table.ibv_destroy_srq = ibv_destroy_srq;
    table.ibv_modify_srq = ibv_modify_srq;
    table.ibv_query_srq = ibv_query_srq;
    table.ibv_reg_mr = ibv_reg_mr;
    // soft-RoCE has no optional accesses.
    table.ibv_reg_mr_iova2 = None;
    table.ibv_dereg_mr = ibv_dereg_mr;
    table
}
