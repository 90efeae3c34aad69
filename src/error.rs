//! Errors of this crate.

use std::fmt;

use tagmatch_device::{Address, Buffer, DeviceError, limit_of};
use tagmatch_fallback::{Fault, PeerFault};

use crate::Peer;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The peer that the operation depends on is down; it stays so. A process that is started anew
    /// has a new address.
    #[error("{peer} is down: {fault}")]
    PeerDown {
        /// Which peer.
        peer: Peer,
        /// Why.
        fault: PeerFault,
    },
    /// The receive was cancelled before a message matched it.
    #[error("the receive was cancelled before a message matched it")]
    Cancelled,
    /// The NIC matched a receive that was promised messages of one peer only
    /// ([`Match::sent_only_by`](crate::Match::sent_only_by)) to a message of another one, which is
    /// lost. The program of one of them is wrong, or `sender` is hostile; it is not disconnected.
    #[error("{sender} sent a message with a tag that only {named} sends messages with")]
    WrongSender {
        /// The peer that the receive names.
        named: Peer,
        /// The peer that sent the message.
        sender: Peer,
    },
    /// The operation was refused or broke; the text says how.
    #[error("{0}")]
    Operation(Fault),
    /// There is no memory for a message that is to be received whole. It was discarded.
    #[error("there is no memory for a message of {length} bytes; it was discarded")]
    NoMemory {
        /// The message's length, as its sender has announced it.
        length: usize,
    },
    /// The bytes are no token of a region, or one of another version of this crate.
    #[error("these bytes are no token of a region of this version of tagmatch")]
    BadToken,
    /// The bytes don't lie in the region, or can't be written.
    #[error(
        "{length} bytes at {at} of a region of {region} bytes, or memory that can't be written"
    )]
    OutOfRegion {
        /// The first byte's place.
        at: usize,
        /// How many bytes.
        length: usize,
        /// Bytes of the region.
        region: usize,
    },
    /// The peer belongs to another worker.
    #[error("{peer} belongs to another worker")]
    ForeignPeer {
        /// The peer that was given.
        peer: Peer,
    },
    /// The result was taken before, by [`crate::Request::test`] or by polling the future.
    #[error("the request's result was taken before")]
    AlreadyTaken,
    /// A system call of a blocking wait failed.
    #[error("waiting for {address}: {source}{}", limit_of(source))]
    Wait {
        /// The worker that waited. Boxed, since every result of an operation has room for an error.
        address: Box<Address>,
        /// The error of the system call.
        source: std::io::Error,
    },
}

impl Error {
    /// Makes an error of a worker that can't wait.
    pub(crate) fn wait(address: Address) -> impl Fn(std::io::Error) -> Self {
        move |source| Error::Wait { address: Box::new(address), source }
    }
}

/// A failed operation: what went wrong, and the buffer that it owned.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failed {
    /// What went wrong.
    #[source]
    pub error: Error,
    /// The operation's buffer; its contents are unspecified if a receive failed.
    pub buffer: Buffer,
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

impl Error {
    pub(crate) fn from_fault(fault: Fault, worker: u32) -> Self {
        let peer = |id| Peer { id, worker };
        match fault {
            Fault::PeerDown { peer: id, fault } => Error::PeerDown { peer: peer(id), fault },
            Fault::WrongSender { named, sender } => {
                Error::WrongSender { named: peer(named), sender: peer(sender) }
            }
            Fault::Cancelled => Error::Cancelled,
            other => Error::Operation(other),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.id, f)
    }
}
