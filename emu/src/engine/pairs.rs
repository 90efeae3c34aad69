//! Queue pairs on the queue: what is known of each, and how they change.

use std::collections::VecDeque;

use tagmatch_model::QueuePair;
use tagmatch_rdma_core_sys::{
    IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, ibv_qp_state,
};

use super::requests::{PER_PAIR, Request};
use super::{Engine, Wire};

/// Bytes of a path's smallest packet, until the path is known.
const MTU_MIN: u32 = 256;

/// A queue pair.
#[derive(Debug)]
pub(super) struct Pair {
    /// Its send queue belongs to the NIC.
    pub(super) is_offloaded: bool,
    /// Bytes in a packet.
    pub(super) mtu: u32,
    /// READs that it may have under way, once that was set.
    pub(super) reads_max: Option<u8>,
    state: ibv_qp_state,
    pub(super) requests: VecDeque<Request>,
    /// Requests that the device has.
    pub(super) under_way: u32,
}

impl Pair {
    /// Whether the device takes a request now. In error it does as well, and flushes it.
    pub(super) fn is_ready(&self) -> bool {
        let can_send = [IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR].contains(&self.state);
        can_send && self.under_way < PER_PAIR
    }
}

/// What the program has changed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PairChange {
    pub(crate) state: Option<ibv_qp_state>,
    /// Bytes in a packet.
    pub(crate) mtu: Option<u32>,
    pub(crate) reads_max: Option<u8>,
}

impl<W: Wire> Engine<W> {
    /// A queue pair was made.
    pub(crate) fn add_pair(&mut self, number: u32, is_offloaded: bool) {
        let pair = Pair {
            is_offloaded,
            mtu: MTU_MIN,
            reads_max: None,
            state: IBV_QPS_RESET,
            requests: VecDeque::new(),
            under_way: 0,
        };
        self.pairs.insert(number, pair);
    }

    /// A queue pair was changed.
    pub(crate) fn change_pair(&mut self, number: u32, change: PairChange) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        pair.mtu = change.mtu.unwrap_or(pair.mtu);
        pair.reads_max = change.reads_max.or(pair.reads_max);
        pair.state = change.state.unwrap_or(pair.state);
        match change.state {
            Some(IBV_QPS_ERR) => {
                self.nic.queue_pair_down(QueuePair(number));
                self.begin_requests(number);
            }
            Some(IBV_QPS_RESET) => {
                self.nic.queue_pair_down(QueuePair(number));
                self.drop_requests(number);
                self.nic.forget(QueuePair(number));
            }
            _ => self.begin_requests(number),
        }
    }

    /// The NIC has put a queue pair into error.
    pub(super) fn break_pair(&mut self, number: u32) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        pair.state = IBV_QPS_ERR;
        self.wire.break_pair(number);
        self.begin_requests(number);
    }

    /// A queue pair was destroyed.
    pub(crate) fn remove_pair(&mut self, number: u32) {
        self.change_pair(number, PairChange { state: Some(IBV_QPS_RESET), ..Default::default() });
        self.pairs.remove(&number);
        self.carry_out();
    }

    /// Whether queue pairs are on the queue.
    pub(crate) fn has_pairs(&self) -> bool {
        !self.pairs.is_empty()
    }
}
