//! A bundle as values of a launcher: hexadecimal digits, in pieces that are short enough.

use super::bundle::bytes_max;
use super::store::{Reach, ValueStore};
use crate::error::Error;
use crate::pmi1::Pmi1Error;
use crate::wire::{from_hex, to_hex};

/// Digits at the beginning of the first piece: the number of bytes that follow.
const LENGTH_DIGITS: usize = 8;

fn key(number: u32, rank: u32, piece: usize) -> String {
    format!("tagmatch-{number}-{rank}-{piece}")
}

/// Puts the bundle of this process.
pub(super) fn put(store: &mut impl ValueStore, number: u32, bundle: &[u8]) -> Result<(), Error> {
    let text = format!("{:0LENGTH_DIGITS$x}{}", bundle.len(), to_hex(bundle));
    let mut rest = &*text;
    for piece in 0.. {
        let key = key(number, store.rank(), piece);
        let max = store.value_max(key.len());
        if max < LENGTH_DIGITS {
            return Err(Pmi1Error::TooLong { what: "value", length: LENGTH_DIGITS, max }.into());
        }
        let (value, after) = rest.split_at(max.min(rest.len()));
        store.put(&key, value, Reach::Job)?;
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    Ok(())
}

/// The bundle that the process of this rank has put; `None` if some piece of it is missing.
pub(super) fn get(
    store: &mut impl ValueStore,
    number: u32,
    rank: u32,
) -> Result<Option<Vec<u8>>, Error> {
    let mut text = String::new();
    for piece in 0.. {
        let Some(value) = store.get(rank, &key(number, rank, piece))? else { return Ok(None) };
        text.push_str(&value);
        if value.is_empty() || text.len() >= digits(rank, &text, store.size())? {
            break;
        }
    }
    let is_whole = text.len() == digits(rank, &text, store.size())?;
    let bytes = is_whole.then(|| from_hex(&text[LENGTH_DIGITS..])).flatten();
    bytes.map(Some).ok_or(Error::Garbled { rank, what: "is invalid" })
}

/// The length of a whole text, in characters, according to the length at its beginning.
fn digits(rank: u32, text: &str, size: u32) -> Result<usize, Error> {
    let digits = text.get(..LENGTH_DIGITS).filter(|t| t.bytes().all(|b| b.is_ascii_hexdigit()));
    let length = digits.and_then(|digits| usize::from_str_radix(digits, 16).ok());
    let length = length.filter(|length| *length <= bytes_max(size));
    let what = "has no valid length";
    Ok(LENGTH_DIGITS + 2 * length.ok_or(Error::Garbled { rank, what })?)
}
