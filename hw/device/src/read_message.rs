//! The messages of copied reads, as bytes.

use super::bytes::{Bytes, u32_at, u64_at};
use super::device::RemoteSpan;

/// A message of a copied read. Devices exchange these messages among themselves: they mark them as
/// internal, and the engine never sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMessage {
    /// Asks the owner of the memory for bytes.
    Request {
        /// Number of the read.
        id: u32,
        /// What to read.
        span: RemoteSpan,
    },
    /// Some of the bytes; they follow the header.
    Fragment {
        /// Number of the read.
        id: u32,
        /// Offset of the first of them in the read.
        offset: u64,
    },
    /// Offers the owner of the memory to copy a part of it. The address to copy to follows the
    /// header.
    Offer {
        /// Number of the offer, as in the words by which pieces are claimed.
        number: u16,
        /// The bytes in the owner's memory that are read.
        span: RemoteSpan,
    },
    /// All bytes were sent, or none will be.
    End {
        /// Number of the read.
        id: u32,
        /// Whether the span is exposed, so that its bytes were sent.
        is_good: bool,
    },
}

const REQUEST: u32 = 1;
const FRAGMENT: u32 = 2;
const END: u32 = 3;
const OFFER: u32 = 4;

impl ReadMessage {
    /// Bytes of a header.
    pub const HEADER_BYTES: usize = 32;
    /// Length of an offer: header and address.
    const OFFER_BYTES: usize = Self::HEADER_BYTES + 8;

    /// The header of the message. The bytes of a fragment follow it.
    pub fn emit(self) -> [u8; Self::HEADER_BYTES] {
        let (kind, id, small, first, second) = match self {
            ReadMessage::Request { id, span } => (REQUEST, id, span.key, span.address, span.length),
            ReadMessage::Fragment { id, offset } => (FRAGMENT, id, 0, offset, 0),
            ReadMessage::Offer { number, span } => {
                (OFFER, number.into(), span.key, span.address, span.length)
            }
            ReadMessage::End { id, is_good } => (END, id, u32::from(is_good), 0, 0),
        };
        let mut out = [0; Self::HEADER_BYTES];
        out[..4].copy_from_slice(&kind.to_le_bytes());
        out[4..8].copy_from_slice(&id.to_le_bytes());
        out[8..12].copy_from_slice(&small.to_le_bytes());
        out[16..24].copy_from_slice(&first.to_le_bytes());
        out[24..32].copy_from_slice(&second.to_le_bytes());
        out
    }

    /// Parses a message from a peer.
    ///
    /// # Errors
    /// The rule that the message breaks.
    pub fn parse(bytes: &Bytes<'_>) -> Result<Self, &'static str> {
        let header: [u8; Self::HEADER_BYTES] =
            bytes.array(0).ok_or("an internal message is too short")?;
        let small = u32_at(&header, 8);
        let id = u32_at(&header, 4);
        let first = u64_at(&header, 16);
        let has_bytes = bytes.len() > Self::HEADER_BYTES;
        let span = RemoteSpan { address: first, key: small, length: u64_at(&header, 24) };
        match u32_at(&header, 0) {
            REQUEST if !has_bytes => Ok(ReadMessage::Request { id, span }),
            OFFER if bytes.len() == Self::OFFER_BYTES => {
                let number = u16::try_from(id).map_err(|_| "an offer with an impossible number")?;
                Ok(ReadMessage::Offer { number, span })
            }
            FRAGMENT if has_bytes => Ok(ReadMessage::Fragment { id, offset: first }),
            END if !has_bytes && small <= 1 => Ok(ReadMessage::End { id, is_good: small == 1 }),
            _ => Err("an internal message is of no known kind"),
        }
    }
}
