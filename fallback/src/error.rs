//! Why operations fail, and why peers are down.

use tagmatch_device::{Bug, DeviceError, DownReason, PeerId, Shortage, errno_text};

use crate::wire::{RemoteFault, WireError};

/// Why a peer is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerFault {
    /// Its process ended, or the connection did, without a word.
    #[error("its process ended without a word")]
    Gone,
    /// It left in order: its worker was dropped, or disconnected this one. Not counted as a fault.
    #[error("its worker was dropped, or disconnected this one")]
    Left,
    /// It could not be reached.
    #[error("{}", unreachable_text(*errno))]
    Unreachable {
        /// Error number of the last attempt, 0 if there was none.
        errno: i32,
    },
    /// This worker lacked what a connection to it needs, for as long as connecting may take. The
    /// peer may live, and may be reached by others.
    #[error("no connection could be made: {0}")]
    Shortage(Shortage),
    /// This worker's end of the connection failed: its device, or what it asked the device for. The
    /// peer may live, and may be reached by others.
    #[error("this worker's end of the connection failed: {what}{}", show_errno(*errno))]
    Failed {
        /// What failed.
        what: &'static str,
        /// Error number of the call that failed, 0 if it was no call.
        errno: i32,
    },
    /// What it sent can't be a message of this protocol.
    #[error("it broke the protocol: {0}")]
    Protocol(WireError),
    /// What it wrote into the device's memory can't be right.
    #[error("it broke the device's rules: {what}")]
    Device {
        /// The rule.
        what: &'static str,
    },
    /// This worker broke with it.
    #[error("this worker disconnected it")]
    Disconnected,
    /// It went down so long ago that the reason is forgotten: see
    /// `EngineConfig::departed_max`.
    #[error("it went down, and so many have since that the reason is forgotten")]
    Forgotten,
    /// This worker met a state that can't be, so it can't go on with this peer.
    #[error("{0}")]
    Bug(Bug),
}

/// The text of an error number behind what failed; nothing for 0.
fn show_errno(errno: i32) -> String {
    if errno == 0 { String::new() } else { format!(": {}", errno_text(errno)) }
}

impl PeerFault {
    /// Whether [`Counters::peer_faults`](crate::Counters::peer_faults) counts it: neither worker
    /// ended the connection in order.
    pub fn is_counted(self) -> bool {
        !matches!(self, PeerFault::Left | PeerFault::Disconnected)
    }
}

impl From<DownReason> for PeerFault {
    fn from(reason: DownReason) -> Self {
        match reason {
            DownReason::Gone => PeerFault::Gone,
            DownReason::Left => PeerFault::Left,
            DownReason::Unreachable { errno } => PeerFault::Unreachable { errno },
            DownReason::Shortage(shortage) => PeerFault::Shortage(shortage),
            DownReason::Failed { what, errno } => PeerFault::Failed { what, errno },
            DownReason::Misbehaved { what } => PeerFault::Device { what },
            DownReason::Disconnected => PeerFault::Disconnected,
            DownReason::Bug(bug) => PeerFault::Bug(bug),
        }
    }
}

impl Fault {
    /// The fault of an operation with a peer that is down; [`PeerFault::Gone`] if the reason isn't
    /// known.
    pub(crate) fn of_down(peer: PeerId, fault: Option<PeerFault>) -> Fault {
        Fault::PeerDown { peer, fault: fault.unwrap_or(PeerFault::Gone) }
    }

    /// The peers that it names.
    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerId> + use<> {
        let (one, other) = match *self {
            Fault::PeerDown { peer, .. }
            | Fault::ReadFailed { peer, .. }
            | Fault::NotRead { peer, .. }
            | Fault::NotExposed { peer, .. }
            | Fault::Remote { peer, .. }
            | Fault::NoSuchPeer { peer } => (Some(peer), None),
            Fault::WrongSender { named, sender } => (Some(named), Some(sender)),
            Fault::Cancelled
            | Fault::Closed
            | Fault::ReadOnlyBuffer
            | Fault::NoSuchMessage
            | Fault::NotCarried { .. }
            | Fault::DeviceFailed { .. }
            | Fault::NoMemory { .. }
            | Fault::DeviceFull
            | Fault::BadOperands
            | Fault::Bug(_)
            | Fault::TooMany { .. } => (None, None),
        };
        one.into_iter().chain(other)
    }
}

/// Why a peer can't be reached: as [`DownReason::Unreachable`] says.
fn unreachable_text(errno: i32) -> String {
    let too_many_open = 24;
    let too_many_users = 87;
    if errno == too_many_open {
        return "it can't take a connection: its process has as many open descriptors as it may \
                (ulimit -n there)"
            .to_owned();
    }
    if errno == too_many_users {
        return "it takes no further peer: it has as many as it may have, in all or of one process \
                or machine"
            .to_owned();
    }
    let text = errno_text(errno);
    format!("it can't be reached ({text}): is its worker still there, where this device gets to?")
}

/// Which limit was reached, if that is what the error number says.
fn limit_text(errno: i32) -> String {
    Shortage::of_errno(errno).map_or_else(String::new, |shortage| format!(": {shortage}"))
}

/// Why a device can't let a peer read a buffer.
fn expose_text(errno: i32, why: &str) -> String {
    if errno == 0 {
        return why.to_owned();
    }
    format!("{}{}{why}", errno_text(errno), limit_text(errno))
}

impl Fault {
    /// The device can't let `peer` read a buffer, for the reason that it gives.
    pub(crate) fn not_exposed(peer: PeerId, error: &DeviceError) -> Self {
        let (errno, why) = match *error {
            DeviceError::System { ref source, hint, .. } => {
                (source.raw_os_error().unwrap_or(0), hint)
            }
            DeviceError::Exhausted { .. } => (0, "it can't expose another buffer at a time"),
            DeviceError::BadBuffer { why } | DeviceError::Unsupported { why, .. } => (0, why),
            _ => (0, "it gives no reason"),
        };
        Fault::NotExposed { peer, errno, why }
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The peer that the operation depends on is down.
    #[error("{peer} is down: {fault}")]
    PeerDown {
        /// Which peer.
        peer: PeerId,
        /// Why it is down.
        fault: PeerFault,
    },
    /// The receive was cancelled before it matched.
    #[error("the receive was cancelled before a message matched it")]
    Cancelled,
    /// The worker was closed while the receive was posted.
    #[error("the worker was closed")]
    Closed,
    /// The message could not be read out of its sender's memory; the buffer's contents are
    /// unspecified. The sender was told.
    #[error(
        "reading the message out of the memory of {peer} failed: {}{}",
        errno_text(*errno), limit_text(*errno)
    )]
    ReadFailed {
        /// The sender.
        peer: PeerId,
        /// What the read failed with, 0 if unknown.
        errno: i32,
    },
    /// The receiver matched the message, but could not read it.
    #[error("{peer} matched the message, but failed to read it: {} there", errno_text(*errno))]
    NotRead {
        /// The receiver.
        peer: PeerId,
        /// What its read failed with, 0 if unknown.
        errno: i32,
    },
    /// The NIC gave the receive a message of another sender than the one that was promised to be
    /// the only one (`Engine::receive_with`). The message is lost;
    /// the buffer's contents are unspecified.
    #[error("{sender} sent a message with a tag that only {named} sends messages with")]
    WrongSender {
        /// The sender that the receive names.
        named: PeerId,
        /// The sender of the message.
        sender: PeerId,
    },
    /// The device can't let the receiver read this buffer.
    #[error("the device can't let {peer} read the buffer: {}", expose_text(*errno, why))]
    NotExposed {
        /// The receiver.
        peer: PeerId,
        /// Error number of the system call that failed, 0 if none did.
        errno: i32,
        /// The reason, or what to do about it; may be empty behind an error number.
        why: &'static str,
    },
    /// A receive was given a buffer that can only be read.
    #[error("the buffer of a receive must be writable; shared bytes can only be sent")]
    ReadOnlyBuffer,
    /// There is no such peer on this worker.
    #[error("{peer} does not exist on this worker")]
    NoSuchPeer {
        /// The number that was given.
        peer: PeerId,
    },
    /// The matched message was received or discarded before.
    #[error("the matched message was received or discarded before")]
    NoSuchMessage,
    /// The device can't carry the operation; nothing else is affected.
    #[error("not carried by this device: {why}")]
    NotCarried {
        /// What, and what to do about it.
        why: &'static str,
    },
    /// The device failed to move the message; the contents of a receive's buffer are unspecified.
    #[error("the device failed to move the message (status {status} of its own)")]
    DeviceFailed {
        /// The device's own number for why: over UCX a `ucs_status_t`, over libfabric an error
        /// number. 0: a NIC didn't give the
        /// buffer of a receive back, though by its rules it can't have matched it.
        status: i32,
    },
    /// There is no memory for the bytes of several slices in one run, which the device needs. See
    /// [`Buffer::from_slices`](tagmatch_device::Buffer::from_slices).
    #[error("there is no memory to pack several slices of {bytes} bytes together")]
    NoMemory {
        /// The bytes of all slices.
        bytes: usize,
    },
    /// The device has no memory, or no room, for another operation.
    #[error("the device has no room for another operation now")]
    DeviceFull,
    /// The owner of a region refused a one-sided operation, or a part of it. A part that it didn't
    /// refuse is done.
    #[error("{peer} refused a one-sided operation: {fault}")]
    Remote {
        /// The region's owner.
        peer: PeerId,
        /// Why it refused.
        fault: RemoteFault,
    },
    /// The buffers of an atomic operation don't have the bytes of its operands, or of its old
    /// values.
    #[error("the buffers of an atomic operation must have the bytes of its elements")]
    BadOperands,
    /// This worker met a state that can't be.
    #[error("{0}")]
    Bug(Bug),
    /// Too many operations are under way.
    #[error("{limit} operations are under way, the most that a worker can hold")]
    TooMany {
        /// The bound.
        limit: u32,
    },
}
