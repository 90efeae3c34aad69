//! A provider in a library of its own: `fi_provider(3)`.

use std::ffi::{c_char, c_int, c_void};

use tagmatch_sys::structures;

use crate::domain::{fi_fabric_attr, fi_info, fid_fabric};
use crate::head::fi_context;

structures! {
    PROVIDER from "rdma/providers/fi_prov.h":

    /// a provider: what `fi_prov_ini` returns. libfabric owns `context`.
    72 struct fi_provider {
        0 version: u32,
        4 fi_version: u32,
        8 context: fi_context,
        40 name: *const c_char,
        48 getinfo: Option<unsafe extern "C" fn(
            u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info
        ) -> c_int>,
        56 fabric: Option<unsafe extern "C" fn(
            *mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void
        ) -> c_int>,
        64 cleanup: Option<unsafe extern "C" fn()>,
    }
}
