//! What the NIC does by itself for a matched rendezvous: READ, then FIN.

use super::completion::QueuePair;
use super::{Completion, Handle};
use tagmatch_device::tm::{RVH_BYTES, Rvh, TMH_BYTES};

/// TMH and RVH.
pub const HEADERS_BYTES: usize = TMH_BYTES + RVH_BYTES;

/// Something that the NIC wants its host to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// An RDMA READ of `remote.len` bytes into the start of the entry's buffer;
    /// [`Nic::read_done`](super::Nic::read_done) ends it.
    Read {
        /// Which entry.
        handle: Handle,
        /// From whom.
        queue_pair: QueuePair,
        /// What.
        remote: Rvh,
    },
    /// A FIN to the sender of a rendezvous, after all bytes of the READ have come;
    /// [`Nic::fin_done`](super::Nic::fin_done) ends it.
    Fin {
        /// Which entry.
        handle: Handle,
        /// To whom.
        queue_pair: QueuePair,
        /// The message; the first `length` bytes of it.
        headers: [u8; HEADERS_BYTES],
        /// 16 (TMH alone) or 32 (RVH as well).
        length: usize,
    },
    /// The queue pair is in error (`IBV_EVENT_QP_FATAL`): nothing comes in on it any more. What was
    /// decided before still completes.
    Broken {
        /// Which.
        queue_pair: QueuePair,
        /// Why.
        why: &'static str,
    },
}

/// How far a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The READ begins at a tick.
    ReadDue(u64),
    /// The host reads.
    Reading,
    /// The FIN is sent at a tick.
    FinDue(u64),
    /// The host sends the FIN.
    Finishing,
}

/// A matched rendezvous whose data is not there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) handle: Handle,
    pub(super) queue_pair: QueuePair,
    pub(super) remote: Rvh,
    pub(super) headers: [u8; HEADERS_BYTES],
    /// Its last completion, if all goes well.
    pub(super) completion: Completion,
    /// The receive completion that it comes after.
    pub(super) after: u64,
    stage: Stage,
}

impl Transfer {
    pub(super) fn new(
        headers: [u8; HEADERS_BYTES],
        remote: Rvh,
        completion: Completion,
        (handle, queue_pair): (Handle, QueuePair),
        after: u64,
    ) -> Self {
        let stage = Stage::ReadDue(0);
        Transfer { handle, queue_pair, remote, headers, completion, after, stage }
    }
}

/// What became due.
pub(super) enum Due {
    Read(Transfer),
    Fin(Transfer),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Transfers {
    under_way: Vec<Transfer>,
}

impl Transfers {
    /// Begins one: the READ at a tick. One of nothing is not read, its FIN is due then.
    pub(super) fn begin(&mut self, transfer: Transfer, due: u64) {
        let is_empty = transfer.remote.len == 0;
        let stage = if is_empty { Stage::FinDue(due) } else { Stage::ReadDue(due) };
        self.under_way.push(Transfer { stage, ..transfer });
    }

    /// The next step that is due; it counts as begun.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<Due> {
        for transfer in &mut self.under_way {
            match transfer.stage {
                Stage::ReadDue(due) if due <= now => {
                    transfer.stage = Stage::Reading;
                    return Some(Due::Read(*transfer));
                }
                Stage::FinDue(due) if due <= now => {
                    transfer.stage = Stage::Finishing;
                    return Some(Due::Fin(*transfer));
                }
                _ => {}
            }
        }
        None
    }

    /// The host has read everything: the FIN is sent at a tick.
    pub(super) fn fin_at(&mut self, transfer: Transfer, due: u64) {
        self.under_way.push(Transfer { stage: Stage::FinDue(due), ..transfer });
    }

    /// Takes out the one whose READ the host was doing.
    pub(super) fn take_reading(&mut self, handle: Handle) -> Option<Transfer> {
        self.take(|transfer| transfer.handle == handle && transfer.stage == Stage::Reading)
    }

    /// Takes out the one whose FIN the host was sending.
    pub(super) fn take_finishing(&mut self, handle: Handle) -> Option<Transfer> {
        self.take(|transfer| transfer.handle == handle && transfer.stage == Stage::Finishing)
    }

    /// Takes out one of a queue pair that the host is not busy with.
    pub(super) fn take_idle(&mut self, queue_pair: QueuePair) -> Option<Transfer> {
        let is_idle = |stage| matches!(stage, Stage::ReadDue(_) | Stage::FinDue(_));
        self.take(|transfer| transfer.queue_pair == queue_pair && is_idle(transfer.stage))
    }

    fn take(&mut self, wanted: impl Fn(&Transfer) -> bool) -> Option<Transfer> {
        let at = self.under_way.iter().position(wanted)?;
        Some(self.under_way.remove(at))
    }

    pub(super) fn has(&self, queue_pair: QueuePair) -> bool {
        self.under_way.iter().any(|transfer| transfer.queue_pair == queue_pair)
    }

    /// Whether one waits for a tick.
    pub(super) fn is_holding(&self) -> bool {
        let waits =
            |transfer: &Transfer| matches!(transfer.stage, Stage::ReadDue(_) | Stage::FinDue(_));
        self.under_way.iter().any(waits)
    }
}
