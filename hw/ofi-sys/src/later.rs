//! What versions after 1.17 have added, up to 2.6.
//!
//! Structures have grown at their ends only. One library serves programs of all versions:
//! it allocates the longer structure where a newer libfabric reads it, and writes the added fields
//! of memory that isn't its own only if the program asked for a version that has them.

use std::ffi::c_uint;

use tagmatch_sys::{constants, structures};

use crate::domain::fi_domain_attr;
use crate::head::fi_addr_t;
use crate::queues::fi_cq_err_entry;

structures! {
    LATER_ATTRIBUTES from "rdma/fabric.h":

    /// `fi_domain_attr` of version 2.6, and room for fields of later versions. A name of our own.
    /// A provider allocates this for each `fi_info.domain_attr`: `fi_dupinfo(3)` of a later version
    /// copies as much as that version has, and a program that is older reads `common` alone.
    256 struct fi_domain_attr_2 {
        0 common: fi_domain_attr,
        192 max_ep_auth_key: usize,
        200 max_group_id: u32,
        208 max_cntr_value: u64,
        216 max_err_cntr_value: u64,
        224 room: [u64; 4],
    }
}

structures! {
    LATER_QUEUES from "rdma/fi_eq.h":

    /// `fi_cq_err_entry` since version 1.20. A name of our own. The program gives the memory. So a
    /// provider writes `src_addr` only if `fid_fabric.api_version` is 1.20 or later.
    88 struct fi_cq_err_entry_2 {
        0 common: fi_cq_err_entry,
        80 src_addr: fi_addr_t,
    }
}

constants! {
    LATER_VALUES as i64, from "rdma/fabric.h":

    /// capabilities and flags. A name of our own.
    fi_flags_2: u64 {
        FI_RESCAN = 1 << 35,
    }


    /// who makes progress: [`fi_progress`](crate::fi_progress).
    fi_progress_2: c_uint {
        FI_PROGRESS_CONTROL_UNIFIED = 3,
    }

    /// formats of addresses: `fi_info.addr_format`. A name of our own.
    fi_addr_format_2: u32 {
        FI_ADDR_CXI = 15,
    }

    /// protocols: `fi_ep_attr.protocol`. A name of our own.
    fi_protocol_2: u32 {
        FI_PROTO_CXI = 24,
        FI_PROTO_CXI_RNR = 29,
    }
}
