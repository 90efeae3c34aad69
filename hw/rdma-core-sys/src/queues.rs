//! Queue pairs, shared receive queues, memory regions, and the work requests for them.

use std::ffi::c_void;

use libc::{pthread_cond_t, pthread_mutex_t};
use tagmatch_sys::{constants, structures};

use crate::attributes::{ibv_ah_attr, ibv_mtu};
use crate::completions::ibv_cq;
use crate::context::ibv_context;

structures! {
    QUEUES from "infiniband/verbs.h":

    /// a protection domain.
    16 struct ibv_pd {
        0 context: *mut ibv_context,
        8 handle: u32,
    }

    /// a memory region.
    48 struct ibv_mr {
        0 context: *mut ibv_context,
        8 pd: *mut ibv_pd,
        16 addr: *mut c_void,
        24 length: usize,
        32 handle: u32,
        36 lkey: u32,
        40 rkey: u32,
    }

    /// an address handle.
    24 struct ibv_ah {
        0 context: *mut ibv_context,
        8 pd: *mut ibv_pd,
        16 handle: u32,
    }

    /// the size of a shared receive queue.
    12 struct ibv_srq_attr {
        0 max_wr: u32,
        4 max_sge: u32,
        8 srq_limit: u32,
    }

    /// the attributes with which a basic shared receive queue is created.
    24 struct ibv_srq_init_attr {
        0 srq_context: *mut c_void,
        8 attr: ibv_srq_attr,
    }

    /// the size of a tag-matching shared receive queue.
    8 struct ibv_tm_cap {
        0 max_num_tags: u32,
        4 max_ops: u32,
    }

    /// the attributes with which a shared receive queue is created. `xrcd` is an XRC domain, which
    /// isn't declared here.
    64 struct ibv_srq_init_attr_ex {
        0 srq_context: *mut c_void,
        8 attr: ibv_srq_attr,
        20 comp_mask: u32,
        24 srq_type: ibv_srq_type,
        32 pd: *mut ibv_pd,
        40 xrcd: *mut c_void,
        48 cq: *mut ibv_cq,
        56 tm_cap: ibv_tm_cap,
    }

    /// a shared receive queue.
    128 struct ibv_srq {
        0 context: *mut ibv_context,
        8 srq_context: *mut c_void,
        16 pd: *mut ibv_pd,
        24 handle: u32,
        32 mutex: pthread_mutex_t,
        72 cond: pthread_cond_t,
        120 events_completed: u32,
    }

    /// the size of a queue pair.
    20 struct ibv_qp_cap {
        0 max_send_wr: u32,
        4 max_recv_wr: u32,
        8 max_send_sge: u32,
        12 max_recv_sge: u32,
        16 max_inline_data: u32,
    }

    /// the attributes with which a queue pair is created.
    64 struct ibv_qp_init_attr {
        0 qp_context: *mut c_void,
        8 send_cq: *mut ibv_cq,
        16 recv_cq: *mut ibv_cq,
        24 srq: *mut ibv_srq,
        32 cap: ibv_qp_cap,
        52 qp_type: ibv_qp_type,
        56 sq_sig_all: i32,
    }

    /// the rule by which packets are spread over receive queues.
    24 struct ibv_rx_hash_conf {
        0 rx_hash_function: u8,
        1 rx_hash_key_len: u8,
        8 rx_hash_key: *mut u8,
        16 rx_hash_fields_mask: u64,
    }

    /// the extended attributes with which a queue pair is created. The types of `xrcd` and
    /// `rwq_ind_tbl` aren't declared here.
    136 struct ibv_qp_init_attr_ex {
        0 qp_context: *mut c_void,
        8 send_cq: *mut ibv_cq,
        16 recv_cq: *mut ibv_cq,
        24 srq: *mut ibv_srq,
        32 cap: ibv_qp_cap,
        52 qp_type: ibv_qp_type,
        56 sq_sig_all: i32,
        60 comp_mask: u32,
        64 pd: *mut ibv_pd,
        72 xrcd: *mut c_void,
        80 create_flags: u32,
        84 max_tso_header: u16,
        88 rwq_ind_tbl: *mut c_void,
        96 rx_hash_conf: ibv_rx_hash_conf,
        120 source_qpn: u32,
        128 send_ops_flags: u64,
    }

    /// a queue pair's attributes, for `ibv_modify_qp`.
    144 struct ibv_qp_attr {
        0 qp_state: ibv_qp_state,
        4 cur_qp_state: ibv_qp_state,
        8 path_mtu: ibv_mtu,
        12 path_mig_state: u32,
        16 qkey: u32,
        20 rq_psn: u32,
        24 sq_psn: u32,
        28 dest_qp_num: u32,
        32 qp_access_flags: u32,
        36 cap: ibv_qp_cap,
        56 ah_attr: ibv_ah_attr,
        88 alt_ah_attr: ibv_ah_attr,
        120 pkey_index: u16,
        122 alt_pkey_index: u16,
        124 en_sqd_async_notify: u8,
        125 sq_draining: u8,
        126 max_rd_atomic: u8,
        127 max_dest_rd_atomic: u8,
        128 min_rnr_timer: u8,
        129 port_num: u8,
        130 timeout: u8,
        131 retry_cnt: u8,
        132 rnr_retry: u8,
        133 alt_port_num: u8,
        134 alt_timeout: u8,
        136 rate_limit: u32,
    }

    /// a queue pair.
    160 struct ibv_qp {
        0 context: *mut ibv_context,
        8 qp_context: *mut c_void,
        16 pd: *mut ibv_pd,
        24 send_cq: *mut ibv_cq,
        32 recv_cq: *mut ibv_cq,
        40 srq: *mut ibv_srq,
        48 handle: u32,
        52 qp_num: u32,
        56 state: ibv_qp_state,
        60 qp_type: ibv_qp_type,
        64 mutex: pthread_mutex_t,
        104 cond: pthread_cond_t,
        152 events_completed: u32,
    }

    /// a range of registered memory.
    16 struct ibv_sge {
        0 addr: u64,
        8 length: u32,
        12 lkey: u32,
    }

    /// the remote memory of a READ or WRITE.
    16 struct ibv_send_wr_rdma {
        0 remote_addr: u64,
        8 rkey: u32,
    }

    /// an atomic operation.
    32 struct ibv_send_wr_atomic {
        0 remote_addr: u64,
        8 compare_add: u64,
        16 swap: u64,
        24 rkey: u32,
    }

    /// the receiver of a datagram.
    16 struct ibv_send_wr_ud {
        0 ah: *mut ibv_ah,
        8 remote_qpn: u32,
        12 remote_qkey: u32,
    }

    /// the part of a work request that depends on its operation.
    32 union ibv_send_wr_wr {
        0 rdma: ibv_send_wr_rdma,
        0 atomic: ibv_send_wr_atomic,
        0 ud: ibv_send_wr_ud,
    }

    /// a send request. `imm_data` is the immediate data, big-endian, or the key to invalidate.
    /// `qp_type` is the number of an XRC shared receive queue. `bind_mw` belongs to memory windows
    /// and segmentation, which aren't declared here.
    128 struct ibv_send_wr {
        0 wr_id: u64,
        8 next: *mut ibv_send_wr,
        16 sg_list: *mut ibv_sge,
        24 num_sge: i32,
        28 opcode: ibv_wr_opcode,
        32 send_flags: u32,
        36 imm_data: u32,
        40 wr: ibv_send_wr_wr,
        72 qp_type: u32,
        80 bind_mw: [u64; 6],
    }

    /// a receive request.
    32 struct ibv_recv_wr {
        0 wr_id: u64,
        8 next: *mut ibv_recv_wr,
        16 sg_list: *mut ibv_sge,
        24 num_sge: i32,
    }

    /// a tagged buffer to add to the list.
    40 struct ibv_ops_wr_add {
        0 recv_wr_id: u64,
        8 sg_list: *mut ibv_sge,
        16 num_sge: i32,
        24 tag: u64,
        32 mask: u64,
    }

    /// the arguments of a list operation. An addition writes `handle`.
    48 struct ibv_ops_wr_tm {
        0 unexpected_cnt: u32,
        4 handle: u32,
        8 add: ibv_ops_wr_add,
    }

    /// an operation on the list of tagged buffers.
    72 struct ibv_ops_wr {
        0 wr_id: u64,
        8 next: *mut ibv_ops_wr,
        16 opcode: ibv_ops_wr_opcode,
        20 flags: u32,
        24 tm: ibv_ops_wr_tm,
    }
}

constants! {
    VALUES_OF_QUEUES as u64, from "infiniband/verbs.h":

    /// the allowed accesses to registered memory, and the accesses that a queue pair grants its
    /// peer.
    ibv_access_flags: u32 {
        IBV_ACCESS_LOCAL_WRITE = 1,
        IBV_ACCESS_REMOTE_WRITE = 1 << 1,
        IBV_ACCESS_REMOTE_READ = 1 << 2,
        IBV_ACCESS_RELAXED_ORDERING = 1 << 20,
        IBV_ACCESS_OPTIONAL_RANGE = 0x3ff0_0000,
    }

    /// the kinds of shared receive queues.
    ibv_srq_type: u32 {
        IBV_SRQT_BASIC = 0,
        IBV_SRQT_TM = 2,
    }

    /// the fields of [`ibv_srq_init_attr_ex`] that are set.
    ibv_srq_init_attr_mask: u32 {
        IBV_SRQ_INIT_ATTR_TYPE = 1,
        IBV_SRQ_INIT_ATTR_PD = 1 << 1,
        IBV_SRQ_INIT_ATTR_XRCD = 1 << 2,
        IBV_SRQ_INIT_ATTR_CQ = 1 << 3,
        IBV_SRQ_INIT_ATTR_TM = 1 << 4,
    }

    /// the fields of [`ibv_srq_attr`] to change.
    ibv_srq_attr_mask: u32 {
        IBV_SRQ_LIMIT = 1 << 1,
    }

    /// the kinds of queue pairs.
    ibv_qp_type: u32 {
        IBV_QPT_RC = 2,
        IBV_QPT_UD = 4,
    }

    /// the fields of [`ibv_qp_attr`] to change.
    ibv_qp_attr_mask: u32 {
        IBV_QP_STATE = 1,
        IBV_QP_ACCESS_FLAGS = 1 << 3,
        IBV_QP_PKEY_INDEX = 1 << 4,
        IBV_QP_PORT = 1 << 5,
        IBV_QP_QKEY = 1 << 6,
        IBV_QP_AV = 1 << 7,
        IBV_QP_PATH_MTU = 1 << 8,
        IBV_QP_TIMEOUT = 1 << 9,
        IBV_QP_RETRY_CNT = 1 << 10,
        IBV_QP_RNR_RETRY = 1 << 11,
        IBV_QP_RQ_PSN = 1 << 12,
        IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
        IBV_QP_MIN_RNR_TIMER = 1 << 15,
        IBV_QP_SQ_PSN = 1 << 16,
        IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
        IBV_QP_DEST_QPN = 1 << 20,
    }

    /// the states of a queue pair.
    ibv_qp_state: u32 {
        IBV_QPS_RESET = 0,
        IBV_QPS_INIT = 1,
        IBV_QPS_RTR = 2,
        IBV_QPS_RTS = 3,
        IBV_QPS_SQD = 4,
        IBV_QPS_SQE = 5,
        IBV_QPS_ERR = 6,
    }

    /// the operations of send requests.
    ibv_wr_opcode: u32 {
        IBV_WR_RDMA_WRITE = 0,
        IBV_WR_RDMA_WRITE_WITH_IMM = 1,
        IBV_WR_SEND = 2,
        IBV_WR_SEND_WITH_IMM = 3,
        IBV_WR_RDMA_READ = 4,
    }

    /// flags of a send request.
    ibv_send_flags: u32 {
        IBV_SEND_SIGNALED = 1 << 1,
        IBV_SEND_INLINE = 1 << 3,
    }

    /// the kinds of list operations.
    ibv_ops_wr_opcode: u32 {
        IBV_WR_TAG_ADD = 0,
        IBV_WR_TAG_DEL = 1,
        IBV_WR_TAG_SYNC = 2,
    }

    /// flags of a list operation.
    ibv_ops_flags: u32 {
        IBV_OPS_SIGNALED = 1,
        IBV_OPS_TM_SYNC = 1 << 1,
    }
}
