//! Payloads that tell which message they belong to.

use crate::format::Id;

/// Fills a payload. No two messages have the same first 8 bytes.
pub(super) fn fill(msg: Id, payload: &mut [u8]) {
    let mut word = u64::from(msg.0).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for bytes in payload.chunks_mut(8) {
        word = word.rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
}
