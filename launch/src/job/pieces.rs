//! The bytes of an exchange as text, and the text in pieces that fit into lines of PMI-1.

use super::error::{BYTES_MAX, Error};
use crate::pmi1::{Pmi1, Pmi1Error};
use crate::wire::{from_hex, to_hex};

/// Hexadecimal digits at the beginning of the first piece: the number of bytes that follow.
const LENGTH_DIGITS: usize = 8;

/// The text of these bytes: their number, and then the bytes, in hexadecimal digits.
pub(super) fn text_of(bytes: &[u8]) -> String {
    format!("{:0LENGTH_DIGITS$x}{}", bytes.len(), to_hex(bytes))
}

/// Puts a text, divided into pieces that fit into a line.
pub(super) fn put_pieces(
    pmi: &mut Pmi1,
    key: impl Fn(usize) -> String,
    text: &str,
) -> Result<(), Error> {
    let mut rest = text;
    for piece in 0.. {
        let key = key(piece);
        let max = pmi.value_max(key.len());
        if max < LENGTH_DIGITS {
            return Err(Pmi1Error::TooLong { what: "value", length: LENGTH_DIGITS, max }.into());
        }
        let (value, after) = rest.split_at(max.min(rest.len()));
        pmi.put(&key, value)?;
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Gets the pieces that a process has put, and joins them.
pub(super) fn get_pieces(
    pmi: &mut Pmi1,
    rank: u32,
    key: impl Fn(usize) -> String,
) -> Result<String, Error> {
    let mut text = String::new();
    for piece in 0.. {
        let Some(value) = pmi.get(&key(piece))? else {
            let is_dead = pmi.dead()?.contains(&rank);
            let what = "is missing";
            return Err(if is_dead { Error::Dead { rank } } else { Error::Garbled { rank, what } });
        };
        text.push_str(&value);
        if value.is_empty() || text.len() >= digits(rank, &text)? {
            break;
        }
    }
    Ok(text)
}

/// The length of a whole text, in characters, according to the length at its beginning.
fn digits(rank: u32, text: &str) -> Result<usize, Error> {
    let digits = text.get(..LENGTH_DIGITS).filter(|t| t.bytes().all(|b| b.is_ascii_hexdigit()));
    let length = digits.and_then(|digits| usize::from_str_radix(digits, 16).ok());
    let length = length.filter(|length| *length <= BYTES_MAX);
    let what = "has no valid length";
    Ok(LENGTH_DIGITS + 2 * length.ok_or(Error::Garbled { rank, what })?)
}

/// The bytes in a text of hexadecimal digits.
pub(super) fn parse(rank: u32, text: &str) -> Result<Vec<u8>, Error> {
    let bytes = (text.len() == digits(rank, text)?).then(|| from_hex(&text[LENGTH_DIGITS..]));
    bytes.flatten().ok_or(Error::Garbled { rank, what: "is invalid" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanged_data_is_checked() {
        assert_eq!(parse(0, "0000000200ff").unwrap(), [0, 0xff]);
        assert_eq!(parse(0, "00000000").unwrap(), []);
        for garbled in ["", "0000000", "0000000200f", "00000002", "0000000200fg", "00000001aabb"] {
            assert!(matches!(parse(3, garbled), Err(Error::Garbled { rank: 3, .. })), "{garbled}");
        }
        for length in ["ffffffff", "00010001", "+0000001", "éééé"] {
            assert!(digits(0, length).is_err(), "{length}");
        }
    }
}
