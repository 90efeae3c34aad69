//! The words of the claims, as a hostile sender or receiver changes them.

use tagmatch_testkit::hostile::{Legality, Meaning, Message, Room, try_all};

use super::*;

const NUMBER: u16 = 7;
const PIECES: u32 = 10;
/// Pieces that each side has claimed.
const FRONT: u32 = 2;
const BACK: u32 = 3;

/// Whose side looks at the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Receiver,
    Sender,
}

struct ClaimsRoom {
    claims: Claims,
    receiver: ReceiverSide,
    sender: SenderSide,
    side: Side,
}

impl Room for ClaimsRoom {
    type Situation = Side;
    type Sender = ();

    fn enter(side: Side) -> Self {
        let claims = Claims::default();
        let mut receiver = ReceiverSide::begin(&claims, NUMBER, PIECES, FRONT - 1).unwrap();
        let mut sender = SenderSide::new(NUMBER, PIECES);
        for _ in 0..BACK {
            assert!(sender.claim(&claims).is_some());
            sender.release(&claims, true);
        }
        assert_eq!(receiver.claim(&claims), Ok(Some(FRONT - 1)));
        ClaimsRoom { claims, receiver, sender, side }
    }

    fn takes(_: Side, (): (), _: &Message) -> Legality {
        Legality::Legal
    }

    /// The first byte tells which word is changed.
    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        let Some((kind, word)) = bytes.split_first() else { return false };
        let Ok(word) = word.try_into().map(u64::from_le_bytes) else { return false };
        match (kind, self.side) {
            (0, Side::Receiver) => {
                self.claims.claimed.store(word, Relaxed);
                self.receiver.claim(&self.claims).is_ok()
            }
            (0, Side::Sender) => {
                self.claims.claimed.store(word, Relaxed);
                self.sender.claim(&self.claims).is_some()
            }
            (1, Side::Receiver) => {
                self.claims.released.store(word, Relaxed);
                self.receiver.sender_pieces(&self.claims).is_ok()
            }
            _ => false,
        }
    }

    fn state(&self) -> String {
        let ReceiverSide { front, back, .. } = self.receiver;
        format!("{:?}", (front, back, self.sender.back))
    }

    /// No piece has two owners.
    fn audit(self) {
        let ReceiverSide { front, back, .. } = self.receiver;
        assert!(front + back <= PIECES && self.sender.back <= PIECES);
    }
}

/// A word: its lowest bytes, those in the middle, and the number of the message.
fn word(kind: u8, word: u64, low: Meaning) -> Message {
    let bytes = [&[kind][..], &word.to_le_bytes()].concat();
    let message = Message::new(if kind == 0 { "claimed" } else { "released" }, bytes);
    message.le(1, "word", Meaning::Open).le(3, "count", low)
}

#[test]
fn no_word_of_the_other_side_gives_it_a_piece_that_is_taken() {
    let claimed = Claimed { number: NUMBER, front: FRONT, back: BACK }.word();
    let number = |message: Message| message.le(2, "number", Meaning::Fixed);
    let backs = Meaning::Within(BACK.into()..=u64::from(PIECES - FRONT));
    let of_sender = word(0, claimed, backs).le(3, "front", Meaning::Fixed);
    let released = Released { number: NUMBER, has_failed: false, count: BACK }.word();
    let released = word(1, released, Meaning::Within(0..=BACK.into()));
    let released = released.le(2, "ignored", Meaning::Free).le(1, "failed", Meaning::Free);
    try_all::<ClaimsRoom>(&[Side::Receiver], &[()], &[of_sender, released].map(number));
    // A sender finds a piece as long as the two sides have not met.
    let fronts = Meaning::Within(0..=u64::from(PIECES - BACK) - 1);
    let of_receiver = word(0, claimed, Meaning::Fixed).le(3, "front", fronts);
    try_all::<ClaimsRoom>(&[Side::Sender], &[()], &[number(of_receiver)]);
}
