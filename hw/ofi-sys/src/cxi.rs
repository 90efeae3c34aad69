//! What the provider for HPE Slingshot adds: `rdma/fi_cxi_ext.h`, of version 2.4.

use std::ffi::c_int;

use tagmatch_sys::constants;

constants! {
    CXI_VALUES as i64, from "rdma/fi_cxi_ext.h":

    /// commands of `fi_control(3)` on a domain of `cxi`. A name of our own.
    fi_cxi_command: c_int {
        FI_OPT_CXI_SET_RX_MATCH_MODE_OVERRIDE = -(0xccc << 16) + 10,
        FI_OPT_CXI_GET_RX_MATCH_MODE_OVERRIDE = -(0xccc << 16) + 11,
    }
}
