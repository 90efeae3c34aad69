//! Long messages that receiver and sender copy together.
//!
//! A receiver that reads a long message out of its sender's memory offers the sender a part of the
//! work. The message is cut into pieces, which the receiver copies from the front, and the sender
//! from the back, until they meet ([`claims`]). A sender that waits, or makes progress, copies one
//! piece in each poll; one that computes costs nothing, since the receiver goes on alone. Half a
//! round trip of 128 KiB took 0.77 of the time so, and of 1 MiB 0.62, on an EPYC in one cache and
//! in two. (The idea is from Chakraborty et al., *Cooperative Rendezvous Protocols for Improved
//! Performance and Overlap*, SC'18.)
//!
//! 1. The receiver stores the number of the message in the words of [`claims`], and sends an offer:
//!    which memory of the sender it reads, and where to. It goes on at once.
//! 2. The sender looks whether the memory is exposed to this receiver, before each piece. It then
//!    claims the piece, asks the kernel whether the receiver's process and worker are there, copies
//!    the piece by process_vm_writev(2), and releases it.
//! 3. The receiver has all bytes once all pieces are claimed and the sender has released its own.
//!    A piece that the sender could not copy is the receiver's again. A waiting receiver may sleep:
//!    a sender that releases a piece rings its doorbell.
//!
//! **A claimed piece is not taken back**, since nothing can revoke a write of a process that is
//! stopped in the middle. The read ends when the piece is released, or when the sender's process
//! has ended or its worker hung up, after which it writes no more. Until then this read waits, and
//! nothing else. A worker that disconnects takes all pieces that are left, and reports the peer as
//! down when the last piece is back. A worker that is dropped meanwhile leaks its own buffer, and
//! waits for the piece in the caller's memory.
//!
//! **A sender writes into initialised memory only.** A sender that lies about what it has copied
//! shows the receiver the bytes that were in the buffer before. So by default a receiver offers no
//! memory of a C caller ([`SenderWrites`](crate::SenderWrites)).
//!
//! **Which process a sender writes to.** process_vm_writev takes a pid, and a sender may be stopped
//! between its question and the call. Writing to `/proc/PID/mem`, opened while the
//! process was known to live, would leave no such window. It takes 13 to 22 % longer (128 KiB:
//! 15.0 microseconds instead of 12.3; 1 MiB: 83 instead of 73), and a descriptor for each peer. So
//! it is an *assumption* that within such a stop the process doesn't end, its pid doesn't go to
//! another process of the same user, and that process has no memory at the same address.
//!
//! **Memory of the device is read by the receiver alone**, from its mapping. Two processors that
//! copy between mappings would halve the time, but each peer would need a mapping that it can write
//! all of the device's memory through, at any time, and that no kernel checks.

mod claims;

use std::ops::Range;

pub(crate) use claims::{Claims, ReceiverSide, SenderPieces, SenderSide};

/// The shortest message of which a sender may be offered a part; whether it is, the receiver learns
/// ([`sharing`](super::sharing)). Messages of 8 to 16 KiB mostly go out in fragments.
pub(crate) const OFFERED_MIN: usize = 16 << 10;
/// Most bytes of a piece. Up to twice as many, a message is two pieces: each piece costs both sides
/// half a microsecond beside its bytes. On an EPYC, 128 KiB took 9.0 microseconds in two pieces,
/// 11.1 in three, 11.6 in four, and 16 in eight. Both sides compute the pieces, so that this is no
/// choice of one of them. On an Intel Xeon (Sapphire Rapids) pieces of 64 KiB to 1 MiB were within
/// a tenth for messages of 256 and 512 KiB, and no size of pieces was best for longer ones: half
/// a round trip of 512 KiB took 30 microseconds with pieces of 128 KiB, 28 with 256 KiB and 1 MiB,
/// and 32 with 64 KiB.
const PIECE_BYTES_MAX: usize = 128 << 10;
/// Pieces begin at multiples of this, whatever the machine's pages are: both sides compute them.
const PIECE_STEP_BYTES: usize = 4096;

/// The pieces of a message. Both sides compute them from its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessagePieces {
    length: usize,
    piece_bytes: usize,
}

impl MessagePieces {
    /// The pieces of a message of so many bytes.
    pub(crate) fn of(length: usize) -> Self {
        let half = length.div_ceil(2).next_multiple_of(PIECE_STEP_BYTES);
        let piece_bytes = half.clamp(PIECE_STEP_BYTES, PIECE_BYTES_MAX);
        MessagePieces { length, piece_bytes }
    }

    /// Bytes of the message.
    pub(crate) fn length(self) -> usize {
        self.length
    }

    /// How many there are.
    pub(crate) fn count(self) -> u32 {
        u32::try_from(self.length.div_ceil(self.piece_bytes)).unwrap_or(u32::MAX)
    }

    /// The bytes of a piece.
    pub(crate) fn bytes(self, piece: u32) -> Range<usize> {
        let start = self.piece_bytes.saturating_mul(piece as usize).min(self.length);
        start..self.length.min(start + self.piece_bytes)
    }

    /// Where as many whole pieces end as are in `budget` bytes from `start` on; at least one.
    pub(crate) fn end_after(self, start: usize, budget: usize) -> usize {
        let whole = (budget - budget % self.piece_bytes).max(self.piece_bytes);
        self.length.min(start + whole)
    }

    /// The piece that begins with a byte.
    pub(crate) fn beginning_with(self, start: usize) -> Option<u32> {
        let is_start = start.is_multiple_of(self.piece_bytes) && start < self.length;
        is_start.then(|| u32::try_from(start / self.piece_bytes).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_cover_a_message(length in prop_oneof![0usize..600 << 10, 0usize..64 << 20]) {
            let pieces = MessagePieces::of(length);
            let mut end = 0;
            for piece in 0..pieces.count() {
                let bytes = pieces.bytes(piece);
                prop_assert_eq!(pieces.beginning_with(bytes.start), Some(piece));
                prop_assert_eq!(bytes.start, end);
                prop_assert_eq!(pieces.end_after(end, 1), bytes.end);
                prop_assert!(!bytes.is_empty() && bytes.len() <= PIECE_BYTES_MAX);
                end = bytes.end;
            }
            prop_assert_eq!(end, length);
            prop_assert!(pieces.bytes(pieces.count()).is_empty());
            prop_assert_eq!(pieces.beginning_with(length), None);
            prop_assert_eq!(pieces.beginning_with(1), None);
        }
    }
}
