//! Where the blocks of several ranks are in a memory, one after the other.

use std::ops::Range;

use crate::error::Error;

/// Most bytes that a memory can have.
pub(crate) const LENGTH_MAX: usize = isize::MAX.unsigned_abs();

/// The places of the blocks of `size` ranks, from `start` on.
pub(crate) fn places(
    size: u32,
    lengths: &[usize],
    start: usize,
) -> Result<Vec<Range<usize>>, Error> {
    if lengths.len() != size as usize {
        let what = "one for each rank is due";
        return Err(Error::Length { length: lengths.len(), what });
    }
    let mut end = start;
    let place = |length: &usize| {
        let from = end;
        end = end.checked_add(*length).filter(|end| *end <= LENGTH_MAX)?;
        Some(from..end)
    };
    let places: Option<Vec<_>> = lengths.iter().map(place).collect();
    places.ok_or(Error::Length { length: usize::MAX, what: "more than there can be" })
}

/// Where the last block ends.
pub(crate) fn end(places: &[Range<usize>]) -> usize {
    places.last().map_or(0, |place| place.end)
}

/// Whether the bytes that a member gave are as many as the lengths say.
pub(crate) fn check(length: usize, due: usize) -> Result<(), Error> {
    let what = "not the sum, or not the own one, of the lengths that were given";
    if length == due { Ok(()) } else { Err(Error::Length { length, what }) }
}
