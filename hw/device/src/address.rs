//! The address of a worker.

use std::fmt;
use std::str::FromStr;

/// The address of a worker: at most 64 opaque bytes, which peers may get by any means.
///
/// Two addresses are equal if and only if they mean the same worker. The text form is lower-case
/// hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    len: u8,
    bytes: [u8; Address::MAX],
}

/// Why bytes, or a text, are not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// An address has at least one byte and at most [`Address::MAX`].
    #[error("an address has 1 to {max} bytes, not {length}", max = Address::MAX)]
    Length {
        /// The number of bytes that were given.
        length: usize,
    },
    /// The text form has two hexadecimal digits for each byte.
    #[error("an address is written in hexadecimal digits, but character {position} is none")]
    Digit {
        /// Position of the first bad character, from 0.
        position: usize,
    },
}

impl Address {
    /// Most bytes of an address.
    pub const MAX: usize = 64;

    /// Makes an address of bytes that were received from a peer. Only their number is checked here;
    /// the device checks the contents when it connects.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, AddressError> {
        let length = bytes.len();
        let len = u8::try_from(length).ok().filter(|l| (1..=Self::MAX).contains(&(*l as usize)));
        let len = len.ok_or(AddressError::Length { length })?;
        let mut all = [0; Self::MAX];
        all[..length].copy_from_slice(bytes);
        Ok(Address { len, bytes: all })
    }

    /// The bytes to give to peers.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

impl FromStr for Address {
    type Err = AddressError;

    /// Reads the digits. A line end behind them is left out, as a file or a program's output has
    /// one.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let text = text.strip_suffix('\n').unwrap_or(text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        if let Some(position) = text.bytes().position(|c| !c.is_ascii_hexdigit()) {
            return Err(AddressError::Digit { position });
        }
        let length = text.len().div_ceil(2);
        if !text.len().is_multiple_of(2) || length > Self::MAX {
            return Err(AddressError::Length { length });
        }
        let digit = |c: u8| {
            if c.is_ascii_digit() { c - b'0' } else { (c | 0x20) - b'a' + 10 }
        };
        let text = text.as_bytes();
        let bytes: Vec<u8> = text.chunks_exact(2).map(|p| digit(p[0]) << 4 | digit(p[1])).collect();
        Self::from_bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_round_trip() {
        let address = Address::from_bytes(&[0, 0x7f, 0xa5, 0xff]).unwrap();
        assert_eq!(address.to_string(), "007fa5ff");
        for text in ["007FA5ff", "007fa5ff\n", "007fa5ff\r\n"] {
            assert_eq!(text.parse::<Address>(), Ok(address));
        }
    }

    #[test]
    fn bytes_and_texts_that_are_no_address_are_refused() {
        assert_eq!(Address::from_bytes(&[]), Err(AddressError::Length { length: 0 }));
        assert_eq!(Address::from_bytes(&[1; 65]), Err(AddressError::Length { length: 65 }));
        assert!(Address::from_bytes(&[1; 64]).is_ok());
        assert_eq!("00g0".parse::<Address>(), Err(AddressError::Digit { position: 2 }));
        for line in ["\n00", "00\n\n", " 00", "00 "] {
            assert!(matches!(line.parse::<Address>(), Err(AddressError::Digit { .. })));
        }
        assert_eq!("\n".parse::<Address>(), Err(AddressError::Length { length: 0 }));
        assert_eq!("abc".parse::<Address>(), Err(AddressError::Length { length: 2 }));
        assert_eq!("".parse::<Address>(), Err(AddressError::Length { length: 0 }));
        assert_eq!("é0".parse::<Address>(), Err(AddressError::Digit { position: 0 }));
    }
}
