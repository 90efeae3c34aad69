//! A queue pair on the queue: its state, and its requests that wait.

use std::collections::VecDeque;

use tagmatch_model::Handle;
use tagmatch_rdma_core_sys::{
    IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, ibv_qp_state,
};

use super::wire::NicRequest;

/// Most requests of one queue pair that the device has at once.
pub(crate) const REQUESTS_PER_PAIR: u32 = 16;

/// Bytes of a path's smallest packet, until the path is known.
const MTU_MIN: u32 = 256;

/// A queue pair.
#[derive(Debug)]
pub(super) struct Pair {
    /// Its send queue belongs to the NIC.
    pub(super) is_offloaded: bool,
    /// Bytes in a packet.
    pub(super) mtu: u32,
    /// The most READs that may be under way at once; `None` until it was set.
    pub(super) reads_max: Option<u8>,
    pub(super) state: ibv_qp_state,
    pub(super) requests: VecDeque<NicRequest>,
    /// Requests that the device has.
    pub(super) under_way: u32,
}

impl Pair {
    pub(super) fn new(is_offloaded: bool) -> Self {
        Pair {
            is_offloaded,
            mtu: MTU_MIN,
            reads_max: None,
            state: IBV_QPS_RESET,
            requests: VecDeque::new(),
            under_way: 0,
        }
    }

    /// Whether the device takes a request now. A queue pair in error takes requests, too, and
    /// flushes them.
    pub(super) fn is_ready(&self) -> bool {
        let can_send = [IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR].contains(&self.state);
        can_send && self.under_way < REQUESTS_PER_PAIR
    }
}

/// A request that the device has.
#[derive(Clone, Copy, Debug)]
pub(super) struct BegunRequest {
    pub(super) pair: u32,
    pub(super) handle: Handle,
    pub(super) is_fin: bool,
}

/// The attributes that the program has changed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PairChange {
    pub(crate) state: Option<ibv_qp_state>,
    /// Bytes in a packet.
    pub(crate) mtu: Option<u32>,
    pub(crate) reads_max: Option<u8>,
}
