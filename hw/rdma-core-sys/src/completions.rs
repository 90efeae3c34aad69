//! Completion queues, work completions, asynchronous events.

use std::ffi::c_void;

use libc::{pthread_cond_t, pthread_mutex_t};
use tagmatch_sys::{constants, structures};

use crate::context::ibv_context;
use crate::queues::{ibv_pd, ibv_qp, ibv_srq};

structures! {
    COMPLETIONS from "infiniband/verbs.h":

    /// a channel that reports the events of completion queues.
    16 struct ibv_comp_channel {
        0 context: *mut ibv_context,
        8 fd: i32,
        12 refcnt: i32,
    }

    /// a completion queue.
    128 struct ibv_cq {
        0 context: *mut ibv_context,
        8 channel: *mut ibv_comp_channel,
        16 cq_context: *mut c_void,
        24 handle: u32,
        28 cqe: i32,
        32 mutex: pthread_mutex_t,
        72 cond: pthread_cond_t,
        120 comp_events_completed: u32,
        124 async_events_completed: u32,
    }

    /// room for later extensions of polling; zero.
    4 struct ibv_poll_cq_attr {
        0 comp_mask: u32,
    }

    /// the fields of a tagged message's header, in the host's byte order.
    16 struct ibv_wc_tm_info {
        0 tag: u64,
        8 priv_: u32,
    }

    /// an extended completion queue. Its first fields are those of [`ibv_cq`].
    288 struct ibv_cq_ex {
        0 context: *mut ibv_context,
        8 channel: *mut ibv_comp_channel,
        16 cq_context: *mut c_void,
        24 handle: u32,
        28 cqe: i32,
        32 mutex: pthread_mutex_t,
        72 cond: pthread_cond_t,
        120 comp_events_completed: u32,
        124 async_events_completed: u32,
        128 comp_mask: u32,
        132 status: ibv_wc_status,
        136 wr_id: u64,
        144 start_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> i32>,
        152 next_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> i32>,
        160 end_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex)>,
        168 read_opcode: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> ibv_wc_opcode>,
        176 read_vendor_err: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        184 read_byte_len: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        192 read_imm_data: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        200 read_qp_num: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        208 read_src_qp: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        216 read_wc_flags: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        224 read_slid: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        232 read_sl: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u8>,
        240 read_dlid_path_bits: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u8>,
        248 read_completion_ts: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u64>,
        256 read_cvlan: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u16>,
        264 read_flow_tag: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        272 read_tm_info: Option<unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_wc_tm_info)>,
        280 read_completion_wallclock_ns: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u64>,
    }

    /// the attributes with which an extended completion queue is created.
    56 struct ibv_cq_init_attr_ex {
        0 cqe: u32,
        8 cq_context: *mut c_void,
        16 channel: *mut ibv_comp_channel,
        24 comp_vector: u32,
        32 wc_flags: u64,
        40 comp_mask: u32,
        44 flags: u32,
        48 parent_domain: *mut ibv_pd,
    }

    /// a work completion. `imm_data` is the immediate data, big-endian, or an invalidated key.
    48 struct ibv_wc {
        0 wr_id: u64,
        8 status: ibv_wc_status,
        12 opcode: ibv_wc_opcode,
        16 vendor_err: u32,
        20 byte_len: u32,
        24 imm_data: u32,
        28 qp_num: u32,
        32 src_qp: u32,
        36 wc_flags: u32,
        40 pkey_index: u16,
        42 slid: u16,
        44 sl: u8,
        45 dlid_path_bits: u8,
    }

    /// the object that an asynchronous event is about.
    8 union ibv_async_event_element {
        0 cq: *mut ibv_cq,
        0 qp: *mut ibv_qp,
        0 srq: *mut ibv_srq,
        0 port_num: i32,
    }

    /// an asynchronous event.
    16 struct ibv_async_event {
        0 element: ibv_async_event_element,
        8 event_type: ibv_event_type,
    }
}

constants! {
    VALUES_OF_COMPLETIONS as u64, from "infiniband/verbs.h":

    /// the results of work requests.
    ibv_wc_status: u32 {
        IBV_WC_SUCCESS = 0,
        IBV_WC_LOC_LEN_ERR = 1,
        IBV_WC_LOC_QP_OP_ERR = 2,
        IBV_WC_LOC_PROT_ERR = 4,
        IBV_WC_WR_FLUSH_ERR = 5,
        IBV_WC_MW_BIND_ERR = 6,
        IBV_WC_BAD_RESP_ERR = 7,
        IBV_WC_LOC_ACCESS_ERR = 8,
        IBV_WC_REM_INV_REQ_ERR = 9,
        IBV_WC_REM_ACCESS_ERR = 10,
        IBV_WC_RETRY_EXC_ERR = 12,
        IBV_WC_RNR_RETRY_EXC_ERR = 13,
        IBV_WC_FATAL_ERR = 19,
        IBV_WC_GENERAL_ERR = 21,
        IBV_WC_TM_ERR = 22,
        IBV_WC_TM_RNDV_INCOMPLETE = 23,
    }

    /// the operations whose completions are reported.
    ibv_wc_opcode: u32 {
        IBV_WC_SEND = 0,
        IBV_WC_RECV = 1 << 7,
        IBV_WC_RECV_RDMA_WITH_IMM = 129,
        IBV_WC_TM_ADD = 130,
        IBV_WC_TM_DEL = 131,
        IBV_WC_TM_SYNC = 132,
        IBV_WC_TM_RECV = 133,
        IBV_WC_TM_NO_TAG = 134,
    }

    /// flags of a completion.
    ibv_wc_flags: u32 {
        IBV_WC_GRH = 1,
        IBV_WC_WITH_IMM = 1 << 1,
        IBV_WC_TM_SYNC_REQ = 1 << 4,
        IBV_WC_TM_MATCH = 1 << 5,
        IBV_WC_TM_DATA_VALID = 1 << 6,
    }

    /// the facts that an extended completion queue can report.
    ibv_create_cq_wc_flags: u64 {
        IBV_WC_EX_WITH_TM_INFO = 1 << 10,
        IBV_WC_STANDARD_FLAGS = 0x7f,
    }

    /// the kinds of asynchronous events.
    ibv_event_type: u32 {
        IBV_EVENT_CQ_ERR = 0,
        IBV_EVENT_QP_FATAL = 1,
        IBV_EVENT_QP_REQ_ERR = 2,
        IBV_EVENT_QP_ACCESS_ERR = 3,
        IBV_EVENT_DEVICE_FATAL = 8,
        IBV_EVENT_PORT_ACTIVE = 9,
        IBV_EVENT_PORT_ERR = 10,
        IBV_EVENT_LID_CHANGE = 11,
        IBV_EVENT_PKEY_CHANGE = 12,
        IBV_EVENT_SRQ_ERR = 14,
        IBV_EVENT_CLIENT_REREGISTER = 17,
        IBV_EVENT_GID_CHANGE = 18,
    }
}
