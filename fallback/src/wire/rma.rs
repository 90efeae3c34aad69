//! The messages of one-sided operations.

use tagmatch_device::Bytes;
use tagmatch_device::tm::{Opcode, be32, be64};

use super::atomic::{AtomicOp, AtomicType, ElementUse};
use super::error::{MessageKind, VERSION, WireError};
use super::remote_fault::RemoteFault;

/// Header of a message of a one-sided operation, or of its answer: opcode 0 (NO_TAG) at 0, version
/// at 1, kind at 2, flags at 3. Reserved bytes are zero. The operations of one initiator are
/// carried out, and answered, in the order of their first messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmaHeader {
    /// Kind 8, a piece of a put: key at 8, offset in the region at 16, bytes of the put that follow
    /// in later pieces at 24, notice at 32 if bit 0 of the flags says that there is one. All
    /// numbers are u64. The payload follows.
    Put {
        /// The region's key.
        key: u64,
        /// The first byte's place in the region.
        offset: u64,
        /// Bytes of the same put in later pieces; 0 in the last one.
        left: u64,
        /// What the owner of the region is told once all bytes are there.
        notice: Option<u64>,
    },
    /// Kind 9, a request for bytes: key at 8, offset at 16, length at 24 (u64). No payload.
    Get {
        /// The region's key.
        key: u64,
        /// The first byte's place in the region.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// Kind 10, an atomic operation on one or more elements: operation at 4, type at 5, key at 8,
    /// offset at 16, number of elements at 24 (u64). Bit 0 of the flags: the old values are wanted.
    /// The operands follow: those of all elements; for the operations that compare, the values to
    /// compare with before them.
    Atomic {
        /// What is done with each element.
        element: ElementUse,
        /// The region's key.
        key: u64,
        /// The first element's place in the region.
        offset: u64,
        /// How many elements.
        count: u64,
        /// Whether the answer has the old values.
        fetches: bool,
    },
    /// Kind 11, a part of the answer to a get, or to an atomic operation that fetches: 16 bytes,
    /// then the payload. It belongs to the oldest operation without an answer.
    Data,
    /// Kind 12, an answer of 16 bytes: so many operations (u32 at 4) without other answers have
    /// succeeded, the oldest ones; then, if the reason at 3 isn't 0, the next one failed.
    Done {
        /// Operations that have succeeded.
        count: u32,
        /// Why the next one failed, if it did.
        fault: Option<RemoteFault>,
    },
}

impl RmaHeader {
    /// The most bytes of a header.
    pub const BYTES_MAX: usize = 40;
    /// Bytes in the header of [`RmaHeader::Data`], and of [`RmaHeader::Done`].
    pub const ANSWER_BYTES: usize = 16;
    /// Bytes in the header of a get, of an atomic operation, and of a put without a notice.
    pub const LONG: usize = 32;
    /// A peer has to take messages of so many bytes: an element of 16 bytes with both operands.
    pub const MESSAGE_MIN: usize = Self::LONG + 2 * 16;
    const PUT: u8 = 8;
    const GET: u8 = 9;
    const ATOMIC: u8 = 10;
    const DATA: u8 = 11;
    const DONE: u8 = 12;
    const FLAG: u8 = 1;

    /// Whether a NO_TAG message of this kind is one of these.
    pub(super) fn is_kind(kind: u8) -> bool {
        (Self::PUT..=Self::DONE).contains(&kind)
    }

    /// Bytes in this header.
    pub fn byte_len(&self) -> usize {
        match self {
            RmaHeader::Put { notice: Some(_), .. } => Self::BYTES_MAX,
            RmaHeader::Put { .. } | RmaHeader::Get { .. } | RmaHeader::Atomic { .. } => Self::LONG,
            RmaHeader::Data | RmaHeader::Done { .. } => Self::ANSWER_BYTES,
        }
    }

    /// Writes the header, which takes the first [`RmaHeader::byte_len`] of these bytes.
    pub fn emit(&self) -> [u8; Self::BYTES_MAX] {
        let mut out = [0; Self::BYTES_MAX];
        out[0] = Opcode::NoTag as u8;
        out[1] = VERSION;
        let mut words = |first: u64, second: u64, third: u64| {
            out[8..16].copy_from_slice(&first.to_be_bytes());
            out[16..24].copy_from_slice(&second.to_be_bytes());
            out[24..32].copy_from_slice(&third.to_be_bytes());
        };
        match *self {
            RmaHeader::Put { key, offset, left, notice } => {
                words(key, offset, left);
                out[2] = Self::PUT;
                if let Some(notice) = notice {
                    out[3] = Self::FLAG;
                    out[32..].copy_from_slice(&notice.to_be_bytes());
                }
            }
            RmaHeader::Get { key, offset, length } => {
                words(key, offset, length);
                out[2] = Self::GET;
            }
            RmaHeader::Atomic { element, key, offset, count, fetches } => {
                words(key, offset, count);
                out[2] = Self::ATOMIC;
                out[3] = if fetches { Self::FLAG } else { 0 };
                out[4] = element.op as u8;
                out[5] = element.of as u8;
            }
            RmaHeader::Data => out[2] = Self::DATA,
            RmaHeader::Done { count, fault } => {
                out[2] = Self::DONE;
                out[3] = fault.map_or(0, |fault| fault as u8);
                out[4..8].copy_from_slice(&count.to_be_bytes());
            }
        }
        out
    }

    /// Reads the header of a message whose kind said that it is one of these.
    ///
    /// # Errors
    /// The message is too short for its header, of another version, or names what does not exist,
    /// or a reserved byte isn't zero.
    pub fn parse(bytes: &Bytes<'_>) -> Result<Self, WireError> {
        let wrong = MessageKind::OneSided.of_length(bytes.len());
        let start: [u8; 16] = bytes.array(0).ok_or(wrong)?;
        let [_, version, kind, flags, ..] = start;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let first = be64(&start, 8);
        let word = |at| Ok(u64::from_be_bytes(bytes.array(at).ok_or(wrong)?));
        let reserved = |is_clear: bool| {
            if is_clear {
                Ok(())
            } else {
                Err(WireError::Flags(be32(&start, 4) | u32::from(flags) << 24))
            }
        };
        match kind {
            Self::PUT => {
                reserved(flags & !Self::FLAG == 0 && be32(&start, 4) == 0)?;
                let notice = if flags == Self::FLAG { Some(word(32)?) } else { None };
                Ok(RmaHeader::Put { key: first, offset: word(16)?, left: word(24)?, notice })
            }
            Self::GET => {
                reserved(flags == 0 && be32(&start, 4) == 0)?;
                if bytes.len() != Self::LONG {
                    return Err(wrong);
                }
                Ok(RmaHeader::Get { key: first, offset: word(16)?, length: word(24)? })
            }
            Self::ATOMIC => {
                reserved(flags & !Self::FLAG == 0 && start[6..8] == [0; 2])?;
                let op = AtomicOp::from_byte(start[4]);
                let of = AtomicType::from_byte(start[5]);
                let element = op.zip(of).and_then(|(op, of)| ElementUse::new(op, of));
                let element = element.ok_or(WireError::Atomic { op: start[4], of: start[5] })?;
                let fetches = flags == Self::FLAG;
                let offset = word(16)?;
                let count = word(24)?;
                Ok(RmaHeader::Atomic { element, key: first, offset, count, fetches })
            }
            Self::DATA => {
                reserved(flags == 0 && be32(&start, 4) == 0 && first == 0)?;
                Ok(RmaHeader::Data)
            }
            Self::DONE => {
                let fault =
                    RemoteFault::from_byte(flags).map_err(|byte| WireError::Flags(byte.into()))?;
                if bytes.len() != Self::ANSWER_BYTES {
                    return Err(wrong);
                }
                if first != 0 {
                    return Err(WireError::Flags(u32::MAX));
                }
                Ok(RmaHeader::Done { count: be32(&start, 4), fault })
            }
            other => Err(WireError::Control(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<RmaHeader, WireError> {
        RmaHeader::parse(&Bytes::from_slice(bytes))
    }

    fn all() -> Vec<RmaHeader> {
        let key = u64::MAX - 1;
        let offset = 1 << 40;
        let mut all = vec![RmaHeader::Data, RmaHeader::Get { key, offset, length: 7 }];
        for notice in [None, Some(0), Some(u64::MAX)] {
            all.push(RmaHeader::Put { key, offset, left: 9, notice });
        }
        for byte in 0..=4 {
            let fault = RemoteFault::from_byte(byte).unwrap();
            all.push(RmaHeader::Done { count: 3, fault });
        }
        for op in AtomicOp::ALL {
            for of in AtomicType::ALL {
                let element = ElementUse::new(op, of);
                let atomic =
                    |element| RmaHeader::Atomic { element, key, offset, count: 2, fetches: true };
                all.extend(element.map(atomic));
            }
        }
        all
    }

    #[test]
    fn headers_round_trip() {
        for header in all() {
            assert_eq!(parse(&header.emit()[..header.byte_len()]), Ok(header));
        }
    }

    /// Each bit of each header has a meaning, or is refused.
    #[test]
    fn no_bit_is_ignored() {
        for header in all() {
            let bytes = header.emit();
            for bit in 8..8 * header.byte_len() {
                let mut other = bytes;
                other[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(
                    parse(&other[..header.byte_len()]),
                    Ok(header),
                    "bit {bit} of {header:?}"
                );
            }
            for length in 0..header.byte_len() {
                let is_length = matches!(parse(&bytes[..length]), Err(WireError::Length { .. }));
                assert!(is_length, "{length} bytes of {header:?}");
            }
        }
    }
}
