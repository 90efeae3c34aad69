//! Attributes of endpoints, as `fi_getinfo(3)` negotiates them.

use tagmatch_sys::structures;

use crate::values::fi_ep_type;

structures! {
    ATTRIBUTES from "rdma/fabric.h":

    /// attributes of the sending side of an endpoint.
    80 struct fi_tx_attr {
        0 caps: u64,
        8 mode: u64,
        16 op_flags: u64,
        24 msg_order: u64,
        32 comp_order: u64,
        40 inject_size: usize,
        48 size: usize,
        56 iov_limit: usize,
        64 rma_iov_limit: usize,
        72 tclass: u32,
    }

    /// attributes of the receiving side of an endpoint.
    64 struct fi_rx_attr {
        0 caps: u64,
        8 mode: u64,
        16 op_flags: u64,
        24 msg_order: u64,
        32 comp_order: u64,
        40 total_buffered_recv: usize,
        48 size: usize,
        56 iov_limit: usize,
    }

    /// attributes of an endpoint.
    96 struct fi_ep_attr {
        0 r#type: fi_ep_type,
        4 protocol: u32,
        8 protocol_version: u32,
        16 max_msg_size: usize,
        24 msg_prefix_size: usize,
        32 max_order_raw_size: usize,
        40 max_order_war_size: usize,
        48 max_order_waw_size: usize,
        56 mem_tag_format: u64,
        64 tx_ctx_cnt: usize,
        72 rx_ctx_cnt: usize,
        80 auth_key_size: usize,
        88 auth_key: *mut u8,
    }
}
