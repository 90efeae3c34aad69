//! The size of a ring, and how its lines are counted.

use std::ops::RangeInclusive;

use tagmatch_device::Outgoing;

use super::slot::{BODY_BYTES, IMMEDIATE_BYTES};

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: u32 = 64;

/// Bytes of a ring's header.
pub(crate) const HEADER_BYTES: usize = 512;
/// The largest page that a processor is known to have as its ordinary one.
const PAGE_MAX: usize = 64 << 10;
/// The long lines begin on a page of their own.
const LONG_AT_BYTES: usize = PAGE_MAX;

/// Where the parts of a ring are in the memory of a pair, in bytes from its beginning.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// The header.
    pub header: usize,
    /// The short lines.
    pub short: usize,
    /// The long lines.
    pub long: usize,
}

/// The size of a ring: the number of its cache lines, a power of two.
///
/// Lines are counted by a *position*, modulo 2^32. A lap through the ring has as many positions as
/// there are lines, also if a writer begins the next lap early: then it skips the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Geometry {
    lines: u32,
}

impl Geometry {
    /// Bytes that a ring can have.
    pub const BYTES: RangeInclusive<u32> = 4096..=1 << 28;

    /// The short lines of a ring: those that an idle connection has. Four messages of some 200
    /// bytes, or 15 of up to 56.
    pub(crate) const SHORT: Geometry = Geometry { lines: 16 };

    /// After a message of more lines, short lines are too few.
    pub(crate) const SHORT_MESSAGE_LINES: u32 = 4;

    /// A geometry; `None` unless the number of bytes is a power of two in its range.
    pub fn new(bytes: u32) -> Option<Self> {
        let fits = bytes.is_power_of_two() && Self::BYTES.contains(&bytes);
        fits.then_some(Geometry { lines: bytes / LINE_BYTES })
    }

    /// The number of lines.
    #[inline]
    pub fn lines(self) -> u32 {
        self.lines
    }

    /// The bytes of all lines.
    pub fn bytes(self) -> u32 {
        self.lines * LINE_BYTES
    }

    /// The longest message that can always be sent through an empty ring. All lines of a message
    /// lie one behind the other, so up to half of the ring may have to be skipped before it. One
    /// more line is cleared for the next message.
    pub fn message_max(self) -> u32 {
        self.bytes() / 2 - 2 * LINE_BYTES
    }

    /// Whether a worker may announce this length as its longest message. A header has to fit.
    pub fn allows_messages_of(self, length: u32) -> bool {
        length as usize >= Outgoing::HEADER_MAX && length <= self.message_max()
    }

    /// The longest fragment of a copied read, without its header.
    pub(crate) fn fragment_max(self) -> u32 {
        (self.bytes() / 8).min(32 << 10)
    }

    /// Length of the memory of a pair whose rings have this many long lines. It is taken as it is
    /// used: a page for headers and short lines, and others for long lines.
    pub fn pair_bytes(self) -> usize {
        LONG_AT_BYTES + 2 * self.long_bytes()
    }

    /// From one ring's long lines to the other's. They have no page in common.
    pub(crate) fn long_bytes(self) -> usize {
        (self.bytes() as usize).max(PAGE_MAX)
    }

    /// Where the parts of both rings are in the memory of a pair: first of the ring that the maker
    /// of the memory reads.
    pub fn places(self) -> [Places; 2] {
        [0, 1].map(|at| Places {
            header: at * HEADER_BYTES,
            short: 2 * HEADER_BYTES + at * Self::SHORT.bytes() as usize,
            long: LONG_AT_BYTES + at * self.long_bytes(),
        })
    }

    /// Which line a position counts.
    #[inline(always)]
    pub fn line(self, position: u32) -> u32 {
        position & (self.lines - 1)
    }

    /// Whether a position is in a lap with an odd number.
    #[inline(always)]
    pub(crate) fn is_in_odd_lap(self, position: u32) -> bool {
        position & self.lines != 0
    }

    /// The position of the first line in the lap after this position's.
    #[inline(always)]
    pub fn next_lap(self, position: u32) -> u32 {
        (position | (self.lines - 1)).wrapping_add(1)
    }
}

/// Whether a position is before another one. Both are close together, modulo 2^32.
#[inline(always)]
pub(super) fn is_before(one: u32, other: u32) -> bool {
    one.wrapping_sub(other) >= 1 << 31
}

/// The later one of two positions.
pub(super) fn later(one: u32, other: u32) -> u32 {
    if is_before(one, other) { other } else { one }
}

/// How many lines a message takes of which `outside` bytes don't fit into its slot.
#[inline(always)]
pub(crate) fn lines_of(outside: u32) -> u32 {
    1 + outside.div_ceil(LINE_BYTES)
}

const _: () = {
    assert!(IMMEDIATE_BYTES == 4);
    // Headers and short lines share a page of the smallest size.
    assert!(2 * (HEADER_BYTES + (Geometry::SHORT.lines * LINE_BYTES) as usize) <= 4096);
    // The longest message, with its slot and with the line behind it, takes at most half of a ring.
    let room = BODY_BYTES - 4;
    let longest = Geometry { lines: *Geometry::BYTES.start() / LINE_BYTES };
    let outside = longest.lines * LINE_BYTES / 2 - 2 * LINE_BYTES - room;
    assert!(1 + outside.div_ceil(LINE_BYTES) < longest.lines / 2);
};

/// Checks what a reader claims to have read: it lies between what it has claimed before and what
/// was produced.
///
/// # Errors
/// The rule that the reader broke.
#[inline]
pub fn checked_progress(before: u32, claim: u32, produced: u32) -> Result<u32, &'static str> {
    if claim.wrapping_sub(before) > produced.wrapping_sub(before) {
        return Err("a reader claims more than was written");
    }
    Ok(claim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_out_of_range_or_not_a_power_of_two_are_refused() {
        assert!(Geometry::new(1 << 18).is_some() && Geometry::new(4096).is_some());
        assert!(Geometry::new((1 << 18) + 64).is_none());
        assert!(Geometry::new(0).is_none() && Geometry::new(2048).is_none());
        assert!(Geometry::new(1 << 29).is_none());
        let geometry = Geometry::new(1 << 18).unwrap();
        assert_eq!((geometry.bytes(), geometry.lines()), (1 << 18, 1 << 12));
        assert_eq!(geometry.pair_bytes(), (64 << 10) + 2 * (1 << 18));
        assert_eq!(Geometry::new(4096).unwrap().pair_bytes(), 3 * (64 << 10), "pages of their own");
        let allowed = [63, 64, (1 << 17) - 128, (1 << 17) - 127];
        assert_eq!(allowed.map(|at| geometry.allows_messages_of(at)), [false, true, true, false]);
    }

    proptest! {
        #[test]
        fn a_lap_begins_at_the_first_line(bytes in 12u32..=28, position: u32) {
            let geometry = Geometry::new(1 << bytes).unwrap();
            let next = geometry.next_lap(position);
            prop_assert_eq!(geometry.line(next), 0);
            let left = next.wrapping_sub(position);
            prop_assert_eq!(left + geometry.line(position), geometry.lines());
        }

        #[test]
        fn the_longest_message_fits_behind_a_skipped_end(bytes in 12u32..=28, line: u32) {
            let geometry = Geometry::new(1 << bytes).unwrap();
            let line = geometry.line(line);
            let outside = geometry.message_max() - (BODY_BYTES - 4);
            let lines = lines_of(outside);
            // It fits behind the line of its slot, or else in front of it.
            prop_assert!(line + lines <= geometry.lines() || lines < line);
            // Several fragments of a read fit at the same time.
            prop_assert!(3 * (geometry.fragment_max() + BODY_BYTES) <= geometry.bytes());
        }
    }
}
