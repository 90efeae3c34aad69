//! The header's inline functions. Each calls through a pointer of its object.
//!
//! If the pointer is null, C would call through null. The functions here return `EOPNOTSUPP`, set
//! `errno` to it, or return zero if they read a field of a completion.
//!
//! # Safety
//! For every function here: objects are alive, and belong to the context that they came from. The
//! conditions of the manual page with the same name hold. Work requests, and the lists that they
//! point to, are valid during the call. Memory that the function writes to is writable.

use std::ffi::c_void;
use std::ptr::null_mut;

use libc::{EINVAL, ENOSYS, EOPNOTSUPP};

use crate::attributes::{
    ibv_device_attr_ex, ibv_gid_entry, ibv_port_attr, ibv_query_device_ex_input,
};
use crate::completions::{
    ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc, ibv_wc_opcode, ibv_wc_tm_info,
};
use crate::context::ibv_context;
use crate::load::Verbs;
use crate::queues::{
    IBV_ACCESS_OPTIONAL_RANGE, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_BASIC,
    ibv_mr, ibv_ops_wr, ibv_pd, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_srq_init_attr_ex,
};
use crate::verbs_get_ctx_op;

/// Returns null and sets `errno` to `EOPNOTSUPP`.
fn unsupported<T>() -> *mut T {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = EOPNOTSUPP };
    null_mut()
}

/// Declares functions that call through `ops` of the object's context.
macro_rules! through_ops {
    ($($name:ident($object:ident: $type:ty $(, $argument:ident: $argument_type:ty)*) = $op:ident,
        else $none:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "(3)`.")]
        ///
        /// # Safety
        /// As [the module](self) says.
        #[inline]
        pub unsafe fn $name($object: $type $(, $argument: $argument_type)*) -> i32 {
            // SAFETY: the object and its context are alive. The caller keeps the other conditions.
            unsafe {
                match (*(*$object).context).ops.$op {
                    Some(call) => call($object $(, $argument)*),
                    None => $none,
                }
            }
        }
    )*};
}

through_ops! {
    ibv_poll_cq(cq: *mut ibv_cq, num_entries: i32, wc: *mut ibv_wc) = poll_cq, else -EOPNOTSUPP;
    ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: i32) = req_notify_cq, else EOPNOTSUPP;
    ibv_post_srq_recv(
        srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr
    ) = post_srq_recv, else EOPNOTSUPP;
    ibv_post_send(
        qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr
    ) = post_send, else EOPNOTSUPP;
    ibv_post_recv(
        qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr
    ) = post_recv, else EOPNOTSUPP;
}

/// `ibv_query_device_ex(3)`. Attributes that the context doesn't report are zero.
///
/// # Safety
/// As [the module](self) says.
pub unsafe fn ibv_query_device_ex(
    verbs: &Verbs,
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
) -> i32 {
    // SAFETY: the caller keeps the conditions.
    unsafe {
        if !input.is_null() && (*input).comp_mask != 0 {
            return EINVAL;
        }
        if let Some(query) = verbs_get_ctx_op!(context, query_device_ex) {
            let result = query(context, input, attr, size_of::<ibv_device_attr_ex>());
            if result != EOPNOTSUPP && result != ENOSYS {
                return result;
            }
        }
        attr.write(ibv_device_attr_ex::zeroed());
        (verbs.ibv_query_device)(context, &raw mut (*attr).orig_attr)
    }
}

/// `ibv_query_port(3)`. Attributes that the context doesn't report are zero.
///
/// # Safety
/// As [the module](self) says.
pub unsafe fn ibv_query_port(
    verbs: &Verbs,
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
) -> i32 {
    // SAFETY: the caller keeps the conditions. The exported function fills all but the last fields.
    unsafe {
        if let Some(query) = verbs_get_ctx_op!(context, query_port) {
            return query(context, port_num, attr, size_of::<ibv_port_attr>());
        }
        attr.write(ibv_port_attr::zeroed());
        (verbs.ibv_query_port)(context, port_num, attr)
    }
}

/// `ibv_query_gid_ex(3)`, whose flags are 0. Libraries older than rdma-core 32 give `EOPNOTSUPP`.
///
/// # Safety
/// As [the module](self) says.
pub unsafe fn ibv_query_gid_ex(
    verbs: &Verbs,
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: *mut ibv_gid_entry,
) -> i32 {
    // SAFETY: the caller keeps the conditions.
    verbs._ibv_query_gid_ex.map_or(EOPNOTSUPP, |query| unsafe {
        query(context, port_num, gid_index, entry, 0, size_of::<ibv_gid_entry>())
    })
}

/// `ibv_reg_mr(3)`. Libraries older than rdma-core 28 know no optional accesses, and register the
/// memory without them.
///
/// # Safety
/// As [the module](self) says. The memory stays mapped until the region is gone.
pub unsafe fn ibv_reg_mr(
    verbs: &Verbs,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: u32,
) -> *mut ibv_mr {
    let optional = access & IBV_ACCESS_OPTIONAL_RANGE;
    // SAFETY: the caller keeps the conditions.
    unsafe {
        match verbs.ibv_reg_mr_iova2.filter(|_| optional != 0) {
            Some(register) => register(pd, addr, length, addr.expose_provenance() as u64, access),
            None => (verbs.ibv_reg_mr)(pd, addr, length, (access & !optional).cast_signed()),
        }
    }
}

/// `ibv_create_cq_ex(3)`.
///
/// # Safety
/// As [the module](self) says.
pub unsafe fn ibv_create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: the caller keeps the conditions.
    unsafe {
        match verbs_get_ctx_op!(context, create_cq_ex) {
            Some(create) => create(context, attr),
            None => unsupported(),
        }
    }
}

/// `ibv_create_srq_ex(3)`. If the attributes name only the protection domain and the basic type,
/// `ibv_create_srq` creates the queue, or else the context does.
///
/// # Safety
/// As [the module](self) says.
pub unsafe fn ibv_create_srq_ex(
    verbs: &Verbs,
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the caller keeps the conditions. The extended attributes begin like the plain ones.
    unsafe {
        let mask = (*attr).comp_mask;
        let is_more = mask & !(IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE) != 0;
        let is_basic = mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || (*attr).srq_type == IBV_SRQT_BASIC;
        if !is_more && mask & IBV_SRQ_INIT_ATTR_PD != 0 && is_basic {
            return (verbs.ibv_create_srq)((*attr).pd, attr.cast());
        }
        match verbs_get_ctx_op!(context, create_srq_ex) {
            Some(create) => create(context, attr),
            None => unsupported(),
        }
    }
}

/// `ibv_post_srq_ops(3)`.
///
/// # Safety
/// As [the module](self) says. The tagged buffers of additions stay registered, and nothing else
/// uses them, until they are matched or deleted.
#[inline]
pub unsafe fn ibv_post_srq_ops(
    srq: *mut ibv_srq,
    op: *mut ibv_ops_wr,
    bad_op: *mut *mut ibv_ops_wr,
) -> i32 {
    // SAFETY: the caller keeps the conditions.
    unsafe {
        match verbs_get_ctx_op!((*srq).context, post_srq_ops) {
            Some(post) => post(srq, op, bad_op),
            None => {
                *bad_op = op;
                EOPNOTSUPP
            }
        }
    }
}

/// `ibv_start_poll(3)`: `ENOENT` if there is no completion. After 0, [`ibv_end_poll`] must follow.
///
/// # Safety
/// As [the module](self) says.
#[inline]
pub unsafe fn ibv_start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> i32 {
    // SAFETY: the caller keeps the conditions.
    unsafe { (*cq).start_poll.map_or(EOPNOTSUPP, |start| start(cq, attr)) }
}

/// `ibv_end_poll(3)`, after [`ibv_start_poll`] returned 0.
///
/// # Safety
/// As [the module](self) says.
#[inline]
pub unsafe fn ibv_end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: the caller keeps the conditions.
    unsafe {
        if let Some(end) = (*cq).end_poll {
            end(cq);
        }
    }
}

/// Declares functions that read a field of an extended completion queue's current completion.
macro_rules! readers {
    ($($name:ident -> $type:ty = $field:ident;)*) => {$(
        #[doc = concat!("`", stringify!($name), "(3)`: a field of the current completion.")]
        /// Zero if the queue was created without this field.
        ///
        /// # Safety
        /// As [the module](self) says. Polling has been started, and hasn't ended.
        #[inline]
        pub unsafe fn $name(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: the caller keeps the conditions.
            unsafe { (*cq).$field.map_or(0, |read| read(cq)) }
        }
    )*};
}

readers! {
    ibv_wc_read_opcode -> ibv_wc_opcode = read_opcode;
    ibv_wc_read_byte_len -> u32 = read_byte_len;
    ibv_wc_read_imm_data -> u32 = read_imm_data;
    ibv_wc_read_qp_num -> u32 = read_qp_num;
    ibv_wc_read_src_qp -> u32 = read_src_qp;
    ibv_wc_read_wc_flags -> u32 = read_wc_flags;
    ibv_wc_read_slid -> u32 = read_slid;
}

/// `ibv_wc_read_tm_info(3)`: a field of the current completion. Zero if the queue was created
/// without this field.
///
/// # Safety
/// As [the module](self) says. Polling has been started, and hasn't ended.
#[inline]
pub unsafe fn ibv_wc_read_tm_info(cq: *mut ibv_cq_ex) -> ibv_wc_tm_info {
    let mut info = ibv_wc_tm_info::zeroed();
    // SAFETY: the caller keeps the conditions.
    unsafe {
        if let Some(read) = (*cq).read_tm_info {
            read(cq, &raw mut info);
        }
    }
    info
}
