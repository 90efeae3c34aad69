//! Bounds that both the command line and a serving side hold a measurement to.

/// The TCP port that `serve` listens on and a client connects to by default.
pub(crate) const PORT: u16 = 13338;
/// Entries of a queue.
pub(crate) const DEPTH_MAX: u64 = 1 << 20;
/// Messages in flight.
pub(crate) const WINDOW_MAX: u64 = 1 << 14;
/// Round trips, messages or calls of a row.
pub(crate) const ITERS_MAX: u64 = 1 << 40;
/// Threads on each side.
pub(crate) const THREADS_MAX: u64 = 64;
/// Silent peers of each side.
pub(crate) const IDLE_MAX: u64 = 1024;
/// Processes that are started on one machine.
pub(crate) const RANKS_MAX: i64 = 4096;
/// Messages between two checks of the payloads.
pub(crate) const BATCH_MAX: u64 = 1 << 14;
/// Bounds of the time between two planned messages: a thousand million and one a second.
pub(crate) const INTERVAL_PS_MIN: u64 = 1000;
pub(crate) const INTERVAL_PS_MAX: u64 = 1_000_000_000_000;
/// Bytes of buffers that a serving side allocates for one client.
pub(crate) const MEMORY_MAX: u64 = 4 << 30;
