//! The parsers of all that a peer's device can say, for fuzzing. No part of the interface.

use super::hello::Packet;

/// Reads `bytes` as what came over the handshake's socket, and writes what was understood again.
///
/// # Panics
/// It is understood otherwise then.
pub fn read(bytes: &[u8]) {
    let mut rest = bytes.to_vec();
    while let Ok(Some(packet)) = Packet::take(&mut rest) {
        let mut again = packet.emit();
        assert_eq!(Packet::take(&mut again), Ok(Some(packet)));
        assert!(again.is_empty());
    }
}
