//! Endpoints, and the tables of the functions that move data: `fi_endpoint(3)`, `fi_msg(3)`,
//! `fi_tagged(3)`, `fi_cm(3)`, `fi_rma(3)`, `fi_atomic(3)`, `fi_collective(3)`.
//!
//! Nearly all public calls are inline functions of the headers, which call through these tables
//! without a look at the pointer. So a provider fills every table and every field.

use std::ffi::{c_int, c_void};

use tagmatch_sys::structures;

use crate::attributes::{fi_rx_attr, fi_tx_attr};
use crate::head::{fi_addr_t, fid, fid_t};
use crate::one_sided::{fi_ioc, fi_msg_atomic, fi_msg_rma};
use crate::remote::{fi_msg_collective, fid_mc, fid_pep};
use crate::values::{fi_datatype, fi_op};

structures! {
    ENDPOINT from "rdma/fi_endpoint.h":

    /// an endpoint.
    80 struct fid_ep {
        0 fid: fid,
        24 ops: *mut fi_ops_ep,
        32 cm: *mut fi_ops_cm,
        40 msg: *mut fi_ops_msg,
        48 rma: *mut fi_ops_rma,
        56 tagged: *mut fi_ops_tagged,
        64 atomic: *mut fi_ops_atomic,
        72 collective: *mut fi_ops_collective,
    }

    /// the functions of an endpoint that move no data.
    64 struct fi_ops_ep {
        0 size: usize,
        8 cancel: Option<unsafe extern "C" fn(fid_t, *mut c_void) -> isize>,
        16 getopt: Option<unsafe extern "C" fn(
            fid_t, c_int, c_int, *mut c_void, *mut usize
        ) -> c_int>,
        24 setopt: Option<unsafe extern "C" fn(fid_t, c_int, c_int, *const c_void, usize) -> c_int>,
        32 tx_ctx: Option<unsafe extern "C" fn(
            *mut fid_ep, c_int, *mut fi_tx_attr, *mut *mut fid_ep, *mut c_void
        ) -> c_int>,
        40 rx_ctx: Option<unsafe extern "C" fn(
            *mut fid_ep, c_int, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void
        ) -> c_int>,
        48 rx_size_left: Option<unsafe extern "C" fn(*mut fid_ep) -> isize>,
        56 tx_size_left: Option<unsafe extern "C" fn(*mut fid_ep) -> isize>,
    }

    /// a message for `fi_sendmsg(3)` and `fi_recvmsg(3)`.
    48 struct fi_msg {
        0 msg_iov: *const libc::iovec,
        8 desc: *mut *mut c_void,
        16 iov_count: usize,
        24 addr: fi_addr_t,
        32 context: *mut c_void,
        40 data: u64,
    }

    /// the functions for messages without a tag.
    80 struct fi_ops_msg {
        0 size: usize,
        8 recv: Option<unsafe extern "C" fn(
            *mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, *mut c_void
        ) -> isize>,
        16 recvv: Option<unsafe extern "C" fn(
            *mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, fi_addr_t, *mut c_void
        ) -> isize>,
        24 recvmsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg, u64) -> isize>,
        32 send: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, *mut c_void
        ) -> isize>,
        40 sendv: Option<unsafe extern "C" fn(
            *mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, fi_addr_t, *mut c_void
        ) -> isize>,
        48 sendmsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg, u64) -> isize>,
        56 inject: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, fi_addr_t
        ) -> isize>,
        64 senddata: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, u64, fi_addr_t, *mut c_void
        ) -> isize>,
        72 injectdata: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, u64, fi_addr_t
        ) -> isize>,
    }
}

structures! {
    TAGGED from "rdma/fi_tagged.h":

    /// a message for `fi_tsendmsg(3)` and `fi_trecvmsg(3)`.
    64 struct fi_msg_tagged {
        0 msg_iov: *const libc::iovec,
        8 desc: *mut *mut c_void,
        16 iov_count: usize,
        24 addr: fi_addr_t,
        32 tag: u64,
        40 ignore: u64,
        48 context: *mut c_void,
        56 data: u64,
    }

    /// the functions for tagged messages.
    80 struct fi_ops_tagged {
        0 size: usize,
        8 recv: Option<unsafe extern "C" fn(
            *mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, u64, u64, *mut c_void
        ) -> isize>,
        16 recvv: Option<unsafe extern "C" fn(
            *mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, fi_addr_t, u64, u64,
            *mut c_void
        ) -> isize>,
        24 recvmsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg_tagged, u64) -> isize>,
        32 send: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, u64, *mut c_void
        ) -> isize>,
        40 sendv: Option<unsafe extern "C" fn(
            *mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, fi_addr_t, u64, *mut c_void
        ) -> isize>,
        48 sendmsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg_tagged, u64) -> isize>,
        56 inject: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, fi_addr_t, u64
        ) -> isize>,
        64 senddata: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, u64, fi_addr_t, u64, *mut c_void
        ) -> isize>,
        72 injectdata: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, u64, fi_addr_t, u64
        ) -> isize>,
    }
}

structures! {
    CM from "rdma/fi_cm.h":

    /// the functions for names and connections.
    80 struct fi_ops_cm {
        0 size: usize,
        8 setname: Option<unsafe extern "C" fn(fid_t, *mut c_void, usize) -> c_int>,
        16 getname: Option<unsafe extern "C" fn(fid_t, *mut c_void, *mut usize) -> c_int>,
        24 getpeer: Option<unsafe extern "C" fn(*mut fid_ep, *mut c_void, *mut usize) -> c_int>,
        32 connect: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, *const c_void, usize
        ) -> c_int>,
        40 listen: Option<unsafe extern "C" fn(*mut fid_pep) -> c_int>,
        48 accept: Option<unsafe extern "C" fn(*mut fid_ep, *const c_void, usize) -> c_int>,
        56 reject: Option<unsafe extern "C" fn(*mut fid_pep, fid_t, *const c_void, usize) -> c_int>,
        64 shutdown: Option<unsafe extern "C" fn(*mut fid_ep, u64) -> c_int>,
        72 join: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, u64, *mut *mut fid_mc, *mut c_void
        ) -> c_int>,
    }
}

structures! {
    RMA from "rdma/fi_rma.h":

    /// the functions for access to memory of a peer.
    80 struct fi_ops_rma {
        0 size: usize,
        8 read: Option<unsafe extern "C" fn(
            *mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, u64, u64, *mut c_void
        ) -> isize>,
        16 readv: Option<unsafe extern "C" fn(
            *mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, fi_addr_t, u64, u64,
            *mut c_void
        ) -> isize>,
        24 readmsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg_rma, u64) -> isize>,
        32 write: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, u64, u64, *mut c_void
        ) -> isize>,
        40 writev: Option<unsafe extern "C" fn(
            *mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, fi_addr_t, u64, u64,
            *mut c_void
        ) -> isize>,
        48 writemsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg_rma, u64) -> isize>,
        56 inject: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, fi_addr_t, u64, u64
        ) -> isize>,
        64 writedata: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, u64, fi_addr_t, u64, u64, *mut c_void
        ) -> isize>,
        72 injectdata: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, u64, fi_addr_t, u64, u64
        ) -> isize>,
    }
}

structures! {
    ATOMIC from "rdma/fi_atomic.h":

    /// the functions for atomic operations.
    112 struct fi_ops_atomic {
        0 size: usize,
        8 write: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, u64, u64, fi_datatype, fi_op,
            *mut c_void
        ) -> isize>,
        16 writev: Option<unsafe extern "C" fn(
            *mut fid_ep, *const fi_ioc, *mut *mut c_void, usize, fi_addr_t, u64, u64, fi_datatype,
            fi_op, *mut c_void
        ) -> isize>,
        24 writemsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg_atomic, u64) -> isize>,
        32 inject: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, fi_addr_t, u64, u64, fi_datatype, fi_op
        ) -> isize>,
        40 readwrite: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t,
            u64, u64, fi_datatype, fi_op, *mut c_void
        ) -> isize>,
        48 readwritev: Option<unsafe extern "C" fn(
            *mut fid_ep, *const fi_ioc, *mut *mut c_void, usize, *mut fi_ioc, *mut *mut c_void,
            usize, fi_addr_t, u64, u64, fi_datatype, fi_op, *mut c_void
        ) -> isize>,
        56 readwritemsg: Option<unsafe extern "C" fn(
            *mut fid_ep, *const fi_msg_atomic, *mut fi_ioc, *mut *mut c_void, usize, u64
        ) -> isize>,
        64 compwrite: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *const c_void, *mut c_void, *mut c_void,
            *mut c_void, fi_addr_t, u64, u64, fi_datatype, fi_op, *mut c_void
        ) -> isize>,
        72 compwritev: Option<unsafe extern "C" fn(
            *mut fid_ep, *const fi_ioc, *mut *mut c_void, usize, *const fi_ioc, *mut *mut c_void,
            usize, *mut fi_ioc, *mut *mut c_void, usize, fi_addr_t, u64, u64, fi_datatype, fi_op,
            *mut c_void
        ) -> isize>,
        80 compwritemsg: Option<unsafe extern "C" fn(
            *mut fid_ep, *const fi_msg_atomic, *const fi_ioc, *mut *mut c_void, usize, *mut fi_ioc,
            *mut *mut c_void, usize, u64
        ) -> isize>,
        88 writevalid: Option<unsafe extern "C" fn(
            *mut fid_ep, fi_datatype, fi_op, *mut usize
        ) -> c_int>,
        96 readwritevalid: Option<unsafe extern "C" fn(
            *mut fid_ep, fi_datatype, fi_op, *mut usize
        ) -> c_int>,
        104 compwritevalid: Option<unsafe extern "C" fn(
            *mut fid_ep, fi_datatype, fi_op, *mut usize
        ) -> c_int>,
    }
}

structures! {
    COLLECTIVE from "rdma/fi_collective.h":

    /// the functions for collective operations.
    96 struct fi_ops_collective {
        0 size: usize,
        8 barrier: Option<unsafe extern "C" fn(*mut fid_ep, fi_addr_t, *mut c_void) -> isize>,
        16 broadcast: Option<unsafe extern "C" fn(
            *mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, fi_addr_t, fi_datatype, u64,
            *mut c_void
        ) -> isize>,
        24 alltoall: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t,
            fi_datatype, u64, *mut c_void
        ) -> isize>,
        32 allreduce: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t,
            fi_datatype, fi_op, u64, *mut c_void
        ) -> isize>,
        40 allgather: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t,
            fi_datatype, u64, *mut c_void
        ) -> isize>,
        48 reduce_scatter: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t,
            fi_datatype, fi_op, u64, *mut c_void
        ) -> isize>,
        56 reduce: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t,
            fi_addr_t, fi_datatype, fi_op, u64, *mut c_void
        ) -> isize>,
        64 scatter: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t,
            fi_addr_t, fi_datatype, u64, *mut c_void
        ) -> isize>,
        72 gather: Option<unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t,
            fi_addr_t, fi_datatype, u64, *mut c_void
        ) -> isize>,
        80 msg: Option<unsafe extern "C" fn(
            *mut fid_ep, *const fi_msg_collective, *mut fi_ioc, *mut *mut c_void, usize, u64
        ) -> isize>,
        88 barrier2: Option<unsafe extern "C" fn(
            *mut fid_ep, fi_addr_t, u64, *mut c_void
        ) -> isize>,
    }
}
