//! The entries of the completion queue, and the names of queued operations.

use tagmatch_device::Buffer;
use tagmatch_fallback::{self as fallback, Completion, PeerFault, Posted, Refused, RequestId};

use crate::access::Access;
use crate::envelope::{Peer, Status};
use crate::error::{Error, Failed};

/// An entry of the completion queue: the end of an operation, or news of a peer. See
/// [`WorkerOf::ends`](crate::WorkerOf::ends).
#[derive(Debug)]
#[non_exhaustive]
pub enum End {
    /// A queued operation is over.
    Operation {
        /// The number that the caller gave with the operation.
        context: u64,
        /// The message's envelope, or what went wrong. For a send, the envelope's source is the
        /// peer that the message went to.
        result: Result<Status, Error>,
        /// The operation's buffer. Its contents are unspecified if a receive failed.
        buffer: Buffer,
    },
    /// A peer is connected, whichever of the two began it. Told once, if
    /// [`Config::peer_events`](crate::Config::peer_events) is set, and not for
    /// [`oneself`](crate::WorkerOf::oneself).
    PeerUp {
        /// Which peer.
        peer: Peer,
    },
    /// A peer is down, and stays so. Told once, as [`End::PeerUp`] is, which may be missing: a peer
    /// that could not be reached was never up. Sends to it have ended before; so have receives that
    /// name it, except those that a NIC has to give back first.
    PeerDown {
        /// Which peer.
        peer: Peer,
        /// Why. [`PeerFault::Left`] and [`PeerFault::Disconnected`] are no faults.
        fault: PeerFault,
    },
}

/// Names a queued operation that is under way, to cancel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueuedRequest {
    request: RequestId,
    worker: u32,
}

/// What became of a queued send at once.
#[derive(Debug)]
#[must_use = "a send that is complete has no end in the queue; its buffer is here"]
pub enum QueuedSend {
    /// It is complete, and there will be no end; its buffer.
    Complete(Buffer),
    /// Its end comes in the completion queue.
    UnderWay(QueuedRequest),
}

impl QueuedRequest {
    #[inline(always)]
    pub(crate) fn begun<A: Access>(access: &A, posted: Posted) -> Result<Self, Failed> {
        let worker = access.fixed().worker;
        match posted {
            Ok(request) => Ok(QueuedRequest { request, worker }),
            Err(refused) => Err(failed(*refused, worker)),
        }
    }

    /// The operation, if it is one of this worker.
    pub(crate) fn of(self, worker: u32) -> Option<RequestId> {
        (self.worker == worker).then_some(self.request)
    }
}

#[cold]
fn failed(refused: Refused, worker: u32) -> Failed {
    Failed { error: Error::from_fault(refused.fault, worker), buffer: refused.buffer }
}

impl End {
    pub(crate) fn new(end: fallback::End, worker: u32) -> Self {
        match end {
            fallback::End::Operation { context, completion: Completion { result, buffer } } => {
                let result = match result {
                    Ok(status) => Ok(Status::new(status, worker)),
                    Err(fault) => Err(Error::from_fault(fault, worker)),
                };
                End::Operation { context, result, buffer }
            }
            fallback::End::PeerUp { peer } => End::PeerUp { peer: Peer { id: peer, worker } },
            fallback::End::PeerDown { peer, fault } => {
                End::PeerDown { peer: Peer { id: peer, worker }, fault }
            }
        }
    }
}
