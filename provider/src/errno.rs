//! Error numbers of libfabric.

use std::ffi::CStr;

use tagmatch::{Error, Fault, PeerFault, RemoteFault};
use tagmatch_ofi_provider::Failure;

pub(crate) use tagmatch_ofi_sys::calls::{Errno, Result};

/// Own numbers in `prov_errno`, for which `fi_cq_strerror` has words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Reason {
    None,
    Cancelled,
    Truncated,
    NoMessage,
    PeerGone,
    PeerLeft,
    PeerUnreachable,
    Shortage,
    PeerBrokeRules,
    NotRead,
    Device,
    NoRegion,
    RegionClosed,
    NoRight,
    OutOfRegion,
    Other,
}

impl Reason {
    const ALL: [Reason; 16] = [
        Reason::None,
        Reason::Cancelled,
        Reason::Truncated,
        Reason::NoMessage,
        Reason::PeerGone,
        Reason::PeerLeft,
        Reason::PeerUnreachable,
        Reason::Shortage,
        Reason::PeerBrokeRules,
        Reason::NotRead,
        Reason::Device,
        Reason::NoRegion,
        Reason::RegionClosed,
        Reason::NoRight,
        Reason::OutOfRegion,
        Reason::Other,
    ];

    /// The words for a number that an error entry had.
    pub(crate) fn words(number: i32) -> &'static CStr {
        let found = Self::ALL.into_iter().find(|reason| *reason as i32 == number);
        match found {
            None => c"unknown error number",
            Some(Reason::None) => c"no error",
            Some(Reason::Cancelled) => c"the receive was cancelled before a message matched it",
            Some(Reason::Truncated) => c"the message was longer than the buffer of the receive",
            Some(Reason::NoMessage) => c"no message that matches is waiting",
            Some(Reason::PeerGone) => c"the peer's process ended without a word",
            Some(Reason::PeerLeft) => c"the peer closed its endpoint",
            Some(Reason::PeerUnreachable) => {
                c"the peer can't be reached: is its endpoint open, and on a network that both have?"
            }
            Some(Reason::Shortage) => {
                c"this process lacks descriptors or memory for a connection (ulimit -n, -l, -v)"
            }
            Some(Reason::PeerBrokeRules) => c"the peer sent what can't be a message",
            Some(Reason::NotRead) => c"the message was matched, but could not be read",
            Some(Reason::Device) => c"the device refused or failed",
            Some(Reason::NoRegion) => c"the peer has no memory region with this key",
            Some(Reason::RegionClosed) => {
                c"the peer closed the memory region while the operation was under way"
            }
            Some(Reason::NoRight) => c"the memory region was registered for other operations",
            Some(Reason::OutOfRegion) => c"not all of the bytes lie in the memory region",
            Some(Reason::Other) => c"the operation failed",
        }
    }
}

/// A failure with libfabric's number and our own.
pub(crate) fn failure(errno: Errno, reason: Reason) -> Failure {
    Failure::new(errno, reason as i32)
}

/// The failure for an error of tagmatch.
pub(crate) fn of_error(error: &Error) -> Failure {
    let (errno, reason) = numbers(error);
    failure(errno, reason)
}

fn numbers(error: &Error) -> (Errno, Reason) {
    match error {
        Error::Cancelled => (Errno::CANCELED, Reason::Cancelled),
        Error::PeerDown { fault, .. } => match fault {
            PeerFault::Left | PeerFault::Disconnected => (Errno::NOT_CONNECTED, Reason::PeerLeft),
            PeerFault::Unreachable { .. } => (Errno::HOST_UNREACHABLE, Reason::PeerUnreachable),
            PeerFault::Shortage(_) => (Errno::NO_MEMORY, Reason::Shortage),
            PeerFault::Failed { .. } => (Errno::IO, Reason::Device),
            PeerFault::Protocol(_) | PeerFault::Device { .. } => {
                (Errno::CONNECTION_ABORTED, Reason::PeerBrokeRules)
            }
            _ => (Errno::CONNECTION_RESET, Reason::PeerGone),
        },
        Error::Device(_) => (Errno::IO, Reason::Device),
        Error::NoMemory { .. } => (Errno::NO_MEMORY, Reason::Other),
        Error::Operation(Fault::Remote { fault, .. }) => match fault {
            RemoteFault::NoRegion => (Errno::NO_KEY, Reason::NoRegion),
            RemoteFault::Closed => (Errno::NO_KEY, Reason::RegionClosed),
            RemoteFault::NoRight => (Errno::NO_ACCESS, Reason::NoRight),
            RemoteFault::OutOfBounds => (Errno::NO_ACCESS, Reason::OutOfRegion),
            _ => (Errno::OTHER, Reason::Other),
        },
        Error::Operation(_) => (Errno::IO, Reason::NotRead),
        _ => (Errno::OTHER, Reason::Other),
    }
}
