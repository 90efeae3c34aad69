//! The transfers of matched rendezvous: READ, then FIN.

use tagmatch_device::tm::{RVH_BYTES, Rvh, TMH_BYTES};

use crate::completion::QueuePair;
use crate::{Completion, Handle};

/// Bytes in TMH and RVH together.
pub const HEADERS_BYTES: usize = TMH_BYTES + RVH_BYTES;

/// When a queue pair fails at a message that an entry matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureTime {
    /// Before the message, so that the entry stays.
    Before,
    /// After the message, so that the entry is used up. Data that completes apart never does.
    After,
}

/// The reason of a failure that [`Knobs::queue_pair_error`](crate::Knobs::queue_pair_error) caused.
pub const QUEUE_PAIR_FAILED: &str = "the queue pair failed";
/// The reason of a failure whose cause is a READ that failed.
pub const READ_FAILED: &str = "a READ of the peer's memory failed";

/// Work that the host does for the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// An RDMA READ of `remote.len` bytes into the start of the entry's buffer;
    /// [`Nic::read_done`](crate::Nic::read_done) ends it.
    Read {
        /// The matched entry.
        handle: Handle,
        /// The queue pair of the sender.
        queue_pair: QueuePair,
        /// The sender's memory.
        remote: Rvh,
    },
    /// A FIN to the sender of a rendezvous, after the READ has ended;
    /// [`Nic::fin_done`](crate::Nic::fin_done) ends it.
    Fin {
        /// The matched entry.
        handle: Handle,
        /// The queue pair of the sender.
        queue_pair: QueuePair,
        /// The message, of which the first `length` bytes are sent.
        headers: [u8; HEADERS_BYTES],
        /// 16 for a TMH alone, 32 for TMH and RVH.
        length: usize,
    },
    /// The queue pair is in error (`IBV_EVENT_QP_FATAL`), and no further message arrives on it.
    /// Matches that the NIC has already decided still complete.
    Broken {
        /// The failed queue pair.
        queue_pair: QueuePair,
        /// The reason of the failure.
        why: &'static str,
    },
}

/// The state of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferState {
    /// The READ starts at this tick.
    ReadDue(u64),
    /// The host is reading.
    Reading,
    /// The FIN is sent at this tick.
    FinDue(u64),
    /// The host is sending the FIN.
    Finishing,
}

/// A matched rendezvous that has not completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) handle: Handle,
    pub(crate) queue_pair: QueuePair,
    pub(crate) remote: Rvh,
    pub(crate) headers: [u8; HEADERS_BYTES],
    /// The last completion of the match, if the transfer succeeds. `None` once it was given.
    pub(crate) completion: Option<Completion>,
    /// The number of the receive completion that it must follow.
    pub(crate) after: u64,
    pub(crate) state: TransferState,
}

impl Transfer {
    /// Whether the next step has not started.
    fn is_idle(&self) -> bool {
        matches!(self.state, TransferState::ReadDue(_) | TransferState::FinDue(_))
    }
}

/// A step of a transfer that is due.
pub(crate) enum Due {
    Read(Transfer),
    Fin(Transfer),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Transfers {
    under_way: Vec<Transfer>,
}

impl Transfers {
    pub(crate) fn push(&mut self, transfer: Transfer) {
        self.under_way.push(transfer);
    }

    /// The next step that is due. It counts as started.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<Due> {
        for transfer in &mut self.under_way {
            match transfer.state {
                TransferState::ReadDue(due) if due <= now => {
                    transfer.state = TransferState::Reading;
                    return Some(Due::Read(*transfer));
                }
                TransferState::FinDue(due) if due <= now => {
                    transfer.state = TransferState::Finishing;
                    return Some(Due::Fin(*transfer));
                }
                _ => {}
            }
        }
        None
    }

    /// Takes out the transfer whose READ the host was doing.
    pub(crate) fn take_reading(&mut self, handle: Handle) -> Option<Transfer> {
        self.take(|transfer| transfer.handle == handle && transfer.state == TransferState::Reading)
    }

    /// Takes out the transfer whose FIN the host was sending.
    pub(crate) fn take_finishing(&mut self, handle: Handle) -> Option<Transfer> {
        self.take(|transfer| {
            transfer.handle == handle && transfer.state == TransferState::Finishing
        })
    }

    /// Takes out a transfer of the queue pair that waits for its READ or FIN to start.
    pub(crate) fn take_idle(&mut self, queue_pair: QueuePair) -> Option<Transfer> {
        self.take(|transfer| transfer.queue_pair == queue_pair && transfer.is_idle())
    }

    fn take(&mut self, wanted: impl Fn(&Transfer) -> bool) -> Option<Transfer> {
        let at = self.under_way.iter().position(wanted)?;
        Some(self.under_way.remove(at))
    }

    pub(crate) fn has(&self, queue_pair: QueuePair) -> bool {
        self.under_way.iter().any(|transfer| transfer.queue_pair == queue_pair)
    }

    /// How many transfers have a step that the host is doing.
    pub(crate) fn started(&self) -> usize {
        self.under_way.iter().filter(|transfer| !transfer.is_idle()).count()
    }

    /// Whether a transfer waits for a tick.
    pub(crate) fn is_holding(&self) -> bool {
        self.under_way.iter().any(Transfer::is_idle)
    }
}
