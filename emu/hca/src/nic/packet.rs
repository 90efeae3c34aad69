//! What queue pairs say to each other.

use std::sync::Arc;

use crate::cqe::Syndrome;
use crate::gid::Route;
use crate::wqe::{Atomic, Remote};

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
    pub(crate) body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// A request of a reliable connection, with its packet sequence number.
    Request { psn: u32, request: Request },
    /// All requests up to this one were carried out.
    Acknowledge { psn: u32 },
    /// The answer of a READ: its bytes; of an atomic operation: the eight bytes before it.
    Data { psn: u32, bytes: Arc<[u8]> },
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

#[derive(Clone, Debug)]
pub(crate) enum Request {
    Send(Message),
    /// Bytes to write. `ends`: the immediate data that ends a long WRITE, with its whole length.
    Write {
        to: Remote,
        message: Message,
        length: u32,
        is_last: bool,
    },
    Read {
        from: Remote,
        length: u32,
    },
    Atomic {
        at: Remote,
        operation: Atomic,
    },
}

impl Request {
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
