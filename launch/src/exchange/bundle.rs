//! The bytes of several processes as one run of bytes.
//!
//! The processes of a machine give nearly the same bytes: addresses differ in the process's name,
//! and what they say of their machine doesn't differ. So all but the first are written as what
//! they don't have in common with the first.
//!
//! | what | how |
//! |---|---|
//! | number of processes | a number |
//! | for each process, in the order of ranks: | |
//! | - how many ranks are skipped | a number |
//! | - how many bytes it has | a number |
//! | - for all its bytes, in turns: so many are the first process's bytes at the same place, and so many are these | a number; a number, and bytes |
//!
//! A number is written in bytes of seven bits, the lowest first; all but the last have the eighth
//! bit set.

use crate::error::BYTES_MAX;

/// The most bytes that a process's numbers take: some for the first ones, and one for each 128
/// bytes of a long turn.
const NUMBERS_MAX: usize = 32 + BYTES_MAX / 64;

/// The most bytes that a bundle of a job of `size` processes can have.
pub(super) fn bytes_max(size: u32) -> usize {
    (BYTES_MAX + NUMBERS_MAX).saturating_mul(size as usize)
}

/// `entries`: ranks in ascending order, and the bytes of each process.
pub(crate) fn encode(entries: impl Iterator<Item = (u32, Vec<u8>)>) -> Vec<u8> {
    let entries: Vec<_> = entries.collect();
    let mut out = Vec::new();
    push(&mut out, entries.len());
    let mut due = 0;
    let mut first = &[][..];
    for (rank, bytes) in &entries {
        push(&mut out, (*rank - due) as usize);
        push(&mut out, bytes.len());
        push_turns(&mut out, bytes, first);
        due = rank + 1;
        if first.is_empty() {
            first = bytes;
        }
    }
    out
}

fn push_turns(out: &mut Vec<u8>, bytes: &[u8], first: &[u8]) {
    let is_same = |at: usize| at < bytes.len() && bytes.get(at) == first.get(at);
    // A single byte in common is not worth two numbers.
    let are_same = |at: usize| is_same(at) && is_same(at + 1);
    let mut at = 0;
    while at < bytes.len() {
        let same = (at..).take_while(|at| is_same(*at)).count();
        at += same;
        let own = (at..bytes.len()).take_while(|at| !are_same(*at)).count();
        push(out, same);
        push(out, own);
        out.extend(&bytes[at..at + own]);
        at += own;
    }
}

/// The ranks, in ascending order, and the bytes of each process. `None` if this is no bundle of a
/// job of `size` processes.
pub(crate) fn decode(mut bundle: &[u8], size: usize) -> Option<Vec<(u32, Vec<u8>)>> {
    let from = &mut bundle;
    let count = number(from).filter(|count| *count <= size)?;
    let mut entries: Vec<(u32, Vec<u8>)> = Vec::new();
    let mut due = 0_usize;
    let mut first = None;
    for at in 0..count {
        let rank = due.checked_add(number(from)?).filter(|rank| *rank < size)?;
        let length = number(from).filter(|length| *length <= BYTES_MAX)?;
        let base = first.map_or(&[][..], |at: usize| &entries[at].1);
        let bytes = turns(from, length, base)?;
        if first.is_none() && !bytes.is_empty() {
            first = Some(at);
        }
        entries.push((u32::try_from(rank).ok()?, bytes));
        due = rank + 1;
    }
    from.is_empty().then_some(entries)
}

fn turns(from: &mut &[u8], length: usize, first: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let same = number(from)?;
        let own = number(from)?;
        bytes.extend(first.get(bytes.len()..)?.get(..same)?);
        bytes.extend(from.split_off(..own)?);
    }
    (bytes.len() == length).then_some(bytes)
}

fn push(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(0x80 | low(number));
        number >>= 7;
    }
    out.push(low(number));
}

/// The lowest seven bits.
fn low(number: usize) -> u8 {
    (number & 0x7f).to_le_bytes()[0]
}

/// A number below 2^35.
fn number(from: &mut &[u8]) -> Option<usize> {
    let mut number = 0;
    for shift in (0..35).step_by(7) {
        let byte = *from.split_off_first()?;
        number |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back(entries: &[(u32, Vec<u8>)], size: usize) -> usize {
        let bundle = encode(entries.iter().cloned());
        assert_eq!(decode(&bundle, size).unwrap(), entries);
        let max = bytes_max(u32::try_from(entries.len()).unwrap());
        assert!(bundle.len() <= max, "{} bytes of {max}", bundle.len());
        bundle.len()
    }

    #[test]
    fn a_bundle_brings_the_bytes_back() {
        back(&[(0, vec![])], 1);
        back(&[(3, vec![]), (4, vec![1]), (1000, vec![1, 2])], 1001);
        let of = |texts: &[&str]| -> Vec<(u32, Vec<u8>)> {
            (0..).zip(texts.iter().map(|text| text.as_bytes().to_vec())).collect()
        };
        back(&of(&["abcdef", "abcdef", "abXdef", "XbXdXf", "abc", "", "abcdefgh", "Xbcdefg"]), 9);
        back(&[(7, vec![1; BYTES_MAX]), (8, vec![1; BYTES_MAX])], 9);
        // Turns of 128 bytes of its own and two in common cost the most.
        let own = |at: usize| u8::from(at % 130 < 128);
        back(&[(0, vec![0; BYTES_MAX]), (1, (0..BYTES_MAX).map(own).collect())], 2);
        back(
            &[
                (0, vec![0; BYTES_MAX]),
                (1, (0..BYTES_MAX).map(|at| u8::from(at % 3 < 1)).collect()),
            ],
            2,
        );
    }

    #[test]
    fn what_processes_have_in_common_is_written_once() {
        let bytes = |rank: u32| [&[9; 100], &rank.to_le_bytes()[..], &[8; 100]].concat();
        let all: Vec<_> = (0..500).map(|rank| (rank, bytes(rank))).collect();
        assert!(back(&all, 500) < 204 + 500 * 11);
    }

    #[test]
    fn what_is_no_bundle_is_refused() {
        let entries = [(1, b"abc".to_vec()), (5, b"abd".to_vec())];
        let bundle = encode(entries.iter().cloned());
        for length in 0..bundle.len() {
            assert_eq!(decode(&bundle[..length], 6), None, "{length}");
        }
        assert_eq!(decode(&[&bundle[..], &[0]].concat(), 6), None, "one byte too many");
        assert_eq!(decode(&bundle, 5), None, "there is no rank 5");
        for garbled in [
            &[3, 0, 0, 0, 0][..],
            &[1, 0, 1, 0, 0],
            &[1, 0, 1, 1, 0],
            &[1, 0, 1, 0, 2, 7, 7],
            &[1, 0, 0xff, 0xff, 0xff, 0x7f],
            &[1, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0],
            &[2, 0, 2, 0, 2, 7, 7, 0, 3, 3, 0],
        ] {
            assert_eq!(decode(garbled, 2), None, "{garbled:?}");
        }
    }
}
