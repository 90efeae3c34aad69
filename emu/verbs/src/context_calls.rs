//! The functions in an emulated context: inline functions of `verbs.h` call them through its
//! pointers.

use std::mem::offset_of;
use std::sync::Arc;

use libc::{EINVAL, ENOMEM, EOPNOTSUPP};
use tagmatch_model::{Handle, Operation, OperationKind};
use tagmatch_rdma_core_sys::{self as sys, ibv_context, verbs_context, verbs_get_ctx_reaching};

use crate::completions::{Completions, FLAGS};
use crate::device::Device;
use crate::engine::{Engine, Segment};
use crate::error::failed;
use crate::polling;
use crate::queue_pairs;
use crate::registry;
use crate::tag_queue::TagQueue;
use crate::verbs_wire::VerbsWire;

/// Replaces the context's pointers by the functions of this file.
///
/// # Safety
/// The device's context is open, and nobody else uses it now. `Device::new` has checked how far it
/// reaches.
pub(crate) unsafe fn patch(device: &Device) {
    // SAFETY: the context is open, and reaches as far as `Device::new` has asked for.
    unsafe {
        let offset = offset_of!(verbs_context, post_srq_ops);
        let whole = verbs_get_ctx_reaching(device.context, offset);
        (*whole).query_device_ex = Some(query_device_ex);
        (*whole).create_cq_ex = Some(create_cq_ex);
        (*whole).create_srq_ex = Some(create_srq_ex);
        (*whole).post_srq_ops = Some(post_srq_ops);
        if device.original.create_qp_ex.is_some() {
            (*whole).create_qp_ex = Some(create_qp_ex);
        }
        (*whole).context.ops.post_srq_recv = Some(post_srq_recv);
        (*whole).context.ops.post_send = Some(post_send);
        (*whole).context.ops.req_notify_cq = Some(req_notify_cq);
    }
}

unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const sys::ibv_query_device_ex_input,
    attr: *mut sys::ibv_device_attr_ex,
    attr_size: usize,
) -> i32 {
    let Some(device) = registry::device(context) else { return EINVAL };
    let Some(query) = device.original.query_device_ex else { return EOPNOTSUPP };
    // SAFETY: the caller keeps the contract of this function, which is that of the one called here.
    let answer = unsafe { query(context, input, attr, attr_size) };
    let end = offset_of!(sys::ibv_device_attr_ex, tm_caps) + size_of::<sys::ibv_tm_caps>();
    if answer == 0 && attr_size >= end {
        // SAFETY: the attributes reach as far as this field.
        unsafe { (*attr).tm_caps = device.tm_caps() };
    }
    answer
}

unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut sys::ibv_cq_init_attr_ex,
) -> *mut sys::ibv_cq_ex {
    let Some(device) = registry::device(context) else { return failed(EINVAL) };
    // SAFETY: attributes as ibv_create_cq_ex(3) has them; they are as before when we return.
    unsafe {
        let flags = (*attr).wc_flags;
        if flags & !FLAGS != 0 {
            return failed(EOPNOTSUPP);
        }
        (*attr).wc_flags = flags & !sys::IBV_WC_EX_WITH_TM_INFO;
        let cq = (device.original.create_cq_ex)(context, attr);
        (*attr).wc_flags = flags;
        if !cq.is_null() {
            polling::take_over(cq, flags);
            let completions = Arc::new(Completions::new(device, cq));
            registry::write().completions.insert(cq.addr(), completions);
        }
        cq
    }
}

unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    attr: *mut sys::ibv_srq_init_attr_ex,
) -> *mut sys::ibv_srq {
    let Some(device) = registry::device(context) else { return failed(EINVAL) };
    // SAFETY: attributes as ibv_create_srq_ex(3) has them.
    unsafe {
        let is_typed = (*attr).comp_mask & sys::IBV_SRQ_INIT_ATTR_TYPE != 0;
        if !is_typed || (*attr).srq_type != sys::IBV_SRQT_TM {
            let Some(create) = device.original.create_srq_ex else { return failed(EOPNOTSUPP) };
            return create(context, attr);
        }
        // Only extended completion queues are registered here, and a tag-matching queue needs one.
        let has_cq = (*attr).comp_mask & sys::IBV_SRQ_INIT_ATTR_CQ != 0;
        let completions = has_cq.then(|| registry::completions((*attr).cq)).flatten();
        let Some(completions) = completions else { return failed(EINVAL) };
        match TagQueue::new(device, completions.event_request(), &mut *attr) {
            Ok((queue, srq)) => {
                completions.attach(queue.clone());
                registry::write().tag_queues.insert(srq.addr(), queue);
                srq
            }
            Err(errno) => failed(errno),
        }
    }
}

unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut sys::ibv_qp_init_attr_ex,
) -> *mut sys::ibv_qp {
    let Some(device) = registry::device(context) else { return failed(EINVAL) };
    let Some(create) = device.original.create_qp_ex else { return failed(EOPNOTSUPP) };
    // SAFETY: extended attributes begin as the plain ones do.
    unsafe { queue_pairs::create(&device, attr.cast(), || create(context, attr)) }
}

unsafe extern "C" fn post_srq_ops(
    srq: *mut sys::ibv_srq,
    op: *mut sys::ibv_ops_wr,
    bad_op: *mut *mut sys::ibv_ops_wr,
) -> i32 {
    let Some(queue) = registry::tag_queue(srq) else {
        // SAFETY: there is room for it.
        unsafe { *bad_op = op };
        return EINVAL;
    };
    // SAFETY: a list of requests, as ibv_post_srq_ops(3) has them, and room for one that is bad.
    queue.with(|engine| unsafe {
        // Messages that have arrived already come before this operation.
        engine.progress();
        let mut next = op;
        while let Some(request) = next.as_mut() {
            let posted = operation_of(request)
                .and_then(|(operation, segment)| engine.post_operation(operation, segment));
            match posted {
                Ok(Some(handle)) => request.tm.handle = handle,
                Ok(None) => {}
                Err(errno) => {
                    *bad_op = next;
                    return errno;
                }
            }
            next = request.next;
        }
        0
    })
}

/// The operation that a request asks for, and the buffer of the entry that it adds.
fn operation_of(request: &sys::ibv_ops_wr) -> Result<(Operation, Segment), i32> {
    let mut segment = Segment::default();
    let kind = match request.opcode {
        sys::IBV_WR_TAG_ADD => {
            let add = &request.tm.add;
            let elements = u32::try_from(add.num_sge).map_err(|_| EINVAL)?;
            if elements == 1 {
                // SAFETY: the request says that there is one.
                segment = unsafe { segment_of(add.sg_list) };
            }
            OperationKind::Add {
                recv_wr_id: add.recv_wr_id,
                tag: add.tag,
                mask: add.mask,
                elements,
                length: segment.length.into(),
            }
        }
        sys::IBV_WR_TAG_DEL => OperationKind::Delete { handle: Handle(request.tm.handle) },
        sys::IBV_WR_TAG_SYNC => OperationKind::Sync,
        _ => return Err(EINVAL),
    };
    let has_count = request.flags & sys::IBV_OPS_TM_SYNC != 0;
    let [low, high, ..] = request.tm.unexpected_cnt.to_le_bytes();
    let operation = Operation {
        wr_id: request.wr_id,
        signalled: request.flags & sys::IBV_OPS_SIGNALED != 0,
        // The NIC's count has 16 bits; mlx5 ignores the upper ones.
        unexpected_count: has_count.then(|| u16::from_le_bytes([low, high])),
        kind,
    };
    Ok((operation, segment))
}

/// # Safety
/// The element can be read.
unsafe fn segment_of(sge: *const sys::ibv_sge) -> Segment {
    // SAFETY: the caller keeps the promise of this function's Safety section.
    let sge = unsafe { *sge };
    Segment { address: sge.addr, length: sge.length, lkey: sge.lkey }
}

unsafe extern "C" fn post_srq_recv(
    srq: *mut sys::ibv_srq,
    wr: *mut sys::ibv_recv_wr,
    bad_wr: *mut *mut sys::ibv_recv_wr,
) -> i32 {
    let Some(queue) = registry::tag_queue(srq) else {
        // SAFETY: a queue of this device, which is no tag-matching one.
        return unsafe {
            let Some(device) = registry::device((*srq).context) else { return EINVAL };
            (device.original.post_srq_recv)(srq, wr, bad_wr)
        };
    };
    // SAFETY: a list of requests, as ibv_post_srq_recv(3) has them, and room for one that is bad.
    queue.with(|engine| unsafe {
        let mut next = wr;
        let mut result = 0;
        while let Some(request) = next.as_ref() {
            if let Err(errno) = post_one(engine, request) {
                *bad_wr = next;
                result = errno;
                break;
            }
            next = request.next;
        }
        engine.refill();
        result
    })
}

/// # Safety
/// The request's elements can be read, if there are at most as many as the queue allows.
unsafe fn post_one(engine: &mut Engine<VerbsWire>, request: &sys::ibv_recv_wr) -> Result<(), i32> {
    let elements = usize::try_from(request.num_sge).map_err(|_| EINVAL)?;
    if elements > engine.elements_max() {
        return Err(EINVAL);
    }
    // SAFETY: the caller keeps the promise of this function's Safety section.
    let segments = (0..elements).map(|at| unsafe { segment_of(request.sg_list.add(at)) });
    engine.post_receive(request.wr_id, segments)
}

/// Refuses to send on a queue pair that was made without a send queue: the one that it has is the
/// NIC's.
unsafe extern "C" fn post_send(
    qp: *mut sys::ibv_qp,
    wr: *mut sys::ibv_send_wr,
    bad_wr: *mut *mut sys::ibv_send_wr,
) -> i32 {
    // SAFETY: a queue pair of this device; the arguments are the caller's, who keeps the contract.
    unsafe {
        let Some(device) = registry::device_to_send_on(qp) else {
            *bad_wr = wr;
            return ENOMEM;
        };
        (device.original.post_send)(qp, wr, bad_wr)
    }
}

unsafe extern "C" fn req_notify_cq(cq: *mut sys::ibv_cq, solicited_only: i32) -> i32 {
    if let Some(completions) = registry::completions(cq) {
        return completions.arm(solicited_only);
    }
    // SAFETY: a queue of an emulated device; the arguments are the caller's, who keeps the
    // contract.
    unsafe {
        let Some(device) = registry::device((*cq).context) else { return EINVAL };
        (device.original.req_notify_cq)(cq, solicited_only)
    }
}
