//! Devices and contexts, and the rule by which an extended context says which calls it has.

use std::ffi::c_void;
use std::mem::offset_of;

use libc::{c_char, pthread_mutex_t};
use tagmatch_sys::structures;

use crate::attributes::{ibv_device_attr_ex, ibv_port_attr, ibv_query_device_ex_input};
use crate::completions::{ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_wc};
use crate::queues::{
    ibv_ops_wr, ibv_qp, ibv_qp_init_attr_ex, ibv_recv_wr, ibv_send_wr, ibv_srq,
    ibv_srq_init_attr_ex,
};

/// The place of a function that isn't declared here.
pub type Unused = Option<unsafe extern "C" fn()>;

structures! {
    CONTEXT from "infiniband/verbs.h":

    /// a device; its first 16 bytes are obsolete.
    664 struct ibv_device {
        0 _ops: [Unused; 2],
        16 node_type: i32,
        20 transport_type: i32,
        24 name: [c_char; 64],
        88 dev_name: [c_char; 64],
        152 dev_path: [c_char; 256],
        408 ibdev_path: [c_char; 256],
    }

    /// the functions that the header's inline functions call. Exported functions don't use them.
    256 struct ibv_context_ops {
        0 _compat_query_device: Unused,
        8 _compat_query_port: Unused,
        16 _compat_alloc_pd: Unused,
        24 _compat_dealloc_pd: Unused,
        32 _compat_reg_mr: Unused,
        40 _compat_rereg_mr: Unused,
        48 _compat_dereg_mr: Unused,
        56 alloc_mw: Unused,
        64 bind_mw: Unused,
        72 dealloc_mw: Unused,
        80 _compat_create_cq: Unused,
        88 poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32>,
        96 req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, i32) -> i32>,
        104 _compat_cq_event: Unused,
        112 _compat_resize_cq: Unused,
        120 _compat_destroy_cq: Unused,
        128 _compat_create_srq: Unused,
        136 _compat_modify_srq: Unused,
        144 _compat_query_srq: Unused,
        152 _compat_destroy_srq: Unused,
        160 post_srq_recv: Option<
            unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32,
        >,
        168 _compat_create_qp: Unused,
        176 _compat_query_qp: Unused,
        184 _compat_modify_qp: Unused,
        192 _compat_destroy_qp: Unused,
        200 post_send: Option<
            unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> i32,
        >,
        208 post_recv: Option<
            unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32,
        >,
        216 _compat_create_ah: Unused,
        224 _compat_destroy_ah: Unused,
        232 _compat_attach_mcast: Unused,
        240 _compat_detach_mcast: Unused,
        248 _compat_async_event: Unused,
    }

    /// an open device.
    328 struct ibv_context {
        0 device: *mut ibv_device,
        8 ops: ibv_context_ops,
        264 cmd_fd: i32,
        268 async_fd: i32,
        272 num_comp_vectors: i32,
        280 mutex: pthread_mutex_t,
        320 abi_compat: *mut c_void,
    }
}

/// The extended context around an [`ibv_context`], as of rdma-core 44.
///
/// Later versions add fields at its front, so only the distances from its end are fixed, and the
/// context of another version may be shorter or longer. Use
/// [`verbs_get_ctx_op!`](crate::verbs_get_ctx_op) to read its fields.
#[repr(C)]
pub struct verbs_context {
    pub query_port:
        Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> i32>,
    pub advise_mr: Unused,
    pub alloc_null_mr: Unused,
    pub counters: [Unused; 4],
    pub dm: [Unused; 3],
    pub flow_action: [Unused; 3],
    pub modify_qp_rate_limit: Unused,
    pub alloc_parent_domain: Unused,
    pub dealloc_td: Unused,
    pub alloc_td: Unused,
    pub modify_cq: Unused,
    pub post_srq_ops:
        Option<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_ops_wr, *mut *mut ibv_ops_wr) -> i32>,
    pub rwq_ind_table: [Unused; 2],
    pub wq: [Unused; 3],
    pub query_rt_values: Unused,
    pub create_cq_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
    pub priv_: *mut c_void,
    pub query_device_ex: Option<
        unsafe extern "C" fn(
            *mut ibv_context,
            *const ibv_query_device_ex_input,
            *mut ibv_device_attr_ex,
            usize,
        ) -> i32,
    >,
    pub flow: [Unused; 4],
    pub open_qp: Unused,
    pub create_qp_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
    pub get_srq_num: Option<unsafe extern "C" fn(*mut ibv_srq, *mut u32) -> i32>,
    pub create_srq_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq>,
    pub open_xrcd: Unused,
    pub close_xrcd: Unused,
    pub _abi_placeholder3: u64,
    pub sz: usize,
    pub context: ibv_context,
}

/// Declares [`EXTENDED`], and asserts its distances.
macro_rules! extended {
    ($($distance:literal $field:ident,)*) => {
        /// The fields of the extended context that are declared here: name, and distance in bytes
        /// before the field `context`.
        pub const EXTENDED: &[(&str, usize)] = &[$((stringify!($field), $distance),)*];

        const _: () = {
            const CONTEXT: usize = offset_of!(verbs_context, context);
            $(assert!(CONTEXT - offset_of!(verbs_context, $field) == $distance);)*
        };
    };
}

extended! {
    320 query_port,
    176 post_srq_ops,
    120 create_cq_ex,
    104 query_device_ex,
    56 create_qp_ex,
    48 get_srq_num,
    40 create_srq_ex,
    8 sz,
}

/// The extended context around `context`. Null if `context` is a plain one, or if the extended
/// context is too short for the field at `offset` of [`verbs_context`]. Fields before that one must
/// not be used.
///
/// # Safety
/// `context` is open.
pub unsafe fn verbs_get_ctx_reaching(
    context: *mut ibv_context,
    offset: usize,
) -> *mut verbs_context {
    // SAFETY: the context is open. If it has the mark of extended contexts, it lies at the end of a
    // `verbs_context`, in which the field before it, `sz`, always exists.
    unsafe {
        if (*context).abi_compat.addr() != usize::MAX {
            return std::ptr::null_mut();
        }
        let whole = context.byte_sub(offset_of!(verbs_context, context)).cast::<verbs_context>();
        if (*whole).sz < size_of::<verbs_context>() - offset {
            return std::ptr::null_mut();
        }
        whole
    }
}

/// The function `$op` of the extended context around an open context, or `None` if it has none.
///
/// The C macro with this name returns the extended context instead.
///
/// # Safety
/// The macro must be used in an `unsafe` block. The context is open.
#[macro_export]
macro_rules! verbs_get_ctx_op {
    ($context:expr, $op:ident) => {{
        let whole = $crate::verbs_get_ctx_reaching(
            $context,
            ::std::mem::offset_of!($crate::verbs_context, $op),
        );
        if whole.is_null() { None } else { (*whole).$op }
    }};
}
