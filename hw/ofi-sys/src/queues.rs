//! Event queues, completion queues and counters: `fi_eq(3)`, `fi_cq(3)`, `fi_cntr(3)`.

use std::ffi::{c_char, c_int, c_void};

use tagmatch_sys::structures;

use crate::head::{fi_addr_t, fid, fid_t};
use crate::remote::fid_wait;
use crate::values::{fi_cntr_events, fi_cq_format, fi_cq_wait_cond, fi_wait_obj};

structures! {
    QUEUES from "rdma/fi_eq.h":

    /// attributes with which an event queue is opened.
    32 struct fi_eq_attr {
        0 size: usize,
        8 flags: u64,
        16 wait_obj: fi_wait_obj,
        20 signaling_vector: c_int,
        24 wait_set: *mut fid_wait,
    }

    /// an error of an event queue.
    48 struct fi_eq_err_entry {
        0 fid: fid_t,
        8 context: *mut c_void,
        16 data: u64,
        24 err: c_int,
        28 prov_errno: c_int,
        32 err_data: *mut c_void,
        40 err_data_size: usize,
    }

    /// the functions of an event queue.
    48 struct fi_ops_eq {
        0 size: usize,
        8 read: Option<unsafe extern "C" fn(
            *mut fid_eq, *mut u32, *mut c_void, usize, u64
        ) -> isize>,
        16 readerr: Option<unsafe extern "C" fn(*mut fid_eq, *mut fi_eq_err_entry, u64) -> isize>,
        24 write: Option<unsafe extern "C" fn(
            *mut fid_eq, u32, *const c_void, usize, u64
        ) -> isize>,
        32 sread: Option<unsafe extern "C-unwind" fn(
            *mut fid_eq, *mut u32, *mut c_void, usize, c_int, u64
        ) -> isize>,
        40 strerror: Option<unsafe extern "C" fn(
            *mut fid_eq, c_int, *const c_void, *mut c_char, usize
        ) -> *const c_char>,
    }

    /// an event queue.
    32 struct fid_eq {
        0 fid: fid,
        24 ops: *mut fi_ops_eq,
    }

    /// attributes with which a completion queue is opened.
    40 struct fi_cq_attr {
        0 size: usize,
        8 flags: u64,
        16 format: fi_cq_format,
        20 wait_obj: fi_wait_obj,
        24 signaling_vector: c_int,
        28 wait_cond: fi_cq_wait_cond,
        32 wait_set: *mut fid_wait,
    }

    /// a completion of the format `FI_CQ_FORMAT_CONTEXT`.
    8 struct fi_cq_entry {
        0 op_context: *mut c_void,
    }

    /// a completion of the format `FI_CQ_FORMAT_MSG`.
    24 struct fi_cq_msg_entry {
        0 op_context: *mut c_void,
        8 flags: u64,
        16 len: usize,
    }

    /// a completion of the format `FI_CQ_FORMAT_DATA`.
    40 struct fi_cq_data_entry {
        0 op_context: *mut c_void,
        8 flags: u64,
        16 len: usize,
        24 buf: *mut c_void,
        32 data: u64,
    }

    /// a completion of the format `FI_CQ_FORMAT_TAGGED`.
    48 struct fi_cq_tagged_entry {
        0 op_context: *mut c_void,
        8 flags: u64,
        16 len: usize,
        24 buf: *mut c_void,
        32 data: u64,
        40 tag: u64,
    }

    /// a failed completion, as version 1.17 has it. Programs that ask for a later version may give
    /// a longer one: [`fi_cq_err_entry_2`].
    80 struct fi_cq_err_entry {
        0 op_context: *mut c_void,
        8 flags: u64,
        16 len: usize,
        24 buf: *mut c_void,
        32 data: u64,
        40 tag: u64,
        48 olen: usize,
        56 err: c_int,
        60 prov_errno: c_int,
        64 err_data: *mut c_void,
        72 err_data_size: usize,
    }

    /// the functions of a completion queue.
    64 struct fi_ops_cq {
        0 size: usize,
        8 read: Option<unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize) -> isize>,
        16 readfrom: Option<unsafe extern "C" fn(
            *mut fid_cq, *mut c_void, usize, *mut fi_addr_t
        ) -> isize>,
        24 readerr: Option<unsafe extern "C" fn(*mut fid_cq, *mut fi_cq_err_entry, u64) -> isize>,
        32 sread: Option<unsafe extern "C-unwind" fn(
            *mut fid_cq, *mut c_void, usize, *const c_void, c_int
        ) -> isize>,
        40 sreadfrom: Option<unsafe extern "C-unwind" fn(
            *mut fid_cq, *mut c_void, usize, *mut fi_addr_t, *const c_void, c_int
        ) -> isize>,
        48 signal: Option<unsafe extern "C" fn(*mut fid_cq) -> c_int>,
        56 strerror: Option<unsafe extern "C" fn(
            *mut fid_cq, c_int, *const c_void, *mut c_char, usize
        ) -> *const c_char>,
    }

    /// a completion queue.
    32 struct fid_cq {
        0 fid: fid,
        24 ops: *mut fi_ops_cq,
    }

    /// attributes with which a counter is opened.
    24 struct fi_cntr_attr {
        0 events: fi_cntr_events,
        4 wait_obj: fi_wait_obj,
        8 wait_set: *mut fid_wait,
        16 flags: u64,
    }

    /// the functions of a counter.
    64 struct fi_ops_cntr {
        0 size: usize,
        8 read: Option<unsafe extern "C" fn(*mut fid_cntr) -> u64>,
        16 readerr: Option<unsafe extern "C" fn(*mut fid_cntr) -> u64>,
        24 add: Option<unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int>,
        32 set: Option<unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int>,
        40 wait: Option<unsafe extern "C-unwind" fn(*mut fid_cntr, u64, c_int) -> c_int>,
        48 adderr: Option<unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int>,
        56 seterr: Option<unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int>,
    }

    /// a counter.
    32 struct fid_cntr {
        0 fid: fid,
        24 ops: *mut fi_ops_cntr,
    }
}
