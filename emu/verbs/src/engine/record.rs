//! A completion of the NIC in the form that the program polls.

use tagmatch_model::{Completion, WcFlags};
use tagmatch_rdma_core_sys::{IBV_WC_WITH_IMM, ibv_wc, ibv_wc_status, ibv_wc_tm_info};

/// An entry of an extended completion queue.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    pub(crate) wc: ibv_wc,
    pub(crate) tm_info: ibv_wc_tm_info,
}

impl Record {
    /// A completion without a tag.
    pub(crate) const fn plain(wc: ibv_wc) -> Self {
        Record { wc, tm_info: ibv_wc_tm_info::zeroed() }
    }

    pub(super) fn new(completion: &Completion, wr_id: u64, status: ibv_wc_status) -> Self {
        let mut wc = ibv_wc::zeroed();
        wc.wr_id = wr_id;
        wc.status = status;
        wc.opcode = completion.opcode as u32;
        let WcFlags(flags) = completion.flags;
        wc.wc_flags = flags;
        if let Some(immediate) = completion.immediate {
            wc.wc_flags |= IBV_WC_WITH_IMM;
            wc.imm_data = immediate;
        }
        // No message is longer than 32 bits can say.
        wc.byte_len = u32::try_from(completion.length).unwrap_or(u32::MAX);
        wc.qp_num = completion.queue_pair.map_or(0, |queue_pair| queue_pair.0);
        let mut tm_info = ibv_wc_tm_info::zeroed();
        tm_info.tag = completion.tm_info.tag;
        tm_info.priv_ = completion.tm_info.app_ctx;
        Record { wc, tm_info }
    }
}
