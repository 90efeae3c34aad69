//! What the device is to do, decided while an event was looked at.

use tagmatch_device::{Buffer, ExposureId, PeerId, RemoteSpan};

use crate::error::{Fault, PeerFault};
use crate::requests::request::{RequestId, Status};

/// Something that the device is to do.
#[derive(Clone, Debug)]
pub(crate) enum Todo {
    /// Send 16 bytes: a FIN, a credit, an abort.
    Control(PeerId, [u8; 16]),
    /// Read a matched message out of its sender's memory.
    Read { request: RequestId, peer: PeerId, span: RemoteSpan, buffer: Buffer },
    /// A send has ended: take its buffer back and complete it.
    Finish(Operation, Result<(), Fault>),
    /// Send what waits for a peer: there is credit or a connection now.
    Flush(PeerId),
    /// Break with a peer.
    Break(PeerId, PeerFault),
    /// Bring the NIC's list up to date.
    Offload,
    /// Tell the completion queue that a peer is down, after all else that follows from it.
    TellDown(PeerId, PeerFault),
}

/// A send that ends with a FIN or an abort.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) request: RequestId,
    pub(crate) status: Status,
    pub(crate) memory: SendMemory,
}

impl Operation {
    /// Whether its peer has yet to read the buffer.
    pub(crate) fn is_unread(&self) -> bool {
        matches!(self.memory, SendMemory::Exposed(_))
    }
}

/// Where the bytes of an operation are until it ends.
#[derive(Clone, Debug)]
pub(crate) enum SendMemory {
    /// In a buffer that the peer may read.
    Exposed(ExposureId),
    /// The device has sent them already; the buffer goes back to its owner at the end.
    Sent(Buffer),
}
