//! The parsers of all that a peer can write, for fuzzing. No part of the interface.

use tagmatch_device::Bytes;

pub use super::bell::BellBit;
pub use super::copied::Internal;
pub use super::hello::{Greeting, Hello, Nonce, Refusal};
pub use super::name::ShmName;
pub use super::ring::geometry::{Geometry, Progress};
pub use super::ring::producer::check_progress;
pub use super::ring::slot::{Bounds, Meta, Shape, parse as parse_slot};

/// As a device reads a message of a peer's device.
///
/// # Errors
/// The rule that it breaks.
pub fn parse_internal(bytes: &[u8]) -> Result<Internal, &'static str> {
    Internal::parse(&Bytes::from_slice(bytes))
}
