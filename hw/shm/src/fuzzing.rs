//! The parsers of everything that a peer can write, for fuzzing. Not a part of the public API.

use tagmatch_device::Bytes;
pub use tagmatch_device::ReadMessage;

pub use super::arena::HEADER_BYTES as DEVICE_MEMORY_HEADER_BYTES;
pub use super::doorbell::DoorbellBit;
pub use super::name::ShmName;
pub use super::packet::{HandshakePacket, Hello, HelloRefusal, Nonce, OfferedMemory};
pub use super::ring::geometry::checked_progress;
pub use super::ring::geometry::{Geometry, Places};
pub use super::ring::slot::{Bounds, MessageShape, Meta, parse as parse_slot};

/// Parses a message of a copied read as a device does.
///
/// # Errors
/// The rule that the message breaks.
pub fn parse_read_message(bytes: &[u8]) -> Result<ReadMessage, &'static str> {
    ReadMessage::parse(&Bytes::from_slice(bytes))
}
