//! The laps of a writer: how long they are, and what they leave in the words of slots.
//!
//! A lap that ends early, as soon as its reader keeps up, uses few lines again and again, which
//! stay in the caches. On Xeon processors of 2023, a line is dear that is written soon after the
//! reader had it: a lap of all lines takes two thirds of the time for windows of 256 bytes. On an
//! EPYC it is the other way round, but for messages of 4 KiB and more, which the writer of a short
//! lap would take back from the reader's own cache. So a writer that is busy learns it, for short
//! and for long messages apart.

use std::time::Instant;

use super::geometry::{Geometry, LINE_BYTES, is_before};
use super::slot::Meta;
use crate::learned::{Alternative, Learned, LearnedState};

/// The lines of the shortest laps: a page.
const LINES_MIN: u32 = 64;
/// After so many lines, a writer whose lap could end looks whether its reader keeps up.
const LINES_UNLOOKED: u32 = 32;
/// After so many laps in which there was always room, laps may be half as long.
const LAPS_OF_ONE_LENGTH: u32 = 64;

/// Lines of a sample: several windows of messages, so that it has the time in it that a writer
/// waits for its reader.
const LINES_TIMED: u32 = 4096;

/// The payload of the shortest long message.
pub(crate) const LONG_MESSAGE_BYTES: u32 = 2 << 10;
/// The lines of the shortest long message, with its slot.
const LONG_MESSAGE_LINES: u32 = LONG_MESSAGE_BYTES / LINE_BYTES + 1;

/// Samples are sixteenths of a nanosecond a line of 64 bytes, so that a quarter of a percent shows.
const COSTS_PER_NS: u32 = 16;

/// Whether laps end early, learned from the time that lines take.
pub(super) struct LapChoice {
    /// For laps of short messages.
    short: Learned,
    /// For laps that have long messages in them.
    long: Learned,
    /// Nothing is learned.
    is_pinned: bool,
    /// The laps have long messages in them.
    is_long: bool,
    /// A long message was seen since the sample began.
    has_seen_long: bool,
    began: Option<Instant>,
    /// Lines of all laps that have ended since then, less the lines of the first that were used
    /// before.
    lines: u32,
}

impl LapChoice {
    /// Begins with laps that end early, and learns. With `pinned`, laps always end early, or never.
    pub(super) fn new(geometry: Geometry, pinned: Option<bool>) -> Self {
        // After so many samples, a lap that is as long as the ring has used all of its lines once.
        let left_out = geometry.lines().div_ceil(LINES_TIMED);
        let start = if pinned == Some(false) { Alternative::Second } else { Alternative::First };
        let learned = || Learned::new(start, left_out as usize);
        LapChoice {
            short: learned(),
            long: learned(),
            is_pinned: pinned.is_some(),
            is_long: false,
            has_seen_long: false,
            began: None,
            lines: 0,
        }
    }

    /// As `new`; `None` where laps always end early.
    pub(super) fn unless_short(geometry: Geometry, pinned: Option<bool>) -> Option<Box<Self>> {
        (pinned != Some(true)).then(|| Box::new(Self::new(geometry, pinned)))
    }

    /// The choices for short and for long messages, for a person; `None` if nothing is learned.
    pub(super) fn states(&self) -> Option<[LearnedState; 2]> {
        let figures_per_ns = f64::from(COSTS_PER_NS * LINE_BYTES);
        let states = [&self.short, &self.long].map(|learned| learned.state(figures_per_ns));
        (!self.is_pinned).then_some(states)
    }

    fn learned(&mut self) -> &mut Learned {
        if self.is_long { &mut self.long } else { &mut self.short }
    }

    fn ends_early(&mut self) -> bool {
        self.learned().way() == Alternative::First
    }

    /// The writer has gone on to other lines, of this lap.
    pub(super) fn follow(&mut self, geometry: Geometry, lap: &mut Lap) {
        self.began = None;
        self.lines = 0;
        if !self.ends_early() {
            lap.set_ends_early(geometry, false);
        }
    }

    /// A lap has ended after so many lines.
    #[inline]
    pub(super) fn ended(&mut self, filled: u32) {
        self.lines = self.lines.wrapping_add(filled);
    }

    /// The writer is at this line, with a message of `message_lines`. Gives how it changes, if it
    /// does: whether laps end early.
    pub(super) fn at(
        &mut self,
        line: u32,
        message_lines: u32,
        clock: impl FnOnce() -> Instant,
    ) -> Option<bool> {
        let is_message_long = message_lines >= LONG_MESSAGE_LINES;
        self.has_seen_long |= is_message_long;
        if is_message_long && !self.is_long {
            return self.change_length(line);
        }
        let lines = self.lines.wrapping_add(line);
        if lines < LINES_TIMED {
            return None;
        }
        if self.is_long && !self.has_seen_long {
            return self.change_length(line);
        }
        let now = clock();
        self.begin_sample(line);
        let began = self.began.replace(now).filter(|_| !self.is_pinned)?;
        let ns = now.duration_since(began).as_nanos();
        let cost = ns * u128::from(COSTS_PER_NS) / u128::from(lines);
        let has_changed = self.learned().sample(u32::try_from(cost).unwrap_or(u32::MAX));
        has_changed.then(|| self.ends_early())
    }

    fn begin_sample(&mut self, line: u32) {
        // Subtracts `line` when the lap ends, since its first lines are counted here.
        self.lines = 0u32.wrapping_sub(line);
        self.has_seen_long = false;
    }

    /// From this line on, laps have long messages in them, or no longer. Gives how laps change.
    fn change_length(&mut self, line: u32) -> Option<bool> {
        let ended_early = self.ends_early();
        self.is_long = !self.is_long;
        self.began = None;
        self.begin_sample(line);
        let ends_early = self.ends_early();
        (ends_early != ended_early).then_some(ends_early)
    }
}

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
    /// Whether laps may be shorter than the ring.
    pub(super) ends_early: bool,
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
            ends_early: true,
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
        // A reader that is still in the other lines holds none of the lines in use.
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
        if self.count >= LAPS_OF_ONE_LENGTH && self.ends_early {
            self.count = 0;
            self.lines_min = (self.lines_min / 2).max(LINES_MIN);
        }
    }

    /// Whether laps may end early from now on.
    pub(super) fn set_ends_early(&mut self, geometry: Geometry, ends_early: bool) {
        self.ends_early = ends_early;
        self.count = 0;
        self.lines_min = if ends_early { LINES_MIN } else { geometry.lines() };
    }

    /// There was no room: laps become longer.
    pub(super) fn grow(&mut self, geometry: Geometry) {
        self.count = 0;
        self.lines_min = (2 * self.lines_min).min(geometry.lines());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Goes through so many lines with messages of `message_lines`, in laps as long as the choice
    /// says, which take so long for each line in short and in long laps.
    fn write(choice: &mut LapChoice, message_lines: u32, lines: u32, ns: [u64; 2]) -> Lap {
        let geometry = Geometry::new(256 << 10).unwrap();
        let mut lap = Lap::first(geometry, 0);
        choice.follow(geometry, &mut lap);
        let mut now = Instant::now();
        let mut line = 0;
        for _ in 0..lines / message_lines {
            line += message_lines;
            let way = usize::from(!lap.ends_early);
            now += Duration::from_nanos(u64::from(message_lines) * ns[way]);
            if line >= lap.lines_min {
                choice.ended(line);
                line = 0;
            }
            if let Some(ends_early) = choice.at(line, message_lines, || now) {
                lap.set_ends_early(geometry, ends_early);
            }
        }
        lap
    }

    const SHORT: u32 = LONG_MESSAGE_LINES - 2;
    const LONG: u32 = LONG_MESSAGE_LINES;

    #[test]
    fn laps_become_as_long_as_makes_lines_cheaper() {
        for message_lines in [SHORT, LONG] {
            let geometry = Geometry::new(256 << 10).unwrap();
            let mut choice = LapChoice::new(geometry, None);
            let lap = write(&mut choice, message_lines, 3 * 18 * LINES_TIMED, [17, 12]);
            assert_eq!(lap.lines_min, geometry.lines());
            let lap = write(&mut choice, message_lines, 200 * 18 * LINES_TIMED, [12, 17]);
            assert_eq!(lap.lines_min, LINES_MIN);
        }
    }

    #[test]
    fn long_messages_say_nothing_about_laps_of_short_ones() {
        let geometry = Geometry::new(256 << 10).unwrap();
        let mut choice = LapChoice::new(geometry, None);
        assert!(!write(&mut choice, LONG, 3 * 18 * LINES_TIMED, [17, 12]).ends_early);
        // The last long message is seen in the first sample of short ones.
        assert!(write(&mut choice, SHORT, 3 * LINES_TIMED, [12, 17]).ends_early);
        assert!(!write(&mut choice, LONG, LONG, [17, 12]).ends_early);
        // One long message in each sample keeps laps as they are for long ones.
        for _ in 0..20 {
            assert!(!write(&mut choice, SHORT, LINES_TIMED / 2, [12, 17]).ends_early);
            assert!(!write(&mut choice, LONG, LONG, [17, 12]).ends_early);
        }
    }

    #[test]
    fn laps_that_are_as_long_as_the_ring_stay_so() {
        let geometry = Geometry::new(256 << 10).unwrap();
        let mut lap = Lap::first(geometry, 0);
        lap.set_ends_early(geometry, false);
        for _ in 0..2 * LAPS_OF_ONE_LENGTH {
            lap.end(geometry, geometry.lines(), 0);
        }
        assert_eq!(lap.lines_min, geometry.lines());
    }
}
