//! The number by which a device calls a peer.

use std::fmt;

/// The number of a peer of one worker. Numbers start at 0, are given one after the other, and are
/// never reused while the worker lives. A device of a worker with several devices gives only some
/// of them.
///
/// Number 0 is the worker itself: a device carries messages to oneself like all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

impl PeerId {
    /// The worker itself.
    pub const ONESELF: PeerId = PeerId(0);

    /// The number as an index into a table of peers.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer {}", self.0)
    }
}
