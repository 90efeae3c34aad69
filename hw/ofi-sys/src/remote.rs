//! Atomic and collective operations: `fi_atomic(3)`, `fi_collective(3)`.

use std::ffi::c_void;

use tagmatch_sys::structures;

use crate::head::fi_addr_t;
use crate::values::{fi_collective_op, fi_datatype, fi_op};

structures! {
    ELEMENTS from "rdma/fabric.h":

    /// elements of a buffer.
    16 struct fi_ioc {
        0 addr: *mut c_void,
        8 count: usize,
    }
}

structures! {
    REMOTE_ELEMENTS from "rdma/fi_rma.h":

    /// elements in memory of a peer.
    24 struct fi_rma_ioc {
        0 addr: u64,
        8 count: usize,
        16 key: u64,
    }
}

structures! {
    ATOMIC_MESSAGES from "rdma/fi_atomic.h":

    /// the number and the size of elements that an atomic operation can take.
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

structures! {
    COLLECTIVE_MESSAGES from "rdma/fi_collective.h":

    /// what a collective operation can take.
    40 struct fi_collective_attr {
        0 op: fi_op,
        4 datatype: fi_datatype,
        8 datatype_attr: fi_atomic_attr,
        24 max_members: usize,
        32 mode: u64,
    }

    /// an operation of `fi_ops_collective.msg`.
    64 struct fi_msg_collective {
        0 msg_iov: *const fi_ioc,
        8 desc: *mut *mut c_void,
        16 iov_count: usize,
        24 coll_addr: fi_addr_t,
        32 root_addr: fi_addr_t,
        40 coll: fi_collective_op,
        44 datatype: fi_datatype,
        48 op: fi_op,
        56 context: *mut c_void,
    }
}
