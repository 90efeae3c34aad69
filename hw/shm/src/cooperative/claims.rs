//! Which piece of a long message its receiver copies, and which one its sender.
//!
//! The receiver takes pieces from the front, and the sender from the back, until they meet. Both
//! claim a piece by an exchange of one word, so each piece has one owner. A sender has one claimed
//! piece at a time, and releases it by a second word. Each side keeps its own count and believes
//! the words only as far as the other side can change them by the rules.
//!
//! Exchanges of one word have one order, whatever else is ordered. The offer, which the sender gets
//! by the ring, orders what the receiver has begun before what the sender does. So the accesses to
//! the word of the claims order nothing. A release orders the bytes that the sender has written
//! before their use by the receiver.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::region_words::RegionWords;
use crate::sync::AtomicU64;

/// The words of the ring that the receiver reads. The sender has mapped them.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Claims {
    /// A [`Claimed`]: stored by the receiver to begin with, and exchanged by both.
    claimed: AtomicU64,
    /// A [`Released`]. The receiver stores it to begin with, and the sender from then on.
    released: AtomicU64,
    /// For the regions of the ring's reader.
    pub(crate) regions: RegionWords,
}

/// Most pieces.
const PIECES_MAX: u32 = (1 << COUNT_BITS) - 1;
const COUNT_BITS: u32 = 24;
/// Attempts of one call to claim a piece. A sender that keeps the rules changes the word once in a
/// piece's time.
const ATTEMPTS_MAX: u32 = 64;

/// How many pieces of a message were claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claimed {
    /// Tells the messages of a connection apart.
    number: u16,
    front: u32,
    back: u32,
}

impl Claimed {
    #[allow(clippy::cast_possible_truncation, reason = "parts of a word")]
    fn of_word(word: u64) -> Self {
        let count = |at: u32| (word >> at) as u32 & PIECES_MAX;
        Claimed { number: (word >> 48) as u16, front: count(24), back: count(0) }
    }

    fn word(self) -> u64 {
        u64::from(self.number) << 48 | u64::from(self.front) << 24 | u64::from(self.back)
    }
}

/// How many of its pieces a sender has released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Released {
    number: u16,
    /// The last of them was not copied. The sender claims no more.
    has_failed: bool,
    count: u32,
}

impl Released {
    #[allow(clippy::cast_possible_truncation, reason = "parts of a word")]
    fn of_word(word: u64) -> Self {
        let has_failed = word >> 47 & 1 == 1;
        Released { number: (word >> 48) as u16, has_failed, count: word as u32 & PIECES_MAX }
    }

    fn word(self) -> u64 {
        u64::from(self.number) << 48 | u64::from(self.has_failed) << 47 | u64::from(self.count)
    }
}

/// The receiver's side of a message that both copy.
#[derive(Debug)]
pub(crate) struct ReceiverSide {
    number: u16,
    pieces: u32,
    /// Pieces that the receiver has claimed.
    front: u32,
    /// Pieces that the sender has claimed, as far as was seen.
    back: u32,
}

/// Whether the sender has copied its pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SenderPieces {
    /// All were copied.
    Copied,
    /// The sender has yet to release one.
    Claimed,
    /// All were released, and this one was not copied.
    Failed(u32),
}

impl ReceiverSide {
    /// Begins a message of so many pieces, of which the receiver has copied the first `front`.
    /// `None` if there are too many.
    pub(crate) fn begin(claims: &Claims, number: u16, pieces: u32, front: u32) -> Option<Self> {
        if pieces > PIECES_MAX || front > pieces {
            return None;
        }
        let released = Released { number, has_failed: false, count: 0 };
        claims.released.store(released.word(), Relaxed);
        let claimed = Claimed { number, front, back: 0 };
        claims.claimed.store(claimed.word(), Relaxed);
        Some(ReceiverSide { number, pieces, front, back: 0 })
    }

    /// Claims the next piece; `None` if all pieces are claimed.
    ///
    /// # Errors
    /// The rule that the sender broke.
    pub(crate) fn claim(&mut self, claims: &Claims) -> Result<Option<u32>, &'static str> {
        self.claim_up_to(claims, 1)
    }

    /// Claims all pieces that are left, so that the sender finds none.
    ///
    /// # Errors
    /// The rule that the sender broke.
    pub(crate) fn claim_rest(&mut self, claims: &Claims) -> Result<(), &'static str> {
        self.claim_up_to(claims, u32::MAX).map(drop)
    }

    fn claim_up_to(&mut self, claims: &Claims, most: u32) -> Result<Option<u32>, &'static str> {
        for _ in 0..ATTEMPTS_MAX {
            let word = claims.claimed.load(Relaxed);
            let claimed_now = Claimed::of_word(word);
            let left = self.pieces - self.front;
            if (claimed_now.number, claimed_now.front) != (self.number, self.front)
                || !(self.back..=left).contains(&claimed_now.back)
            {
                return Err("a sender has claimed pieces that it could not claim");
            }
            self.back = claimed_now.back;
            let claimed = most.min(left - claimed_now.back);
            if claimed == 0 {
                return Ok(None);
            }
            let next = Claimed { front: self.front + claimed, ..claimed_now }.word();
            if claims.claimed.compare_exchange(word, next, Relaxed, Relaxed).is_ok() {
                let first = self.front;
                self.front += claimed;
                return Ok(Some(first));
            }
        }
        Err("a sender changes its claims without end")
    }

    /// Whether the sender has copied the pieces that it has claimed. To be asked once all pieces
    /// are claimed.
    ///
    /// # Errors
    /// The rule that the sender broke.
    pub(crate) fn sender_pieces(&self, claims: &Claims) -> Result<SenderPieces, &'static str> {
        let released = Released::of_word(claims.released.load(Acquire));
        if released.number != self.number || released.count > self.back {
            return Err("a sender has released pieces that it did not claim");
        }
        if released.count < self.back {
            return Ok(SenderPieces::Claimed);
        }
        let has_failed = released.has_failed && self.back > 0;
        let last = self.pieces - self.back;
        Ok(if has_failed { SenderPieces::Failed(last) } else { SenderPieces::Copied })
    }
}

/// The sender's side of a message that both copy.
#[derive(Debug)]
pub(crate) struct SenderSide {
    number: u16,
    pieces: u32,
    /// Pieces that the sender has claimed, and released all.
    back: u32,
}

impl SenderSide {
    /// A message that a receiver has begun.
    pub(crate) fn new(number: u16, pieces: u32) -> Self {
        SenderSide { number, pieces, back: 0 }
    }

    /// Claims a piece; `None` if there is none for the sender. [`SenderSide::release`] must follow
    /// before the next claim.
    pub(crate) fn claim(&mut self, claims: &Claims) -> Option<u32> {
        for _ in 0..ATTEMPTS_MAX {
            let word = claims.claimed.load(Relaxed);
            let claimed_now = Claimed::of_word(word);
            let left = self.pieces.checked_sub(claimed_now.front)?;
            if (claimed_now.number, claimed_now.back) != (self.number, self.back)
                || claimed_now.back >= left
            {
                return None;
            }
            let next = Claimed { back: self.back + 1, ..claimed_now }.word();
            if claims.claimed.compare_exchange(word, next, Relaxed, Relaxed).is_ok() {
                self.back += 1;
                return Some(self.pieces - self.back);
            }
        }
        None
    }

    /// Gives the claimed piece back: it was copied, or could not be.
    pub(crate) fn release(&self, claims: &Claims, is_copied: bool) {
        let released = Released { number: self.number, has_failed: !is_copied, count: self.back };
        claims.released.store(released.word(), Release);
    }
}

#[cfg(all(test, not(loom)))]
mod hostile;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn both(pieces: u32, front: u32) -> (Claims, ReceiverSide, SenderSide) {
        let claims = Claims::default();
        let receiver = ReceiverSide::begin(&claims, 7, pieces, front).unwrap();
        (claims, receiver, SenderSide::new(7, pieces))
    }

    #[test]
    fn pieces_are_taken_from_both_ends_until_they_meet() {
        let (claims, mut receiver, mut sender) = both(5, 1);
        assert_eq!(receiver.claim(&claims), Ok(Some(1)));
        assert_eq!(sender.claim(&claims), Some(4));
        assert_eq!(receiver.claim(&claims), Ok(Some(2)));
        sender.release(&claims, true);
        assert_eq!(sender.claim(&claims), Some(3));
        assert_eq!(receiver.claim(&claims), Ok(None));
        assert_eq!(sender.claim(&claims), None);
        assert_eq!(receiver.sender_pieces(&claims), Ok(SenderPieces::Claimed));
        sender.release(&claims, true);
        assert_eq!(receiver.sender_pieces(&claims), Ok(SenderPieces::Copied));
    }

    #[test]
    fn a_piece_that_could_not_be_copied_goes_back_to_the_receiver() {
        let (claims, mut receiver, mut sender) = both(4, 0);
        assert_eq!(sender.claim(&claims), Some(3));
        sender.release(&claims, true);
        assert_eq!(sender.claim(&claims), Some(2));
        assert_eq!(receiver.claim_rest(&claims), Ok(()));
        assert_eq!(receiver.sender_pieces(&claims), Ok(SenderPieces::Claimed));
        sender.release(&claims, false);
        assert_eq!(receiver.sender_pieces(&claims), Ok(SenderPieces::Failed(2)));
    }

    #[test]
    fn a_message_without_a_sender_is_the_receivers() {
        let (claims, mut receiver, _) = both(3, 0);
        for piece in 0..3 {
            assert_eq!(receiver.claim(&claims), Ok(Some(piece)));
        }
        assert_eq!(receiver.claim(&claims), Ok(None));
        assert_eq!(receiver.sender_pieces(&claims), Ok(SenderPieces::Copied));
        assert!(ReceiverSide::begin(&claims, 1, PIECES_MAX, 0).is_some());
        assert!(ReceiverSide::begin(&claims, 1, PIECES_MAX + 1, 0).is_none());
    }

    #[test]
    fn a_sender_leaves_other_messages_alone() {
        let (claims, _, _) = both(3, 0);
        assert_eq!(SenderSide::new(8, 3).claim(&claims), None);
        // As many pieces as the receiver has taken already, or fewer.
        let (claims, _, _) = both(3, 2);
        assert_eq!(SenderSide::new(7, 1).claim(&claims), None);
        assert_eq!(SenderSide::new(7, 2).claim(&claims), None);
        assert_eq!(SenderSide::new(7, 3).claim(&claims), Some(2));
    }

    #[test]
    fn words_that_cannot_be_are_noticed() {
        let good = Claimed { number: 7, front: 1, back: 1 };
        let claimed = [
            Claimed { number: 8, ..good },
            Claimed { front: 0, ..good },
            Claimed { front: 2, ..good },
            Claimed { back: 0, ..good },
            Claimed { back: 4, ..good },
            Claimed { back: PIECES_MAX, ..good },
        ];
        for bad in claimed {
            let (claims, mut receiver, mut sender) = both(4, 0);
            assert_eq!(receiver.claim(&claims), Ok(Some(0)));
            assert_eq!(sender.claim(&claims), Some(3));
            assert_eq!(Claimed::of_word(claims.claimed.load(Relaxed)), good);
            receiver.back = 1;
            claims.claimed.store(bad.word(), Relaxed);
            assert!(receiver.claim(&claims).is_err(), "{bad:?}");
            assert!(receiver.claim_rest(&claims).is_err(), "{bad:?}");
        }
        let released = |number, count| Released { number, has_failed: false, count };
        for bad in [released(8, 1), released(7, 2), released(7, PIECES_MAX)] {
            let (claims, mut receiver, mut sender) = both(4, 0);
            assert_eq!(sender.claim(&claims), Some(3));
            assert_eq!(receiver.claim_rest(&claims), Ok(()));
            claims.released.store(bad.word(), Relaxed);
            assert!(receiver.sender_pieces(&claims).is_err(), "{bad:?}");
        }
    }
}
