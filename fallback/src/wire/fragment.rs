//! The headers of a message that goes out in several fragments.

use tagmatch_device::Bytes;
use tagmatch_device::tm::{Opcode, be32, be64};
use tagmatch_soft::Tag;

use super::error::{MessageKind, VERSION, WireError};

/// Header of a fragment: opcode 0 (NO_TAG) at 0, version at 1, kind at 2, four bytes of zeros at 4.
/// The payload follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// Kind 5, the first fragment of a message: tag at 8, length of the whole message at 16 (u64).
    First {
        /// The tag that receives are matched with.
        tag: Tag,
        /// Bytes in the whole message.
        length: u64,
    },
    /// Kind 6, a later fragment: how many bytes of the message came before, at 8 (u64).
    Next {
        /// Bytes of the message in earlier fragments.
        offset: u64,
    },
}

impl Fragment {
    /// Bytes of either header.
    pub const BYTES: usize = 24;
    const FIRST: u8 = 5;
    const NEXT: u8 = 6;

    /// Whether a NO_TAG message of this kind is a fragment.
    pub(super) fn is_kind(kind: u8) -> bool {
        matches!(kind, Self::FIRST | Self::NEXT)
    }

    /// Writes the header.
    pub fn emit(&self) -> [u8; Self::BYTES] {
        let (kind, first, second) = match *self {
            Fragment::First { tag, length } => (Self::FIRST, tag.0, length),
            Fragment::Next { offset } => (Self::NEXT, offset, 0),
        };
        let mut out = [0; Self::BYTES];
        out[..3].copy_from_slice(&[Opcode::NoTag as u8, VERSION, kind]);
        out[8..16].copy_from_slice(&first.to_be_bytes());
        out[16..].copy_from_slice(&second.to_be_bytes());
        out
    }

    /// Reads the header of a message whose kind said that it is a fragment.
    ///
    /// # Errors
    /// The message is too short or of another version, or a reserved byte isn't zero.
    pub fn parse(bytes: &Bytes<'_>) -> Result<Self, WireError> {
        let wrong = MessageKind::Fragment.of_length(bytes.len());
        let header: [u8; 16] = bytes.array(0).ok_or(wrong)?;
        let second = u64::from_be_bytes(bytes.array(16).ok_or(wrong)?);
        if header[1] != VERSION {
            return Err(WireError::Version(header[1]));
        }
        if header[3] != 0 || be32(&header, 4) != 0 {
            return Err(WireError::Flags(u32::from(header[3]) << 24 | be32(&header, 4)));
        }
        let first = be64(&header, 8);
        match header[2] {
            Self::FIRST => Ok(Fragment::First { tag: Tag(first), length: second }),
            Self::NEXT if second == 0 => Ok(Fragment::Next { offset: first }),
            Self::NEXT => Err(WireError::Flags(u32::MAX)),
            other => Err(WireError::Control(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Fragment, WireError> {
        Fragment::parse(&Bytes::from_slice(bytes))
    }

    #[test]
    fn headers_round_trip_with_a_payload_behind_them() {
        let first = Fragment::First { tag: Tag(u64::MAX - 1), length: 1 << 33 };
        for header in [first, Fragment::Next { offset: 4096 }] {
            let bytes = [&header.emit()[..], b"payload"].concat();
            assert_eq!(parse(&bytes), Ok(header));
        }
    }

    #[test]
    fn each_mistake_has_its_error() {
        let good = Fragment::Next { offset: 9 }.emit();
        let with = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            parse(&bytes)
        };
        assert!(matches!(parse(&good[..23]), Err(WireError::Length { length: 23, .. })));
        assert_eq!(with(1, 2), Err(WireError::Version(2)));
        assert_eq!(with(3, 1), Err(WireError::Flags(1 << 24)));
        assert_eq!(with(7, 1), Err(WireError::Flags(1)));
        assert_eq!(with(16, 1), Err(WireError::Flags(u32::MAX)));
        assert_eq!(with(2, 7), Err(WireError::Control(7)));
    }
}
