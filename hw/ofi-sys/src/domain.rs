//! Fabrics and domains, what `fi_getinfo(3)` says of them, address vectors and memory regions:
//! `fi_fabric(3)`, `fi_domain(3)`, `fi_av(3)`, `fi_mr(3)`.

use std::ffi::{c_char, c_int, c_void};

use tagmatch_sys::structures;

use crate::attributes::{fi_ep_attr, fi_rx_attr, fi_tx_attr};
use crate::endpoint::fid_ep;
use crate::head::{fi_addr_t, fid, fid_t};
use crate::one_sided::fi_atomic_attr;
use crate::queues::{fi_cntr_attr, fi_cq_attr, fi_eq_attr, fid_cntr, fid_cq, fid_eq};
use crate::remote::{
    fi_av_set_attr, fi_collective_attr, fi_poll_attr, fi_wait_attr, fid_av_set, fid_nic, fid_pep,
    fid_poll, fid_stx, fid_wait,
};
use crate::values::{
    fi_av_type, fi_collective_op, fi_datatype, fi_hmem_iface, fi_op, fi_progress, fi_resource_mgmt,
    fi_threading,
};

structures! {
    FABRIC from "rdma/fabric.h":

    /// what a provider offers, or what a program asks for. A provider allocates it and its parts
    /// with `calloc`, and `fi_freeinfo(3)` frees them.
    120 struct fi_info {
        0 next: *mut fi_info,
        8 caps: u64,
        16 mode: u64,
        24 addr_format: u32,
        32 src_addrlen: usize,
        40 dest_addrlen: usize,
        48 src_addr: *mut c_void,
        56 dest_addr: *mut c_void,
        64 handle: fid_t,
        72 tx_attr: *mut fi_tx_attr,
        80 rx_attr: *mut fi_rx_attr,
        88 ep_attr: *mut fi_ep_attr,
        96 domain_attr: *mut fi_domain_attr,
        104 fabric_attr: *mut fi_fabric_attr,
        112 nic: *mut fid_nic,
    }

    /// attributes of a fabric.
    32 struct fi_fabric_attr {
        0 fabric: *mut fid_fabric,
        8 name: *mut c_char,
        16 prov_name: *mut c_char,
        24 prov_version: u32,
        28 api_version: u32,
    }

    /// attributes of a domain, as version 1.17 has them. A provider reads only these from a
    /// program, and allocates [`fi_domain_attr_2`].
    192 struct fi_domain_attr {
        0 domain: *mut fid_domain,
        8 name: *mut c_char,
        16 threading: fi_threading,
        20 control_progress: fi_progress,
        24 data_progress: fi_progress,
        28 resource_mgmt: fi_resource_mgmt,
        32 av_type: fi_av_type,
        36 mr_mode: c_int,
        40 mr_key_size: usize,
        48 cq_data_size: usize,
        56 cq_cnt: usize,
        64 ep_cnt: usize,
        72 tx_ctx_cnt: usize,
        80 rx_ctx_cnt: usize,
        88 max_ep_tx_ctx: usize,
        96 max_ep_rx_ctx: usize,
        104 max_ep_stx_ctx: usize,
        112 max_ep_srx_ctx: usize,
        120 cntr_cnt: usize,
        128 mr_iov_limit: usize,
        136 caps: u64,
        144 mode: u64,
        152 auth_key: *mut u8,
        160 auth_key_size: usize,
        168 max_err_data: usize,
        176 mr_cnt: usize,
        184 tclass: u32,
    }

    /// the functions of a fabric.
    56 struct fi_ops_fabric {
        0 size: usize,
        8 domain: Option<unsafe extern "C" fn(
            *mut fid_fabric, *mut fi_info, *mut *mut fid_domain, *mut c_void
        ) -> c_int>,
        16 passive_ep: Option<unsafe extern "C" fn(
            *mut fid_fabric, *mut fi_info, *mut *mut fid_pep, *mut c_void
        ) -> c_int>,
        24 eq_open: Option<unsafe extern "C" fn(
            *mut fid_fabric, *mut fi_eq_attr, *mut *mut fid_eq, *mut c_void
        ) -> c_int>,
        32 wait_open: Option<unsafe extern "C" fn(
            *mut fid_fabric, *mut fi_wait_attr, *mut *mut fid_wait
        ) -> c_int>,
        40 trywait: Option<unsafe extern "C" fn(*mut fid_fabric, *mut *mut fid, c_int) -> c_int>,
        48 domain2: Option<unsafe extern "C" fn(
            *mut fid_fabric, *mut fi_info, *mut *mut fid_domain, u64, *mut c_void
        ) -> c_int>,
    }

    /// a fabric.
    40 struct fid_fabric {
        0 fid: fid,
        24 ops: *mut fi_ops_fabric,
        32 api_version: u32,
    }
}

structures! {
    DOMAIN from "rdma/fi_domain.h":

    /// attributes with which an address vector is opened.
    48 struct fi_av_attr {
        0 r#type: fi_av_type,
        4 rx_ctx_bits: c_int,
        8 count: usize,
        16 ep_per_node: usize,
        24 name: *const c_char,
        32 map_addr: *mut c_void,
        40 flags: u64,
    }

    /// the functions of an address vector, as version 1.17 has them. Later versions append more,
    /// and don't call those that `size` leaves out.
    64 struct fi_ops_av {
        0 size: usize,
        8 insert: Option<unsafe extern "C" fn(
            *mut fid_av, *const c_void, usize, *mut fi_addr_t, u64, *mut c_void
        ) -> c_int>,
        16 insertsvc: Option<unsafe extern "C" fn(
            *mut fid_av, *const c_char, *const c_char, *mut fi_addr_t, u64, *mut c_void
        ) -> c_int>,
        24 insertsym: Option<unsafe extern "C" fn(
            *mut fid_av, *const c_char, usize, *const c_char, usize, *mut fi_addr_t, u64,
            *mut c_void
        ) -> c_int>,
        32 remove: Option<unsafe extern "C" fn(*mut fid_av, *mut fi_addr_t, usize, u64) -> c_int>,
        40 lookup: Option<unsafe extern "C" fn(
            *mut fid_av, fi_addr_t, *mut c_void, *mut usize
        ) -> c_int>,
        48 straddr: Option<unsafe extern "C" fn(
            *mut fid_av, *const c_void, *mut c_char, *mut usize
        ) -> *const c_char>,
        56 av_set: Option<unsafe extern "C" fn(
            *mut fid_av, *mut fi_av_set_attr, *mut *mut fid_av_set, *mut c_void
        ) -> c_int>,
    }

    /// an address vector.
    32 struct fid_av {
        0 fid: fid,
        24 ops: *mut fi_ops_av,
    }

    /// a memory region.
    40 struct fid_mr {
        0 fid: fid,
        24 mem_desc: *mut c_void,
        32 key: u64,
    }

    /// attributes with which memory is registered, as version 1.17 has them. In C, `device` is a
    /// union of integers.
    80 struct fi_mr_attr {
        0 mr_iov: *const libc::iovec,
        8 iov_count: usize,
        16 access: u64,
        24 offset: u64,
        32 requested_key: u64,
        40 context: *mut c_void,
        48 auth_key_size: usize,
        56 auth_key: *mut u8,
        64 iface: fi_hmem_iface,
        72 device: u64,
    }

    /// the functions of a domain.
    96 struct fi_ops_domain {
        0 size: usize,
        8 av_open: Option<unsafe extern "C" fn(
            *mut fid_domain, *mut fi_av_attr, *mut *mut fid_av, *mut c_void
        ) -> c_int>,
        16 cq_open: Option<unsafe extern "C" fn(
            *mut fid_domain, *mut fi_cq_attr, *mut *mut fid_cq, *mut c_void
        ) -> c_int>,
        24 endpoint: Option<unsafe extern "C" fn(
            *mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void
        ) -> c_int>,
        32 scalable_ep: Option<unsafe extern "C" fn(
            *mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void
        ) -> c_int>,
        40 cntr_open: Option<unsafe extern "C" fn(
            *mut fid_domain, *mut fi_cntr_attr, *mut *mut fid_cntr, *mut c_void
        ) -> c_int>,
        48 poll_open: Option<unsafe extern "C" fn(
            *mut fid_domain, *mut fi_poll_attr, *mut *mut fid_poll
        ) -> c_int>,
        56 stx_ctx: Option<unsafe extern "C" fn(
            *mut fid_domain, *mut fi_tx_attr, *mut *mut fid_stx, *mut c_void
        ) -> c_int>,
        64 srx_ctx: Option<unsafe extern "C" fn(
            *mut fid_domain, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void
        ) -> c_int>,
        72 query_atomic: Option<unsafe extern "C" fn(
            *mut fid_domain, fi_datatype, fi_op, *mut fi_atomic_attr, u64
        ) -> c_int>,
        80 query_collective: Option<unsafe extern "C" fn(
            *mut fid_domain, fi_collective_op, *mut fi_collective_attr, u64
        ) -> c_int>,
        88 endpoint2: Option<unsafe extern "C" fn(
            *mut fid_domain, *mut fi_info, *mut *mut fid_ep, u64, *mut c_void
        ) -> c_int>,
    }

    /// the functions that register memory.
    32 struct fi_ops_mr {
        0 size: usize,
        8 reg: Option<unsafe extern "C" fn(
            *mut fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut fid_mr, *mut c_void
        ) -> c_int>,
        16 regv: Option<unsafe extern "C" fn(
            *mut fid, *const libc::iovec, usize, u64, u64, u64, u64, *mut *mut fid_mr, *mut c_void
        ) -> c_int>,
        24 regattr: Option<unsafe extern "C" fn(
            *mut fid, *const fi_mr_attr, u64, *mut *mut fid_mr
        ) -> c_int>,
    }

    /// a domain.
    40 struct fid_domain {
        0 fid: fid,
        24 ops: *mut fi_ops_domain,
        32 mr: *mut fi_ops_mr,
    }
}
