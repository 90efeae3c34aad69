//! The parsers of all that a peer can write, for fuzzing. No part of the interface.

use tagmatch_device::Bytes;

pub use super::doorbell::DoorbellBit;
pub use super::handshake::packet::{HandshakePacket, Hello, Nonce, Refusal};
pub use super::name::ShmName;
pub use super::read_message::ReadMessage;
pub use super::ring::geometry::{Geometry, Progress};
pub use super::ring::producer::check_progress;
pub use super::ring::slot::{Bounds, Meta, Shape, parse as parse_slot};

/// As a device reads a message of a peer's device.
///
/// # Errors
/// The rule that it breaks.
pub fn parse_read_message(bytes: &[u8]) -> Result<ReadMessage, &'static str> {
    ReadMessage::parse(&Bytes::from_slice(bytes))
}
