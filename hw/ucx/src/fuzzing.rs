//! The parsers of everything that a peer's device can send, for fuzzing. No part of the interface.

use super::hello::Packet;

/// Parses `bytes` as a packet of the handshake, and emits the packet again.
///
/// # Panics
/// The emitted packet is parsed to something else.
pub fn read(bytes: &[u8]) {
    if let Ok(packet) = Packet::parse(bytes) {
        assert_eq!(Packet::parse(&packet.emit()), Ok(packet));
    }
}
