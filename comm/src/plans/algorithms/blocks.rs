//! The places of the ranks' blocks in a memory, in which they follow one another.

use std::ops::Range;

use crate::error::Error;

/// The largest number of bytes that a memory can have.
pub(crate) const LENGTH_MAX: usize = isize::MAX.unsigned_abs();

/// The places of the blocks of `size` ranks. The first block begins at `start`.
pub(crate) fn places(
    size: u32,
    lengths: &[usize],
    start: usize,
) -> Result<Vec<Range<usize>>, Error> {
    if lengths.len() != size as usize {
        let what = "expected one length for each rank";
        return Err(Error::Length { length: lengths.len(), what });
    }
    let mut end = start;
    let place = |length: &usize| {
        let from = end;
        end = end.checked_add(*length).filter(|end| *end <= LENGTH_MAX)?;
        Some(from..end)
    };
    let places: Option<Vec<_>> = lengths.iter().map(place).collect();
    places.ok_or(Error::Length {
        length: usize::MAX,
        what: "the blocks together are longer than any memory",
    })
}

/// The end of the last block.
pub(crate) fn end(places: &[Range<usize>]) -> usize {
    places.last().map_or(0, |place| place.end)
}

/// Checks that a member has passed as many bytes as the lengths say.
pub(crate) fn check(length: usize, due: usize) -> Result<(), Error> {
    let what = "differs from the lengths of blocks that were passed";
    if length == due { Ok(()) } else { Err(Error::Length { length, what }) }
}
