//! Structures and constants of `ucp/api/ucp.h` and of the headers that it includes.

use std::ffi::{c_char, c_int, c_uint, c_void};

use tagmatch_sys::{constants, structures};

use crate::status::ucs_status_t;

/// Declares types whose content only UCX knows.
macro_rules! opaque {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        $(
            /// A type whose content only UCX knows:
            $(#[$meta])*
            #[repr(C)]
            pub struct $name {
                inside: [u8; 0],
                // Makes the type neither `Send` nor `Sync` nor `Unpin`.
                marker: std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>,
            }
        )*
    };
}

opaque! {
    /// settings.
    ucp_config,
    /// a communication context.
    ucp_context,
    /// a worker, which matches messages and makes progress.
    ucp_worker,
    /// an endpoint, by which one peer is reached.
    ucp_ep,
    /// a worker's address. Its length is returned beside it.
    ucp_address,
    /// a message that a probe has taken.
    ucp_recv_desc,
    /// memory that the program has registered.
    ucp_mem,
    /// a connection request of a listener.
    ucp_conn_request,
}

/// Settings.
pub type ucp_config_t = ucp_config;
/// A communication context.
pub type ucp_context_h = *mut ucp_context;
/// A worker.
pub type ucp_worker_h = *mut ucp_worker;
/// An endpoint.
pub type ucp_ep_h = *mut ucp_ep;
/// A worker's address.
pub type ucp_address_t = ucp_address;
/// A message that a probe has taken.
pub type ucp_tag_message_h = *mut ucp_recv_desc;
/// Memory that the program has registered.
pub type ucp_mem_h = *mut ucp_mem;
/// A tag.
pub type ucp_tag_t = u64;
/// The type of a buffer's elements.
pub type ucp_datatype_t = u64;

/// Called when a send has ended.
pub type ucp_send_nbx_callback_t = unsafe extern "C" fn(*mut c_void, ucs_status_t, *mut c_void);
/// Called when a receive has ended.
pub type ucp_tag_recv_nbx_callback_t =
    unsafe extern "C" fn(*mut c_void, ucs_status_t, *const ucp_tag_recv_info_t, *mut c_void);
/// Called when an endpoint has failed.
pub type ucp_err_handler_cb_t = unsafe extern "C" fn(*mut c_void, ucp_ep_h, ucs_status_t);
/// Called for each line of the log with file, line, function, level, settings, format and arguments
/// (a `va_list`, which is passed as a pointer on all machines that UCX supports). If the result
/// isn't zero, the next handler is called too.
pub type ucs_log_func_t = unsafe extern "C" fn(
    *const c_char,
    c_uint,
    *const c_char,
    ucs_log_level_t,
    *const c_void,
    *const c_char,
    *mut c_void,
) -> c_uint;

/// The callback of an operation. The operation decides which member is used.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ucp_request_callback_t {
    /// The callback of a send.
    pub send: Option<ucp_send_nbx_callback_t>,
    /// The callback of a tagged receive.
    pub recv: Option<ucp_tag_recv_nbx_callback_t>,
}

structures! {
    STRUCTURES from "ucp/api/ucp.h":

    /// the parameters with which a context is created.
    80 struct ucp_params_t {
        0 field_mask: u64,
        8 features: u64,
        16 request_size: usize,
        24 request_init: *mut c_void,
        32 request_cleanup: *mut c_void,
        40 tag_sender_mask: u64,
        48 mt_workers_shared: c_int,
        56 estimated_num_eps: usize,
        64 estimated_num_ppn: usize,
        72 name: *const c_char,
    }

    /// a set of processors.
    128 struct ucs_cpu_set_t {
        0 ucs_bits: [u64; 16],
    }

    /// the parameters with which a worker is created.
    200 struct ucp_worker_params_t {
        0 field_mask: u64,
        8 thread_mode: ucs_thread_mode_t,
        16 cpu_mask: ucs_cpu_set_t,
        144 events: c_uint,
        152 user_data: *mut c_void,
        160 event_fd: c_int,
        168 flags: u64,
        176 name: *const c_char,
        184 am_alignment: usize,
        192 client_id: u64,
    }

    /// the callback that reports an endpoint's failure.
    16 struct ucp_err_handler_t {
        0 cb: Option<ucp_err_handler_cb_t>,
        8 arg: *mut c_void,
    }

    /// a socket's address.
    16 struct ucs_sock_addr_t {
        0 addr: *const libc::sockaddr,
        8 addrlen: libc::socklen_t,
    }

    /// the parameters with which an endpoint is created.
    104 struct ucp_ep_params_t {
        0 field_mask: u64,
        8 address: *const ucp_address_t,
        16 err_mode: ucp_err_handling_mode_t,
        24 err_handler: ucp_err_handler_t,
        40 user_data: *mut c_void,
        48 flags: c_uint,
        56 sockaddr: ucs_sock_addr_t,
        72 conn_request: *mut ucp_conn_request,
        80 name: *const c_char,
        88 local_sockaddr: ucs_sock_addr_t,
    }

    /// the tag and the length of a message.
    16 struct ucp_tag_recv_info_t {
        0 sender_tag: ucp_tag_t,
        8 length: usize,
    }

    /// the parameters of an operation. In C, `recv_info` is a union of two pointers.
    72 struct ucp_request_param_t {
        0 op_attr_mask: u32,
        4 flags: u32,
        8 request: *mut c_void,
        16 cb: ucp_request_callback_t,
        24 datatype: ucp_datatype_t,
        32 user_data: *mut c_void,
        40 reply_buffer: *mut c_void,
        48 memory_type: ucs_memory_type_t,
        56 recv_info: *mut c_void,
        64 memh: ucp_mem_h,
    }

    /// the parameters with which memory is registered.
    40 struct ucp_mem_map_params_t {
        0 field_mask: u64,
        8 address: *mut c_void,
        16 length: usize,
        24 flags: c_uint,
        28 prot: c_uint,
        32 memory_type: ucs_memory_type_t,
    }
}

constants! {
    VALUES as i64, from "ucp/api/ucp.h":

    /// the fields of [`ucp_params_t`] that are set.
    ucp_params_field: u64 {
        UCP_PARAM_FIELD_FEATURES = 1 << 0,
        UCP_PARAM_FIELD_TAG_SENDER_MASK = 1 << 4,
    }

    /// the features of a context.
    ucp_feature: u64 {
        UCP_FEATURE_TAG = 1 << 0,
        UCP_FEATURE_WAKEUP = 1 << 4,
    }

    /// the fields of [`ucp_worker_params_t`] that are set.
    ucp_worker_params_field: u64 {
        UCP_WORKER_PARAM_FIELD_THREAD_MODE = 1 << 0,
    }

    /// the fields of [`ucp_ep_params_t`] that are set.
    ucp_ep_params_field: u64 {
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS = 1 << 0,
        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE = 1 << 1,
        UCP_EP_PARAM_FIELD_ERR_HANDLER = 1 << 2,
    }

    /// an endpoint's reaction to errors.
    ucp_err_handling_mode_t: c_uint {
        UCP_ERR_HANDLING_MODE_PEER = 1,
    }

    /// the ways to close an endpoint: `flags` of [`ucp_request_param_t`].
    ucp_ep_close_flags_t: u32 {
        UCP_EP_CLOSE_FLAG_FORCE = 1 << 0,
    }

    /// the fields of [`ucp_request_param_t`] that are set, and flags.
    ucp_op_attr_t: u32 {
        UCP_OP_ATTR_FIELD_CALLBACK = 1 << 1,
        UCP_OP_ATTR_FIELD_USER_DATA = 1 << 2,
        UCP_OP_ATTR_FIELD_FLAGS = 1 << 4,
        UCP_OP_ATTR_FIELD_MEMORY_TYPE = 1 << 6,
        UCP_OP_ATTR_FIELD_MEMH = 1 << 8,
        UCP_OP_ATTR_FLAG_NO_IMM_CMPL = 1 << 16,
        UCP_OP_ATTR_FLAG_FAST_CMPL = 1 << 17,
        UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL = 1 << 18,
    }

    /// the fields of [`ucp_mem_map_params_t`] that are set.
    ucp_mem_map_params_field: u64 {
        UCP_MEM_MAP_PARAM_FIELD_ADDRESS = 1 << 0,
        UCP_MEM_MAP_PARAM_FIELD_LENGTH = 1 << 1,
        UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE = 1 << 4,
    }

    /// the threads that may call a worker.
    ucs_thread_mode_t: c_uint {
        UCS_THREAD_MODE_SINGLE = 0,
        UCS_THREAD_MODE_SERIALIZED = 1,
    }

    /// the places of memory.
    ucs_memory_type_t: c_uint {
        UCS_MEMORY_TYPE_HOST = 0,
    }

    /// the levels of the log's lines.
    ucs_log_level_t: c_uint {
        UCS_LOG_LEVEL_FATAL = 0,
        UCS_LOG_LEVEL_ERROR = 1,
        UCS_LOG_LEVEL_WARN = 2,
        UCS_LOG_LEVEL_DIAG = 3,
        UCS_LOG_LEVEL_INFO = 4,
        UCS_LOG_LEVEL_DEBUG = 5,
    }

    /// the results of a log handler.
    ucs_log_func_rc_t: c_uint {
        UCS_LOG_FUNC_RC_STOP = 0,
    }
}
