//! What carries packets between machines, and what it brings.

use std::fmt;
use std::net::IpAddr;

use super::packet::RocePacket;

/// A packet that has come for a queue pair, with a right ICRC.
#[derive(Debug)]
pub(crate) struct ArrivedPacket {
    /// The port, by the LID that its device had at first.
    pub(crate) lid: u16,
    pub(crate) path: WirePath,
    pub(crate) packet: RocePacket,
}

/// From where to where packets of a queue pair go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WirePath {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
}

/// What carries packets to other machines.
pub(crate) trait PacketLink: fmt::Debug + Send + Sync {
    /// Sends a packet, which may be lost.
    fn send(&self, path: &WirePath, packet: &RocePacket);
}
