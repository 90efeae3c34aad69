//! The number by which a device calls a peer.

use std::fmt;

/// The number of a peer of one worker: an index into tables of peers, and a generation. A device of
/// a worker with several devices gives only some of the numbers.
///
/// The index of a peer that is gone, and of which nothing is left, is used again with the next
/// generation (`PeerNumbers`). So no two peers of a worker ever have the same
/// number. The first peers have generation 0: their numbers count from 0.
///
/// Number 0 is the worker itself: a device carries messages to oneself like all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

impl PeerId {
    /// The worker itself.
    pub const ONESELF: PeerId = PeerId(0);
    /// The most indices.
    pub const INDEX_MAX: usize = 1 << Self::INDEX_BITS;

    const INDEX_BITS: u32 = 20;
    const GENERATION_MAX: u32 = (1 << (u32::BITS - Self::INDEX_BITS)) - 2;

    /// The number with this index that is given first.
    ///
    /// # Panics
    /// If the index is [`PeerId::INDEX_MAX`] or more.
    pub fn first(index: usize) -> Self {
        assert!(index < Self::INDEX_MAX, "an index of a peer");
        #[expect(clippy::cast_possible_truncation, reason = "was checked")]
        PeerId(index as u32)
    }

    /// The index into a table of peers.
    #[inline(always)]
    pub fn index(self) -> usize {
        self.0 as usize & (Self::INDEX_MAX - 1)
    }

    /// How many peers have had the index before.
    #[inline]
    pub fn generation(self) -> u32 {
        self.0 >> Self::INDEX_BITS
    }

    /// The number of the next peer with this index; `None` if the generations of the index are used
    /// up, of which the last one is no number at all.
    pub(crate) fn next(self) -> Option<Self> {
        let has_next = self.generation() < Self::GENERATION_MAX;
        has_next.then_some(PeerId(self.0.wrapping_add(1 << Self::INDEX_BITS)))
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer {}", self.index())?;
        match self.generation() {
            0 => Ok(()),
            generation => write!(f, ".{generation}"),
        }
    }
}
