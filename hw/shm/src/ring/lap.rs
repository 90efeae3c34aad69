//! The laps of a writer: how long they are, and what they leave in the words of slots.

use super::geometry::{Geometry, is_before};
use super::slot::Meta;

/// The lines of the shortest laps: a page.
const LINES_MIN: u32 = 64;
/// After so many lines, a writer whose lap could end looks whether its reader keeps up.
const LINES_UNLOOKED: u32 = 32;
/// After so many laps in which there was always room, laps may be half as long.
const LAPS_OF_ONE_LENGTH: u32 = 64;

/// The lap in which a writer is.
pub(super) struct Lap {
    /// The position of its first line.
    pub(super) start: u32,
    /// How many lines of the lap before were used. The others are free.
    pub(super) filled_before: u32,
    /// The flags of its messages.
    pub(super) flags: Meta,
    /// A lap has at least so many lines.
    lines_min: u32,
    /// Laps since `lines_min` was changed.
    count: u32,
    /// The lap before has stored the word of a slot there, or it is zero.
    before: LineSet,
    /// This lap has stored the word of a slot there.
    now: LineSet,
}

/// A bit for each line.
struct LineSet {
    words: Box<[u64]>,
    /// The words behind these are zero.
    used: usize,
}

/// A bit of a word, and which word of all lines it is in.
fn bit(line: u32) -> (usize, u32) {
    ((line / u64::BITS) as usize, line % u64::BITS)
}

impl Lap {
    /// The lap of this position, in a ring whose words are zero.
    pub(super) fn first(geometry: Geometry, position: u32) -> Self {
        let words = geometry.lines().div_ceil(u64::BITS) as usize;
        Lap {
            start: position - geometry.line(position),
            filled_before: 0,
            flags: Meta::of_lap(geometry.is_in_odd_lap(position)),
            lines_min: LINES_MIN,
            count: 0,
            before: LineSet { words: vec![u64::MAX; words].into(), used: words },
            now: LineSet { words: vec![0; words].into(), used: 0 },
        }
    }

    /// How many lines up to `produced` the reader isn't known to have read, at most. `consumed`:
    /// how far it has read.
    pub(super) fn unread(&self, geometry: Geometry, consumed: u32, produced: u32) -> u32 {
        if is_before(consumed, self.start) {
            // A reader may claim to have read lines that were skipped.
            let before = self.filled_before.saturating_sub(geometry.line(consumed));
            produced.wrapping_sub(self.start) + before
        } else {
            produced.wrapping_sub(consumed)
        }
    }

    /// The position that a next slot has to be before, if this lap goes on behind `produced`.
    pub(super) fn limit(&self, geometry: Geometry, consumed: u32, produced: u32) -> u32 {
        // A reader that is in other lines still holds none of these.
        let line = geometry.line(consumed).min(self.filled_before);
        if is_before(consumed, self.start) && geometry.line(produced) < line {
            self.start.wrapping_add(line)
        } else {
            self.start.wrapping_add(geometry.lines())
        }
    }

    /// Whether the lap can end after `filled` lines, with a message of `lines`, if the reader has
    /// so many lines to read: the next lap finds three quarters of them free.
    pub(super) fn can_end(&self, filled: u32, lines: u32, unread: u32) -> bool {
        filled >= self.lines_min && filled >= 2 * lines && 4 * unread <= filled
    }

    /// How many lines can follow this one before the writer has to look whether the lap ends.
    pub(super) fn until_end(&self, line: u32) -> u32 {
        (self.lines_min - 1).checked_sub(line).unwrap_or(LINES_UNLOOKED)
    }

    /// In these lines, slots begin.
    pub(super) fn mark(&mut self, first: u32, last: u32) {
        self.now.used = self.now.used.max(bit(last).0 + 1);
        let mut line = first;
        while line <= last {
            let (word, bit) = bit(line);
            let count = (last - line + 1).min(u64::BITS - bit);
            self.now.words[word] |= u64::MAX >> (u64::BITS - count) << bit;
            line += count;
        }
    }

    /// How many lines from this one on, of those with a common word, hold nothing that could be
    /// taken for a message of this lap.
    pub(super) fn clear_lines(&self, line: u32) -> u32 {
        let (word, bit) = bit(line);
        self.before.words.get(word).map_or(0, |word| (word >> bit).trailing_ones())
    }

    /// Another lap begins at `start`, after so many lines of this one.
    pub(super) fn end(&mut self, geometry: Geometry, filled: u32, start: u32) {
        (self.start, self.filled_before) = (start, filled);
        self.flags = Meta::of_lap(geometry.is_in_odd_lap(start));
        std::mem::swap(&mut self.before, &mut self.now);
        self.now.words[..self.now.used].fill(0);
        self.now.used = 0;
        self.count += 1;
        if self.count >= LAPS_OF_ONE_LENGTH {
            self.count = 0;
            self.lines_min = (self.lines_min / 2).max(LINES_MIN);
        }
    }

    /// There was no room: laps become longer.
    pub(super) fn grow(&mut self, geometry: Geometry) {
        self.count = 0;
        self.lines_min = (2 * self.lines_min).min(geometry.lines());
    }
}
