//! The arguments of one-sided operations: `fi_rma(3)`, `fi_atomic(3)`.

use std::ffi::c_void;

use tagmatch_sys::structures;

use crate::head::fi_addr_t;
use crate::values::{fi_datatype, fi_op};

structures! {
    ELEMENTS from "rdma/fabric.h":

    /// elements of a buffer.
    16 struct fi_ioc {
        0 addr: *mut c_void,
        8 count: usize,
    }
}

structures! {
    RMA_ARGUMENTS from "rdma/fi_rma.h":

    /// bytes of a peer's memory.
    24 struct fi_rma_iov {
        0 addr: u64,
        8 len: usize,
        16 key: u64,
    }

    /// elements of a peer's memory.
    24 struct fi_rma_ioc {
        0 addr: u64,
        8 count: usize,
        16 key: u64,
    }

    /// an access for `fi_readmsg(3)` and `fi_writemsg(3)`.
    64 struct fi_msg_rma {
        0 msg_iov: *const libc::iovec,
        8 desc: *mut *mut c_void,
        16 iov_count: usize,
        24 addr: fi_addr_t,
        32 rma_iov: *const fi_rma_iov,
        40 rma_iov_count: usize,
        48 context: *mut c_void,
        56 data: u64,
    }
}

structures! {
    ATOMIC_ARGUMENTS from "rdma/fi_atomic.h":

    /// what an atomic operation can take.
    16 struct fi_atomic_attr {
        0 count: usize,
        8 size: usize,
    }

    /// an operation for `fi_atomicmsg(3)`.
    72 struct fi_msg_atomic {
        0 msg_iov: *const fi_ioc,
        8 desc: *mut *mut c_void,
        16 iov_count: usize,
        24 addr: fi_addr_t,
        32 rma_iov: *const fi_rma_ioc,
        40 rma_iov_count: usize,
        48 datatype: fi_datatype,
        52 op: fi_op,
        56 context: *mut c_void,
        64 data: u64,
    }
}
