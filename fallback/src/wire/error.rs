//! Why bytes can't be a message of the protocol.

use std::fmt;

use super::app_ctx::AppCtx;

/// Version of the parts that are not in `tm_types.h`: `Particulars`, `Control`, `Fragment` and
/// `RmaHeader`.
pub(super) const VERSION: u8 = 1;

/// Why bytes can't be a message of this protocol: the peer's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Too few bytes for the header, or too many.
    #[error("a {kind} of {length} bytes, which has {}", kind.expected_bytes())]
    Length {
        /// The kind of message.
        kind: MessageKind,
        /// Bytes that there were.
        length: u32,
    },
    /// A TMH opcode that does not exist.
    #[error("opcode {0} in a tag-matching header, which has 0 to 3")]
    Opcode(u8),
    /// A version of our own headers that this build does not speak.
    #[error("version {0} of the protocol; this build speaks version {VERSION}")]
    Version(u8),
    /// A kind of control message that does not exist.
    #[error("control message of unknown kind {0}")]
    Control(u8),
    /// Reserved flags are set.
    #[error("reserved flags {0:#x}")]
    Flags(u32),
    /// The two lengths of a rendezvous request contradict each other.
    #[error("rendezvous request with length {rvh} in its RVH and {real} beside it")]
    Lengths {
        /// In the RVH.
        rvh: u32,
        /// In the companion.
        real: u64,
    },
    /// A FIN or an abort for an operation that isn't under way with this peer.
    #[error("{kind} for operation {operation}, which isn't under way with this peer")]
    NoSuchOperation {
        /// FIN or abort.
        kind: MessageKind,
        /// As it came.
        operation: AppCtx,
    },
    /// A fragment that doesn't continue what came before it.
    #[error("a fragment {0}")]
    Fragment(&'static str),
    /// An atomic operation that does not exist, or not for this type.
    #[error("atomic operation {op} on type {of}, which does not exist")]
    Atomic {
        /// The operation.
        op: u8,
        /// The type.
        of: u8,
    },
    /// A message of a one-sided operation that breaks a rule.
    #[error("{0}")]
    OneSided(&'static str),
    /// More than the credits allow.
    #[error("a message of {bytes} bytes beyond its credits")]
    Credit {
        /// Bytes that it would have taken.
        bytes: u64,
    },
}

/// Kinds of messages, as errors name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageKind {
    /// Not known yet: too short for a header.
    Message,
    /// A rendezvous request.
    Rendezvous,
    /// The end of an operation.
    Fin,
    /// A control message.
    Control,
    /// The control message that ends an operation that failed.
    Abort,
    /// A control message with what a NIC drops of a rendezvous request.
    Companion,
    /// A part of an eager message.
    Fragment,
    /// A message of a one-sided operation, or of its answer.
    OneSided,
}

impl MessageKind {
    fn expected_bytes(self) -> &'static str {
        match self {
            MessageKind::Message => "16 or more",
            MessageKind::Rendezvous => "32 or 48",
            MessageKind::Fin => "16 to 32",
            MessageKind::Control | MessageKind::Abort | MessageKind::Companion => "16",
            MessageKind::Fragment => "25 or more",
            MessageKind::OneSided => "16 or more, and those of its kind",
        }
    }

    pub(super) fn of_length(self, length: usize) -> WireError {
        WireError::Length { kind: self, length: u32::try_from(length).unwrap_or(u32::MAX) }
    }
}

impl fmt::Display for MessageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MessageKind::Message => "message",
            MessageKind::Rendezvous => "RNDV",
            MessageKind::Fin => "FIN",
            MessageKind::Control => "control message",
            MessageKind::Abort => "abort",
            MessageKind::Companion => "companion",
            MessageKind::Fragment => "fragment",
            MessageKind::OneSided => "message of a one-sided operation",
        })
    }
}
