//! What this device's ends tell each other beside the caller's messages: trailers and control
//! packets.
//!
//! A message has a *trailer* if it is longer than a head, or if its sender waits for its match. The
//! trailer stands behind the bytes of the head. The receiver then answers by a control packet:
//! *ack* if it needs no more, *go* if it has posted receives for the rest, which follows in pieces,
//! or *write to* if the sender is to write the rest, and to say when it is *written*. With
//! [`CompleteWhen::Delivered`](tagmatch_device::matching::CompleteWhen) an ack follows the last
//! byte. A *mark* says nothing: its own completion tells its sender that all messages before it
//! have left.

use tagmatch_device::bytes::array_at;

use super::endpoint::Lane;
use super::rma::Target;

/// The number of no send: its sender waits for nothing.
pub(super) const NOBODY: u32 = u32::MAX;
/// Bytes of a trailer.
pub(super) const TRAILER: usize = 16;
/// Bytes of a control packet.
pub(super) const PACKET: usize = 32;

/// The trailer of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trailer {
    /// The sender's number for the send.
    pub(super) send: u32,
    /// Immediate data, if the tag says that there is some.
    pub(super) immediate: u32,
    /// Most bytes of a piece that its sender can send.
    pub(super) piece_max: u32,
    /// The sender waits until the last byte has come.
    pub(super) wants_delivery: bool,
    /// The sender can write to the receiver's buffer.
    pub(super) writes: bool,
}

const WANTS_DELIVERY: u32 = 1;
const WRITES: u32 = 2;

impl Trailer {
    pub(super) fn emit(&self) -> [u8; TRAILER] {
        let mut out = [0; TRAILER];
        let delivery = if self.wants_delivery { WANTS_DELIVERY } else { 0 };
        let flags = delivery | if self.writes { WRITES } else { 0 };
        let words = [self.send, self.immediate, self.piece_max, flags];
        for (word, place) in words.iter().zip(out.chunks_exact_mut(4)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// Splits a head into its bytes and its trailer.
    pub(super) fn split(head: &[u8]) -> Option<(&[u8], Trailer)> {
        let (bytes, trailer) = head.split_at_checked(head.len().checked_sub(TRAILER)?)?;
        let word = |at| u32::from_le_bytes(array_at(trailer, at));
        let trailer = Trailer {
            send: word(0),
            immediate: word(4),
            piece_max: word(8),
            wants_delivery: word(12) & WANTS_DELIVERY != 0,
            writes: word(12) & WRITES != 0,
        };
        Some((bytes, trailer))
    }
}

/// A control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// This send is matched, and its receiver needs no more of it.
    Ack {
        /// The sender's number for the send.
        send: u32,
    },
    /// This send is matched, and its receiver waits for the rest.
    Go {
        /// The sender's number for the send.
        send: u32,
        /// The receiver's number for the receive, which tags of the pieces have.
        receive: u32,
        /// Bytes of each piece but the last.
        piece: u32,
        /// Where the rest ends; it begins where the head has ended.
        end: u64,
    },
    /// This send is matched, and the rest is to be written to its receiver's buffer.
    WriteTo {
        /// The sender's number for the send.
        send: u32,
        /// The receiver's number for the receive.
        receive: u32,
        /// Where the rest ends; it begins where the head has ended.
        end: u32,
        /// The receiver's buffer.
        target: Target,
    },
    /// The rest is written.
    Written {
        /// The receiver's number for the receive.
        receive: u32,
    },
    /// Nothing, but where it was sent: `tcp` gives a message that waits to a receive of any
    /// endpoint of its process.
    Mark {
        /// Among what it was sent.
        lane: Lane,
    },
}

const ACK: u32 = 1;
const GO: u32 = 2;
const MARK: u32 = 3;
const WRITE_TO: u32 = 4;
const WRITTEN: u32 = 5;

impl Packet {
    pub(super) fn emit(self) -> [u8; PACKET] {
        let (words, [first, second]) = match self {
            Packet::Ack { send } => ([ACK, send, 0, 0], [0; 2]),
            Packet::Go { send, receive, piece, end } => ([GO, send, receive, piece], [end, 0]),
            Packet::WriteTo { send, receive, end, target: Target { key, address } } => {
                ([WRITE_TO, send, receive, end], [key, address])
            }
            Packet::Written { receive } => ([WRITTEN, 0, receive, 0], [0; 2]),
            Packet::Mark { lane } => ([MARK, u32::from(lane == Lane::Packets), 0, 0], [0; 2]),
        };
        let mut out = [0; PACKET];
        for (word, place) in words.iter().zip(out.chunks_exact_mut(4)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        out[16..24].copy_from_slice(&first.to_le_bytes());
        out[24..].copy_from_slice(&second.to_le_bytes());
        out
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Packet> {
        let bytes = bytes.first_chunk::<PACKET>().filter(|_| bytes.len() == PACKET)?;
        let word = |at| u32::from_le_bytes(array_at(bytes, at));
        let long_word = |at| u64::from_le_bytes(array_at(bytes, at));
        match word(0) {
            ACK => Some(Packet::Ack { send: word(4) }),
            GO => {
                let piece = word(12);
                let end = long_word(16);
                Some(Packet::Go { send: word(4), receive: word(8), piece, end })
            }
            WRITE_TO => {
                let target = Target { key: long_word(16), address: long_word(24) };
                Some(Packet::WriteTo { send: word(4), receive: word(8), end: word(12), target })
            }
            WRITTEN => Some(Packet::Written { receive: word(8) }),
            MARK => {
                let lane = if word(4) == 1 { Lane::Packets } else { Lane::Messages };
                Some(Packet::Mark { lane })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packets_round_trip(
            send: u32, receive: u32, piece: u32, end: u64, key: u64, address: u64,
        ) {
            let target = Target { key, address };
            for packet in [
                Packet::WriteTo { send, receive, end: piece, target }, Packet::Written { receive },
                Packet::Ack { send }, Packet::Go { send, receive, piece, end },
                Packet::Mark { lane: Lane::Packets }, Packet::Mark { lane: Lane::Messages },
            ] {
                prop_assert_eq!(Packet::parse(&packet.emit()), Some(packet));
            }
        }

        #[test]
        fn trailers_round_trip(
            bytes: Vec<u8>, send: u32, immediate: u32, piece_max: u32,
            wants_delivery: bool, writes: bool,
        ) {
            let trailer = Trailer { send, immediate, piece_max, wants_delivery, writes };
            let head = [&bytes[..], &trailer.emit()].concat();
            prop_assert_eq!(Trailer::split(&head), Some((&bytes[..], trailer)));
        }

        #[test]
        fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let packet = Packet::parse(&bytes);
            prop_assert!(packet.is_none() || bytes.len() == PACKET);
            prop_assert_eq!(Trailer::split(&bytes).is_some(), bytes.len() >= TRAILER);
        }
    }
}
