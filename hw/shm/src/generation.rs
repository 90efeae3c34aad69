//! The generation of a connection: a word of the owner's memory by which a peer that reads buffers
//! there learns that the owner may have let go of them.
//!
//! The owner of an exposed buffer gets the buffer back after the peer's FIN, or once the connection
//! has ended. So a peer that reads a buffer before it sends a FIN has to know one thing: whether
//! the connection had ended when its last byte was read. Each connection has a word for that.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::sync::{AtomicU64, fence};

/// Ends the generation of a connection. Only the owner of the word calls this, before any buffer
/// that the peer may be reading is let go.
///
/// The fence comes before all that is written to these buffers from then on. It pairs with the
/// fence in [`is_current`].
pub(crate) fn end(word: &AtomicU64) {
    word.store(word.load(Relaxed).wrapping_add(1), Relaxed);
    fence(Release);
}

/// Whether the generation of a connection has not ended. The peer calls this after it has read the
/// bytes of a buffer.
///
/// The fence comes after these reads. If one of them has read a byte that was written after
/// [`end`], the word is seen changed.
pub(crate) fn is_current(word: &AtomicU64, generation: u64) -> bool {
    fence(Acquire);
    word.load(Relaxed) == generation
}
