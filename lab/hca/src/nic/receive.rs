//! A receive.

use crate::wqe::Segment;

/// A receive that the program has posted, and the device has taken.
#[derive(Clone, Debug)]
pub(crate) struct Receive {
    /// Its place in the queue, or its number if the queue belongs to one queue pair.
    pub(crate) index: u16,
    pub(crate) segments: Vec<Segment>,
}

impl Receive {
    /// Bytes that it has room for.
    pub(crate) fn room(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.length)).sum()
    }
}
