//! The numbers under which descriptors are watched.

use tagmatch_device::PeerId;

/// A descriptor that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// The connection to a peer, or the attempt to make one.
    Peer(PeerId),
    /// A connection that was accepted, and has not proved itself.
    Pending(u32),
    /// A connection that was disconnected, whose last bytes are on their way.
    Leaving(u32),
    Listener(usize),
    Timer,
}

impl Watched {
    pub(crate) fn number(self) -> u64 {
        let (kind, index) = match self {
            Watched::Peer(peer) => (0, peer.0),
            Watched::Pending(index) => (1, index),
            Watched::Leaving(index) => (2, index),
            Watched::Listener(place) => (3, u32::try_from(place).unwrap_or(u32::MAX)),
            Watched::Timer => (4, 0),
        };
        kind << 32 | u64::from(index)
    }

    #[inline]
    pub(crate) fn of(number: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "takes the two halves apart")]
        let index = number as u32;
        match number >> 32 {
            0 => Watched::Peer(PeerId(index)),
            1 => Watched::Pending(index),
            2 => Watched::Leaving(index),
            3 => Watched::Listener(index as usize),
            _ => Watched::Timer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for watched in [
            Watched::Peer(PeerId(u32::MAX)),
            Watched::Pending(3),
            Watched::Leaving(0),
            Watched::Listener(2),
            Watched::Timer,
        ] {
            assert_eq!(Watched::of(watched.number()), watched);
        }
    }
}
