//! The parsers of everything that a peer's device can send, for fuzzing. No part of the interface.

use tagmatch_fabric::handshake::Packet;

use super::config::KIND;

/// Parses `bytes` as a packet of the handshake, and emits the packet again.
///
/// # Panics
/// The emitted packet is parsed to something else.
pub fn read(bytes: &[u8]) {
    if let Ok(packet) = Packet::parse(bytes, &KIND) {
        assert_eq!(Packet::parse(&packet.emit(), &KIND), Ok(packet));
    }
}
