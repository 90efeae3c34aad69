//! A batch of completions taken from the completion queue.

use tagmatch_rdma_core_sys as sys;

/// Most completions in a batch.
const BATCH: usize = 16;

/// The completions, of which `next..count` aren't handled yet, and the buffer that the last event
/// borrows.
pub(super) struct Batch {
    pub(super) completions: [sys::ibv_wc; BATCH],
    /// Tag and context of the messages that the NIC's list has matched.
    pub(super) tags: [sys::ibv_wc_tm_info; BATCH],
    pub(super) next: usize,
    pub(super) count: usize,
    pub(super) lent: Option<MessageBuffer>,
}

/// The buffer that holds a message.
#[derive(Clone, Copy)]
pub(super) enum MessageBuffer {
    /// A buffer of the receive queue.
    Receive(u32),
    /// A buffer for FINs.
    Fin(u32),
}

impl Default for Batch {
    fn default() -> Self {
        let completions = [sys::ibv_wc::zeroed(); BATCH];
        let tags = [sys::ibv_wc_tm_info::zeroed(); BATCH];
        Batch { completions, tags, next: 0, count: 0, lent: None }
    }
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.next == self.count
    }
}
