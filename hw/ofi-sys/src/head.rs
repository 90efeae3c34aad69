//! The head that every object of libfabric begins with, and the small types that all files share.

use std::ffi::{c_char, c_int, c_void};

use tagmatch_sys::structures;

/// From `rdma/fabric.h`: an address in an address vector.
pub type fi_addr_t = u64;
/// From `rdma/fabric.h`: a pointer to any object of libfabric.
pub type fid_t = *mut fid;

structures! {
    FID from "rdma/fabric.h":

    /// the head of each object: its class, the context that its user gave, and the functions that
    /// all classes have.
    24 struct fid {
        0 fclass: usize,
        8 context: *mut c_void,
        16 ops: *mut fi_ops,
    }

    /// the functions that all classes of objects have: `fi_close(3)`, `fi_ep_bind(3)`,
    /// `fi_control(3)`.
    56 struct fi_ops {
        0 size: usize,
        8 close: Option<unsafe extern "C" fn(*mut fid) -> c_int>,
        16 bind: Option<unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int>,
        24 control: Option<unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int>,
        32 ops_open: Option<unsafe extern "C" fn(
            *mut fid, *const c_char, u64, *mut *mut c_void, *mut c_void
        ) -> c_int>,
        40 tostr: Option<unsafe extern "C" fn(*const fid, *mut c_char, usize) -> c_int>,
        48 ops_set: Option<unsafe extern "C" fn(
            *mut fid, *const c_char, u64, *mut c_void, *mut c_void
        ) -> c_int>,
    }

    /// memory that the provider may use while an operation runs, if the mode is `FI_CONTEXT`.
    32 struct fi_context {
        0 internal: [*mut c_void; 4],
    }

    /// memory that the provider may use while an operation runs, if the mode is `FI_CONTEXT2`.
    64 struct fi_context2 {
        0 internal: [*mut c_void; 8],
    }
}
