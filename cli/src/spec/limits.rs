//! When a measurement ends.

use std::time::Duration;

/// A measurement and its warm-up each end at the first limit that is reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) iters: u64,
    pub(crate) time: Duration,
    pub(crate) warmup_iters: u64,
    pub(crate) warmup_time: Duration,
}
