//! The parsers of all that a peer's device can say, for fuzzing. No part of the interface.

use super::hello::Packet;

/// Reads `bytes` as a packet of the handshake, and writes what was understood again.
///
/// # Panics
/// It is understood otherwise then.
pub fn read(bytes: &[u8]) {
    if let Ok(packet) = Packet::parse(bytes) {
        assert_eq!(Packet::parse(&packet.emit()), Ok(packet));
    }
}
