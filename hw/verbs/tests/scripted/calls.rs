//! The functions of libibverbs. The conditions are those of their manual pages.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

use tagmatch_rdma_core_sys as sys;

use super::{OBJECTS, Qp, traffic, with};

/// Makes an object that [`free`] frees.
fn made<T>(object: T) -> *mut T {
    OBJECTS.set(OBJECTS.get() + 1);
    Box::into_raw(Box::new(object))
}

/// # Safety
/// [`made`] has made the object, and it isn't used any more.
unsafe fn free<T>(object: *mut T) -> i32 {
    OBJECTS.set(OBJECTS.get() - 1);
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(object) });
    0
}

/// The error of this call, if it is the one that fails: `errno` has it, too.
pub(super) fn strike(call: &'static str) -> Option<i32> {
    let errno = with(|world| {
        let count = world.counts.entry(call).or_default();
        let number = *count;
        *count += 1;
        let failure =
            world.failure.filter(|failure| (failure.call, failure.number) == (call, number));
        let is_lacking = world.lacks_memory && call == "ibv_reg_mr";
        failure.map(|failure| failure.errno).or(is_lacking.then_some(libc::ENOMEM))
    })?;
    // SAFETY: the place of this thread's errno.
    unsafe { *libc::__errno_location() = errno };
    Some(errno)
}

fn descriptor() -> i32 {
    // SAFETY: no pointers.
    unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) }
}

unsafe extern "C" fn get_device_list(count: *mut i32) -> *mut *mut sys::ibv_device {
    if strike("ibv_get_device_list").is_some() {
        return null_mut();
    }
    let devices = |world: &mut super::World| {
        let devices = world.devices.iter_mut().map(|device| std::ptr::from_mut(&mut **device));
        devices.chain([null_mut()]).collect::<Box<[_]>>()
    };
    let devices = with(devices);
    // SAFETY: the caller's.
    unsafe { *count = devices.len() as i32 - 1 };
    Box::leak(devices).as_mut_ptr()
}

unsafe extern "C" fn free_device_list(list: *mut *mut sys::ibv_device) {
    let count = with(|world| world.devices.len()) + 1;
    // SAFETY: `get_device_list` has made it, of so many.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, count)) });
}

unsafe extern "C" fn get_device_name(device: *mut sys::ibv_device) -> *const c_char {
    // SAFETY: the device exists.
    unsafe { (*device).name.as_ptr() }
}

unsafe extern "C" fn open_device(device: *mut sys::ibv_device) -> *mut sys::ibv_context {
    if strike("ibv_open_device").is_some() {
        return null_mut();
    }
    let mut context = sys::ibv_context::zeroed();
    context.device = device;
    context.async_fd = descriptor();
    context.ops.poll_cq = Some(traffic::poll_cq);
    context.ops.req_notify_cq = Some(req_notify_cq);
    context.ops.post_srq_recv = Some(traffic::post_srq_recv);
    context.ops.post_recv = Some(traffic::post_recv);
    context.ops.post_send = Some(traffic::post_send);
    let context = made(context);
    with(|world| {
        world.contexts.push(context);
        // SAFETY: just made.
        unsafe { (*context).num_comp_vectors = world.card_of(context).vectors };
    });
    context
}

unsafe extern "C" fn close_device(context: *mut sys::ibv_context) -> i32 {
    with(|world| world.contexts.retain(|known| *known != context));
    // SAFETY: it is the caller's, and open.
    unsafe {
        libc::close((*context).async_fd);
        free(context)
    }
}

unsafe extern "C" fn query_device(
    context: *mut sys::ibv_context,
    attr: *mut sys::ibv_device_attr,
) -> i32 {
    if let Some(errno) = strike("ibv_query_device") {
        return errno;
    }
    let mut all = sys::ibv_device_attr::zeroed();
    (all.max_qp, all.max_cqe, all.max_srq_wr) = (1 << 14, 1 << 20, 1 << 14);
    (all.max_qp_rd_atom, all.max_qp_init_rd_atom, all.phys_port_cnt) = (16, 16, 1);
    all.max_srq = with(|world| world.card_of(context).srqs_max);
    if all.max_srq == 0 {
        all.max_srq_wr = 0;
    }
    // SAFETY: the caller's.
    unsafe { attr.write(all) };
    0
}

unsafe extern "C" fn query_port(
    context: *mut sys::ibv_context,
    _: u8,
    attr: *mut sys::ibv_port_attr,
) -> i32 {
    if let Some(errno) = strike("ibv_query_port") {
        return errno;
    }
    let port = with(|world| {
        let card = world.card_of(context);
        sys::ibv_port_attr { pkey_tbl_len: card.partition_keys.len() as u16, ..card.port }
    });
    // SAFETY: the caller's.
    unsafe { attr.write(port) };
    0
}

unsafe extern "C" fn query_gid(
    context: *mut sys::ibv_context,
    _: u8,
    index: i32,
    gid: *mut sys::ibv_gid,
) -> i32 {
    if strike("ibv_query_gid").is_some() {
        return -1;
    }
    let found = with(|world| world.card_of(context).gids.get(index as usize).copied());
    let Some(entry) = found else { return -1 };
    // SAFETY: the caller's.
    unsafe { gid.write(entry.gid) };
    0
}

unsafe extern "C" fn query_pkey(
    context: *mut sys::ibv_context,
    _: u8,
    index: i32,
    key: *mut u16,
) -> i32 {
    if strike("ibv_query_pkey").is_some() {
        return -1;
    }
    let found = with(|world| world.card_of(context).partition_keys.get(index as usize).copied());
    let Some(found) = found else { return -1 };
    // SAFETY: the caller's.
    unsafe { key.write(found.to_be()) };
    0
}

unsafe extern "C" fn query_gid_ex(
    context: *mut sys::ibv_context,
    _: u32,
    index: u32,
    entry: *mut sys::ibv_gid_entry,
    _: u32,
    _: usize,
) -> i32 {
    if let Some(errno) = strike("ibv_query_gid_ex") {
        return errno;
    }
    let found = with(|world| world.card_of(context).gids.get(index as usize).copied());
    let Some(found) = found else { return libc::ENODATA };
    // SAFETY: the caller's.
    unsafe { entry.write(found) };
    0
}

unsafe extern "C" fn get_async_event(
    context: *mut sys::ibv_context,
    event: *mut sys::ibv_async_event,
) -> i32 {
    let found = with(|world| {
        let at = world.async_events.iter().position(|(of, _)| *of == context)?;
        world.async_events.remove(at)
    });
    let Some((_, found)) = found else { return -1 };
    // SAFETY: the caller's.
    unsafe { event.write(found) };
    0
}

unsafe extern "C" fn ack_async_event(_: *mut sys::ibv_async_event) {}

unsafe extern "C" fn alloc_pd(context: *mut sys::ibv_context) -> *mut sys::ibv_pd {
    if strike("ibv_alloc_pd").is_some() {
        return null_mut();
    }
    made(sys::ibv_pd { context, ..sys::ibv_pd::zeroed() })
}

unsafe extern "C" fn dealloc_pd(pd: *mut sys::ibv_pd) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { free(pd) }
}

unsafe extern "C" fn reg_mr(
    pd: *mut sys::ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: i32,
) -> *mut sys::ibv_mr {
    if strike("ibv_reg_mr").is_some() {
        return null_mut();
    }
    let key = with(|world| {
        world.calls.accesses.push(access.cast_unsigned());
        world.calls.registered_bytes += length;
        world.last_number += 1;
        world.last_number
    });
    made(sys::ibv_mr { pd, addr, length, lkey: key, rkey: key, ..sys::ibv_mr::zeroed() })
}

unsafe extern "C" fn reg_mr_iova2(
    pd: *mut sys::ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> *mut sys::ibv_mr {
    assert_eq!(iova, addr.addr() as u64);
    // SAFETY: the caller's promise.
    unsafe { reg_mr(pd, addr, length, access.cast_signed()) }
}

unsafe extern "C" fn dereg_mr(mr: *mut sys::ibv_mr) -> i32 {
    with(|world| world.calls.unregistered += 1);
    // SAFETY: the caller's promise.
    unsafe { free(mr) }
}

unsafe extern "C" fn create_comp_channel(
    context: *mut sys::ibv_context,
) -> *mut sys::ibv_comp_channel {
    if strike("ibv_create_comp_channel").is_some() {
        return null_mut();
    }
    made(sys::ibv_comp_channel { context, fd: descriptor(), refcnt: 0 })
}

unsafe extern "C" fn destroy_comp_channel(channel: *mut sys::ibv_comp_channel) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        libc::close((*channel).fd);
        free(channel)
    }
}

unsafe extern "C" fn create_cq(
    context: *mut sys::ibv_context,
    _: i32,
    _: *mut c_void,
    channel: *mut sys::ibv_comp_channel,
    vector: i32,
) -> *mut sys::ibv_cq {
    if strike("ibv_create_cq").is_some() {
        return null_mut();
    }
    let cq = made(sys::ibv_cq { context, channel, ..sys::ibv_cq::zeroed() });
    with(|world| {
        world.calls.vectors.push(vector);
        world.completions.insert(cq, Default::default());
    });
    cq
}

unsafe extern "C" fn destroy_cq(cq: *mut sys::ibv_cq) -> i32 {
    with(|world| world.completions.remove(&cq));
    // SAFETY: the caller's promise.
    unsafe { free(cq) }
}

unsafe extern "C" fn req_notify_cq(_: *mut sys::ibv_cq, _: i32) -> i32 {
    if let Some(errno) = strike("ibv_req_notify_cq") {
        return errno;
    }
    0
}

unsafe extern "C" fn get_cq_event(
    _: *mut sys::ibv_comp_channel,
    _: *mut *mut sys::ibv_cq,
    _: *mut *mut c_void,
) -> i32 {
    -1
}

unsafe extern "C" fn ack_cq_events(_: *mut sys::ibv_cq, _: u32) {}

unsafe extern "C" fn create_srq(
    pd: *mut sys::ibv_pd,
    _: *mut sys::ibv_srq_init_attr,
) -> *mut sys::ibv_srq {
    if strike("ibv_create_srq").is_some() {
        return null_mut();
    }
    // SAFETY: the domain exists.
    let context = unsafe { (*pd).context };
    with(|world| {
        if world.card_of(context).srqs_max == 0 {
            return null_mut();
        }
        world.last_number += 1;
        let handle = world.last_number;
        let srq = made(sys::ibv_srq { context, pd, handle, ..sys::ibv_srq::zeroed() });
        world.receives.insert(srq, Default::default());
        srq
    })
}

unsafe extern "C" fn no_srq_call(_: *mut sys::ibv_srq, _: *mut sys::ibv_srq_attr, _: i32) -> i32 {
    libc::EOPNOTSUPP
}

unsafe extern "C" fn query_srq(_: *mut sys::ibv_srq, _: *mut sys::ibv_srq_attr) -> i32 {
    libc::EOPNOTSUPP
}

unsafe extern "C" fn destroy_srq(srq: *mut sys::ibv_srq) -> i32 {
    with(|world| world.receives.remove(&srq));
    // SAFETY: the caller's promise.
    unsafe { free(srq) }
}

unsafe extern "C" fn create_qp(
    pd: *mut sys::ibv_pd,
    attr: *mut sys::ibv_qp_init_attr,
) -> *mut sys::ibv_qp {
    if strike("ibv_create_qp").is_some() {
        return null_mut();
    }
    // SAFETY: the caller's.
    let (context, attr) = unsafe { ((*pd).context, &mut *attr) };
    with(|world| {
        let inline_max = world.card_of(context).inline_max;
        world.calls.inline_sizes.push(attr.cap.max_inline_data);
        if attr.cap.max_inline_data > inline_max {
            // As `providers/irdma/uverbs.c`.
            // SAFETY: the place of this thread's errno.
            unsafe { *libc::__errno_location() = libc::EINVAL };
            return null_mut();
        }
        world.last_number += 1;
        let mut qp = sys::ibv_qp { context, pd, ..sys::ibv_qp::zeroed() };
        (qp.send_cq, qp.recv_cq, qp.srq) = (attr.send_cq, attr.recv_cq, attr.srq);
        (qp.qp_num, qp.qp_type) = (world.last_number, attr.qp_type);
        let raw = made(qp);
        world.qps.insert(
            world.last_number,
            Qp { raw, dest: 0, failure: sys::IBV_WC_WR_FLUSH_ERR, receives: Default::default() },
        );
        raw
    })
}

unsafe extern "C" fn modify_qp(
    qp: *mut sys::ibv_qp,
    attr: *mut sys::ibv_qp_attr,
    mask: i32,
) -> i32 {
    if let Some(errno) = strike("ibv_modify_qp") {
        return errno;
    }
    // SAFETY: both are the caller's.
    let (qp, attr) = unsafe { (&mut *qp, &*attr) };
    with(|world| world.calls.changes.push((*attr, mask.cast_unsigned())));
    if mask.cast_unsigned() & sys::IBV_QP_STATE != 0 {
        qp.state = attr.qp_state;
    }
    if mask.cast_unsigned() & sys::IBV_QP_DEST_QPN != 0 {
        with(|world| world.qps.get_mut(&qp.qp_num).unwrap().dest = attr.dest_qp_num);
    }
    0
}

unsafe extern "C" fn destroy_qp(qp: *mut sys::ibv_qp) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        with(|world| {
            world.qps.remove(&(*qp).qp_num);
            world.under_way.retain(|posted| posted.from != (*qp).qp_num);
        });
        free(qp)
    }
}

unsafe extern "C" fn create_ah(
    pd: *mut sys::ibv_pd,
    attr: *mut sys::ibv_ah_attr,
) -> *mut sys::ibv_ah {
    if strike("ibv_create_ah").is_some() {
        return null_mut();
    }
    let delay = with(|world| {
        world.calls.handles += 1;
        world.handle_delay
    });
    std::thread::sleep(delay);
    let ah = made(sys::ibv_ah { pd, ..sys::ibv_ah::zeroed() });
    // SAFETY: the caller's.
    with(|world| world.handles.insert(ah, unsafe { *attr }));
    ah
}

unsafe extern "C" fn destroy_ah(ah: *mut sys::ibv_ah) -> i32 {
    with(|world| world.handles.remove(&ah));
    // SAFETY: the caller's promise.
    unsafe { free(ah) }
}

unsafe extern "C" fn wc_status_str(_: u32) -> *const c_char {
    c"a status".as_ptr()
}

/// The library, with these of its newer functions.
macro_rules! library {
    ($($optional:ident: $function:expr,)*) => {
        sys::Verbs {
            path: String::new(),
            ibv_get_device_list: get_device_list,
            ibv_free_device_list: free_device_list,
            ibv_get_device_name: get_device_name,
            ibv_open_device: open_device,
            ibv_close_device: close_device,
            ibv_query_device: query_device,
            ibv_query_port: query_port,
            ibv_query_gid: query_gid,
            ibv_query_pkey: query_pkey,
            ibv_get_async_event: get_async_event,
            ibv_ack_async_event: ack_async_event,
            ibv_alloc_pd: alloc_pd,
            ibv_dealloc_pd: dealloc_pd,
            ibv_reg_mr: reg_mr,
            ibv_dereg_mr: dereg_mr,
            ibv_create_comp_channel: create_comp_channel,
            ibv_destroy_comp_channel: destroy_comp_channel,
            ibv_create_cq: create_cq,
            ibv_destroy_cq: destroy_cq,
            ibv_get_cq_event: get_cq_event,
            ibv_ack_cq_events: ack_cq_events,
            ibv_create_srq: create_srq,
            ibv_modify_srq: no_srq_call,
            ibv_query_srq: query_srq,
            ibv_destroy_srq: destroy_srq,
            ibv_create_qp: create_qp,
            ibv_modify_qp: modify_qp,
            ibv_destroy_qp: destroy_qp,
            ibv_create_ah: create_ah,
            ibv_destroy_ah: destroy_ah,
            ibv_wc_status_str: wc_status_str,
            $($optional: $function,)*
        }
    };
}

pub(super) static NEW: sys::Verbs =
    library! { ibv_reg_mr_iova2: Some(reg_mr_iova2), _ibv_query_gid_ex: Some(query_gid_ex), };
pub(super) static OLD: sys::Verbs = library! { ibv_reg_mr_iova2: None, _ibv_query_gid_ex: None, };
