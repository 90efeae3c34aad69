//! The default number of messages in flight.

/// Default number of messages of a window.
const WINDOW: u64 = 64;
/// Default number of bytes in flight or between two checks: as much as stays in a core's own
/// cache, so that the transport is measured and not main memory.
pub const WINDOW_BYTES: u64 = 1 << 20;
/// A large message need not wait for the answer to the one before it.
const WINDOW_MIN: u64 = 2;

/// How many messages of `size` bytes fit into `bytes`: 1 to `most`.
pub fn fit(bytes: u64, size: u64, most: u64) -> u64 {
    (bytes / size.max(1)).clamp(1, most)
}

/// Messages of `size` bytes that are in flight at a time by default.
pub fn default_window(size: u64) -> u64 {
    fit(WINDOW_BYTES, size, WINDOW).max(WINDOW_MIN)
}
