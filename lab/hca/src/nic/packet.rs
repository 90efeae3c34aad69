//! What queue pairs say to each other.

use std::sync::Arc;

use crate::abi::access;
use crate::cqe::{Opcode, Syndrome};
use crate::gid::Route;
use crate::wqe::{Atomic, RemoteAddress};

/// A LID that no port has.
pub(crate) const NOWHERE: u16 = u16::MAX;

/// A message from a queue pair to another.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) to: u32,
    pub(crate) from: u32,
    /// The port that the sender believes the receiver to have; 0 if its path has none.
    pub(crate) to_lid: u16,
    pub(crate) from_lid: u16,
    /// The sender's partition key.
    pub(crate) pkey: u16,
    /// Bytes of data in the longest packet on the sender's path.
    pub(crate) mtu: u16,
    pub(crate) body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// A request of a reliable connection, with its packet sequence number. `reads`: READs and
    /// atomic operations under way with this one, if it is one.
    Request { psn: u32, reads: u8, request: Request },
    /// All requests up to this one were carried out.
    Acknowledge { psn: u32 },
    /// The answer of a READ: its bytes; of an atomic operation: the eight bytes before it.
    Data { psn: u32, bytes: Arc<[u8]> },
    /// A request has come, but not this one, which is before it: a NAK of the sequence.
    Missing { psn: u32 },
    /// The receiver has no buffer. `timer`: how long the sender is to wait, encoded.
    NotReady { psn: u32, timer: u8 },
    /// The request has failed, and its queue pair.
    Refused { psn: u32, why: Syndrome },
    /// A datagram.
    Datagram { qkey: u32, route: Option<Route>, message: Message },
}

/// The bytes of a message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) immediate: Option<u32>,
    pub(crate) is_solicited: bool,
}

impl Message {
    /// What the completion of its receive says that it is.
    pub(crate) fn receive_opcode(&self) -> Opcode {
        match self.immediate {
            Some(_) => Opcode::ReceiveSendImmediate,
            None => Opcode::ReceiveSend,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Request {
    Send(Message),
    /// Bytes to write. `ends`: the immediate data that ends a long WRITE, with its whole length.
    Write {
        to: RemoteAddress,
        message: Message,
        length: u32,
        is_first: bool,
        is_last: bool,
    },
    Read {
        from: RemoteAddress,
        length: u32,
    },
    Atomic {
        at: RemoteAddress,
        operation: Atomic,
    },
}

impl Packet {
    /// Bytes of data in the longest packet that this one stands for.
    pub(crate) fn longest(&self) -> u64 {
        let length = match &self.body {
            Body::Request { request, .. } => request.length(),
            Body::Data { bytes, .. } => bytes.len() as u64,
            _ => 0,
        };
        length.min(self.mtu.into())
    }
}

/// Whether the packets of a message have lengths that the receiver expects, whose path has its own
/// MTU: the only packet is no longer, and the first of several is as long (InfiniBand 9.7.4.1.6).
pub(crate) fn has_right_lengths(length: u64, sent: u16, expected: u16) -> bool {
    if length <= sent.into() { length <= expected.into() } else { sent == expected }
}

impl Request {
    /// Bytes of the message, if this is its first part.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Request::Send(message) => message.bytes.len() as u64,
            Request::Write { length, .. } => (*length).into(),
            Request::Read { .. } | Request::Atomic { .. } => 0,
        }
    }

    /// Packets of a network that the request takes up: those of its data, or of its answer.
    pub(crate) fn packets(&self, mtu: u16) -> u32 {
        let bytes = match self {
            Request::Read { length, .. } => *length,
            other => other.carries() as u32,
        };
        bytes.div_ceil(mtu.into()).max(1)
    }

    /// What a queue pair must allow (`ibv_modify_qp(3)`, `qp_access_flags`).
    pub(crate) fn wanted(&self) -> u32 {
        match self {
            Request::Send(_) => 0,
            Request::Write { .. } => access::REMOTE_WRITE,
            Request::Read { .. } => access::REMOTE_READ,
            Request::Atomic { .. } => access::REMOTE_ATOMIC,
        }
    }

    /// Bytes that the request carries.
    pub(crate) fn carries(&self) -> usize {
        match self {
            Request::Send(message) | Request::Write { message, .. } => message.bytes.len(),
            Request::Read { .. } | Request::Atomic { .. } => 0,
        }
    }

    /// Whether it is answered by data.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self, Request::Read { .. } | Request::Atomic { .. })
    }
}

/// `psn` is less than `other`, or equal; numbers have 24 bits, and wrap.
pub(crate) fn is_up_to(psn: u32, other: u32) -> bool {
    other.wrapping_sub(psn) & 0xff_ffff < 1 << 23
}

pub(crate) fn next_psn(psn: u32) -> u32 {
    psn.wrapping_add(1) & 0xff_ffff
}
