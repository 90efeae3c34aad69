//! What a queue pair knows of a peer at the other end of a network.

use std::collections::VecDeque;

use super::fabric::UnderWay;
use super::packet::is_up_to;
use crate::gid::{GidKind, PortGid, to_address};
use crate::roce::aeth::AethVerdict;
use crate::roce::link::WirePath;
use crate::roce::packet::Reth;
use crate::wqe::RemoteAddress;

/// The number that comes so many after another one, of 24 bits.
pub(crate) fn after(psn: u32, count: u32) -> u32 {
    psn.wrapping_add(count) & 0xff_ffff
}

/// How many packets lie between two numbers.
pub(crate) fn distance(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & 0xff_ffff
}

pub(crate) fn is_before(psn: u32, other: u32) -> bool {
    psn != other && is_up_to(psn, other)
}

/// What a queue pair knows of its peer at the other end of a network.
#[derive(Debug)]
pub(crate) struct Wired {
    pub(crate) path: WirePath,
    pub(crate) sender: SenderNumbers,
    /// The message whose first packets have come.
    pub(crate) incoming: Option<IncomingMessage>,
    /// What the peer has still to be told, in its order.
    pub(crate) replies: VecDeque<PeerReply>,
    /// Messages that were completed for the peer.
    pub(crate) msn: u32,
}

/// Packet sequence numbers of the sender.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SenderNumbers {
    pub(crate) base: u32,
    pub(crate) cursor: u32,
    pub(crate) end: u32,
    /// The number from which packets were sent again because a later answer has come.
    pub(crate) asked_again: Option<u32>,
}

impl SenderNumbers {
    /// Whether a packet with this number is under way.
    pub(crate) fn is_under_way(&self, psn: u32) -> bool {
        distance(self.base, psn) < distance(self.base, self.end)
    }

    /// All before this number was acknowledged. Whether that is news.
    pub(crate) fn advance(&mut self, base: u32) -> bool {
        if !is_before(self.base, base) {
            return false;
        }
        self.base = base;
        if is_before(self.cursor, base) {
            self.cursor = base;
        }
        true
    }
}

impl Wired {
    pub(crate) fn new(path: WirePath) -> Self {
        Wired {
            path,
            sender: SenderNumbers::default(),
            incoming: None,
            replies: VecDeque::new(),
            msn: 0,
        }
    }

    /// Packets take another path from now on.
    pub(crate) fn redirect(&mut self, path: WirePath) {
        self.path = path;
    }

    /// The queue pair begins to send.
    pub(crate) fn start(&mut self, psn: u32) {
        self.sender = SenderNumbers { base: psn, cursor: psn, end: psn, asked_again: None };
    }

    /// The queue pair is reset, or in error.
    pub(crate) fn stop(&mut self) {
        *self = Wired::new(self.path);
    }
}

/// A message whose first packets have come.
#[derive(Debug)]
pub(crate) enum IncomingMessage {
    /// The bytes so far, and the room that they take in the device.
    Send {
        bytes: Vec<u8>,
        _rooms: Vec<UnderWay>,
    },
    Write {
        reth: Reth,
        done: u32,
    },
}

/// What the peer is to be told.
#[derive(Debug)]
pub(crate) enum PeerReply {
    /// The rest of the answer of a READ, from the packet with this number on.
    Read {
        psn: u32,
        from: RemoteAddress,
        left: u32,
        is_first: bool,
    },
    Atomic {
        psn: u32,
        old: u64,
    },
    Verdict {
        psn: u32,
        verdict: AethVerdict,
    },
}

impl PeerReply {
    pub(crate) fn psn(&self) -> u32 {
        match self {
            PeerReply::Read { psn, .. }
            | PeerReply::Atomic { psn, .. }
            | PeerReply::Verdict { psn, .. } => *psn,
        }
    }

    pub(crate) fn is_data(&self) -> bool {
        !matches!(self, PeerReply::Verdict { .. })
    }
}

/// The path from a row of the table of GIDs to a GID, if packets of UDP can take it.
pub(crate) fn out_path(row: PortGid, to: &[u8; 16]) -> Option<WirePath> {
    let from = to_address(&row.gid);
    let to = to_address(to);
    let is_possible = row.kind == GidKind::RoceV2 && from.is_ipv4() == to.is_ipv4();
    is_possible.then_some(WirePath { from, to })
}
