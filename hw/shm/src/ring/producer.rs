//! The writing end of a ring.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::Instant;

use tagmatch_device::Outgoing;

use super::geometry::{Geometry, checked_progress, is_before, later, lines_of};
use super::lap::{Lap, LapChoice};
use super::memory::Ring;
use super::parts::MessageParts;
use super::piggyback::Piggyback;
use super::slot::Meta;
use crate::doorbell::SleepAnnounced;
use crate::learned::LearnedState;
use crate::streaming::{self, WriteWay, Writing};
use crate::sync::{fence, light_fence};

/// Why a message was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushError {
    /// No room now.
    Full,
    /// The reader has claimed progress that is impossible: the rule that it broke.
    Broken(&'static str),
}

/// A longer run is written without hints to the processor.
const HINTED_BYTES_MAX: u32 = 8 << 10;

/// A message with a run that follows the one before it after fewer polls is one of a batch.
const POLLS_BETWEEN_BATCHES: u32 = 8;

/// So many words of slots are cleared at a time.
const LINES_CLEARED: u32 = 8;

/// A lap of the short lines that took fewer polls than this is one of a pair that is busy.
const BUSY_POLLS: u32 = 2048;

/// The writing end of a ring: one per ring.
pub(crate) struct Producer {
    ring: Ring,
    piggyback: Arc<Piggyback>,
    /// The position of the next slot. Its word is clear.
    produced: u32,
    /// Up to this position, each line is free and the lap goes on.
    unlooked: u32,
    /// Up to this position, also the words of slots are clear.
    unchecked: u32,
    /// How far the reader is known to have read.
    consumed: u32,
    /// How far the reader has read, by its last message that was looked at.
    peer_progress: u32,
    /// How far the reader has read, as it had published when that was last looked at.
    published: u32,
    pub(super) lap: Lap,
    /// `None`: laps of the long lines always end early.
    lap_choice: Option<Box<LapChoice>>,
    /// The slots before this position are marked in the lap.
    marked: u32,
    /// The value of `consumed` when a message of the engine was last refused.
    refused_at: u32,
    /// The polls of this worker when a message with a run was last written.
    polls_at_run: u32,
    /// The polls of this worker when a lap of the short lines last ended.
    polls_at_lap: u32,
    /// The position of the first of the lines in use, until the reader is known to use them, too.
    changed_at: Option<u32>,
    /// The position of the next slot when [`Producer::rest`] was last called.
    rested_at: u32,
    /// How runs are written.
    writing: Writing,
}

/// Where a message goes.
#[derive(Clone, Copy)]
struct SlotPlace {
    lines: u32,
    /// The position of the next slot.
    next: u32,
    /// The lap ends: the next slot is the first line.
    is_last: bool,
}

impl Producer {
    /// The writing end of a new ring. `piggyback`: shared with the reading end of the ring of the
    /// other direction.
    pub(crate) fn new(ring: Ring, piggyback: Arc<Piggyback>) -> Self {
        Self::starting_at(ring, piggyback, 0)
    }

    /// The writing end of a ring at this position. Both ends must start at the same position, and
    /// all words must be zero.
    pub(crate) fn starting_at(ring: Ring, piggyback: Arc<Piggyback>, start: u32) -> Self {
        let lap = Lap::first(ring.geometry(), start);
        Producer {
            ring,
            piggyback,
            produced: start,
            unlooked: start,
            unchecked: start,
            consumed: start,
            peer_progress: start,
            published: start,
            lap,
            lap_choice: None,
            marked: start,
            refused_at: start,
            polls_at_run: 0,
            polls_at_lap: 0,
            changed_at: None,
            rested_at: start,
            writing: Writing::new(streaming::is_faster_here(), usize::MAX),
        }
    }

    /// Learns whether laps of the long lines are to end early, unless `short_laps` pins it. With
    /// `streams`, it is pinned whether long runs are written past the cache.
    pub(crate) fn with_ways(mut self, short_laps: Option<bool>, streams: Option<bool>) -> Self {
        self.lap_choice = LapChoice::unless_short(self.ring.long_geometry(), short_laps);
        self.writing = streams.map_or(self.writing, Writing::pinned);
        self
    }

    /// The choice between short and whole laps, for a person: that of messages shorter than
    /// [`LONG_MESSAGE_BYTES`], and that of longer ones.
    pub(crate) fn learned_laps(&self) -> Option<[LearnedState; 2]> {
        self.lap_choice.as_ref()?.states()
    }

    /// The ring that this end writes.
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    pub(crate) fn long_geometry(&self) -> Geometry {
        self.ring.long_geometry()
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn ends_laps_early(&self) -> bool {
        self.lap.ends_early
    }

    /// Writes one message of the engine: `first`, then `second`. The caller has checked that it is
    /// no longer than the geometry's `message_max`. `polls` counts the polls of this worker; a
    /// short message doesn't need it, so it is a reference.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        first: &[u8],
        second: &[u8],
        immediate: Option<u32>,
        polls: &u32,
    ) -> Result<(), PushError> {
        self.write(MessageParts { first, second, immediate }, Some(polls))
    }

    /// Writes one internal message, as [`Producer::push`] does for the engine.
    #[inline]
    pub(crate) fn push_internal(&mut self, first: &[u8], second: &[u8]) -> Result<(), PushError> {
        self.write(MessageParts { first, second, immediate: None }, None)
    }

    /// Writes one message; without `polls`, an internal one.
    #[inline(always)]
    fn write(&mut self, parts: MessageParts<'_>, polls: Option<&u32>) -> Result<(), PushError> {
        let slots = parts.slots();
        let place = self.straight(slots);
        if slots == 0 || is_before(self.unchecked, place.next) {
            // A copy of the header is passed, so that the address of a header that was made in
            // registers isn't taken.
            let mut header = [0; Outgoing::HEADER_MAX];
            let first = &mut header[..parts.first.len()];
            first.copy_from_slice(parts.first);
            return self.write_to_new_place(MessageParts { first, ..parts }, polls);
        }
        // SAFETY: the lines are free, since they are before `unchecked`.
        unsafe { parts.write_slots(&self.ring, self.produced, slots, self.lap.flags) };
        self.publish_slots(place, parts, polls.is_none());
        Ok(())
    }

    /// [`Producer::write`], for a message with a run, or one whose place has to be looked for.
    #[inline(never)]
    fn write_to_new_place(
        &mut self,
        parts: MessageParts<'_>,
        polls: Option<&u32>,
    ) -> Result<(), PushError> {
        let slots = parts.slots();
        if slots == 0 {
            return self.write_with_run(parts, polls);
        }
        let place = self.place(slots, WriteWay::Ordinary, polls)?;
        let line = self.ring.geometry().line(self.produced);
        self.lap.mark(line, line + slots - 1);
        // SAFETY: the lines are free, by `place`.
        unsafe { parts.write_slots(&self.ring, self.produced, slots, self.lap.flags) };
        self.publish_slots(place, parts, polls.is_none());
        self.clear_ahead();
        Ok(())
    }

    /// Clears words for the next messages, after one was published that was the first in a line
    /// without a word of the lap before: the lines behind it have none either, most likely.
    fn clear_ahead(&mut self) {
        let geometry = self.ring.geometry();
        let end = self.produced.wrapping_add(LINES_CLEARED);
        while is_before(self.unchecked, self.unlooked) && is_before(self.unchecked, end) {
            let next = self.unchecked.wrapping_add(1);
            let clear = self.lap.clear_lines(geometry.line(next));
            if clear == 0 {
                self.ring.slot(next).word.store(0, Relaxed);
            }
            let clear = self.unchecked.wrapping_add(clear.max(1));
            self.unchecked = if is_before(clear, self.unlooked) { clear } else { self.unlooked };
        }
    }

    /// Finds the place of a message of so many lines, and clears the word of the next slot.
    #[inline(always)]
    fn place(
        &mut self,
        lines: u32,
        way: WriteWay,
        polls: Option<&u32>,
    ) -> Result<SlotPlace, PushError> {
        let mut place = self.straight(lines);
        if is_before(self.unlooked, place.next) {
            place = self.place_after_a_look(lines, way, polls)?;
        }
        self.prepare(place);
        Ok(place)
    }

    /// The place of a message after which the lap goes on.
    #[inline(always)]
    fn straight(&self, lines: u32) -> SlotPlace {
        SlotPlace { lines, next: self.produced.wrapping_add(lines), is_last: false }
    }

    /// Prepares the slot that follows a message at this place: clears its word if there could be
    /// anything but a word of the lap before.
    fn prepare(&mut self, SlotPlace { next, .. }: SlotPlace) {
        let geometry = self.ring.geometry();
        // The slot of this message, and messages of one line that were written before it.
        self.lap.mark(geometry.line(self.marked), geometry.line(self.produced));
        self.marked = next;
        let clear = self.lap.clear_lines(geometry.line(next));
        if clear == 0 {
            self.ring.slot(next).word.store(0, Relaxed);
        }
        let clear = next.wrapping_add(clear.saturating_sub(1));
        self.unchecked = if is_before(clear, self.unlooked) { clear } else { self.unlooked };
    }

    /// Loads how far the reader has read, and finds the place of a message of so many lines.
    #[inline(never)]
    fn place_after_a_look(
        &mut self,
        lines: u32,
        way: WriteWay,
        polls: Option<&u32>,
    ) -> Result<SlotPlace, PushError> {
        self.look_at_peer_progress()?;
        self.choose_laps(lines);
        let mut known = self.known_place(lines, way);
        if self.ring.is_short() && self.outgrows_short_lines(lines, known, polls) {
            self.load_published()?;
            if self.change_lines() {
                known = self.known_place(lines, way);
            }
        }
        let place = known.map_or_else(|| self.make_place(lines, way, polls.is_none()), Ok)?;
        self.unlooked = place.next;
        if !place.is_last {
            let geometry = self.ring.geometry();
            // The line behind a message has to be free, too.
            let limit = self.lap.limit(geometry, self.consumed, place.next);
            let free = limit.wrapping_sub(place.next) - 1;
            let until_end = self.lap.until_end(geometry.line(place.next));
            self.unlooked = place.next.wrapping_add(free.min(until_end));
        }
        Ok(place)
    }

    /// Goes on with longer or shorter laps, if they have turned out to be faster for messages like
    /// this one, of so many lines.
    fn choose_laps(&mut self, message_lines: u32) {
        let geometry = self.ring.geometry();
        let line = geometry.line(self.produced);
        if let Some(choice) = self.lap_choice.as_mut().filter(|_| !self.ring.is_short())
            && let Some(ends_early) = choice.at(line, message_lines, Instant::now)
        {
            self.lap.set_ends_early(geometry, ends_early);
        }
    }

    /// Loads the reader's progress from its last message, and checks it.
    fn look_at_peer_progress(&mut self) -> Result<(), PushError> {
        self.peer_progress =
            checked_progress(self.peer_progress, self.piggyback.peer_progress(), self.produced)
                .map_err(PushError::Broken)?;
        self.consumed = later(self.consumed, self.peer_progress);
        Ok(())
    }

    /// Whether the short lines are too few for messages of so many lines, which have this place
    /// there, or for messages that come as fast as these. `polls` counts the polls of this worker,
    /// which are many between two messages to a peer if there are many peers.
    fn outgrows_short_lines(
        &mut self,
        lines: u32,
        known: Option<SlotPlace>,
        polls: Option<&u32>,
    ) -> bool {
        let is_last = known.is_some_and(|place| place.is_last);
        let is_busy = is_last
            && polls.is_some_and(|polls| {
                polls.wrapping_sub(std::mem::replace(&mut self.polls_at_lap, *polls)) < BUSY_POLLS
            });
        lines > Geometry::SHORT_MESSAGE_LINES || is_busy
    }

    /// Goes on to the other lines. The next slot, which is free, gets a word that tells the reader.
    /// Returns `false` while the reader has not followed the change before: a second change isn't
    /// possible then.
    fn change_lines(&mut self) -> bool {
        if !self.can_change_lines() {
            return false;
        }
        let word = Meta::CHANGE_LINES.word(self.lap.flags, self.piggyback.taken());
        self.ring.slot(self.produced).word.store(word, Release);
        let next = self.ring.long_geometry().next_lap(self.produced);
        self.ring.change_lines();
        self.lap = Lap::first(self.ring.geometry(), next);
        (self.produced, self.unlooked, self.unchecked, self.marked) = (next, next, next, next);
        self.changed_at = Some(next);
        if let Some(choice) = self.lap_choice.as_mut().filter(|_| !self.ring.is_short()) {
            choice.follow(self.ring.geometry(), &mut self.lap);
        }
        true
    }

    /// Whether the reader is known to have followed to the lines that are in use.
    pub(crate) fn can_change_lines(&self) -> bool {
        self.changed_at.is_none_or(|position| !is_before(self.consumed, position))
    }

    /// To be called now and then. Goes back to the short lines if no message was written since the
    /// last call and the reader has read all. Returns whether it has done so; the reader needn't be
    /// woken for it, and gives the memory of the long lines back once it looks.
    pub(crate) fn rest(&mut self) -> Result<bool, PushError> {
        let is_idle = std::mem::replace(&mut self.rested_at, self.produced) == self.produced;
        if self.ring.is_short() || !is_idle {
            return Ok(false);
        }
        self.look_at_peer_progress()?;
        self.load_published()?;
        if self.consumed != self.produced {
            return Ok(false);
        }
        // The reader reads no short line now: it goes there after this.
        self.ring.other_lines().clear();
        Ok(self.change_lines())
    }

    /// The place of a message of so many lines, if it is known to be free. The line behind it has
    /// to be free, too: its word is cleared.
    fn known_place(&self, lines: u32, way: WriteWay) -> Option<SlotPlace> {
        let geometry = self.ring.geometry();
        let filled = geometry.line(self.produced) + lines;
        let unread = self.lap.unread(geometry, self.consumed, self.produced);
        let ends_early = way != WriteWay::Streaming && self.lap.can_end(filled, lines, unread);
        // The first line was read.
        let is_behind = is_before(self.lap.start, self.consumed);
        if is_behind && (ends_early || filled == geometry.lines()) && filled <= geometry.lines() {
            let next = geometry.next_lap(self.produced);
            return Some(SlotPlace { lines, next, is_last: true });
        }
        let place = self.straight(lines);
        let limit = self.lap.limit(geometry, self.consumed, self.produced);
        (filled < geometry.lines() && is_before(place.next, limit)).then_some(place)
    }

    /// Finds the place of a message of so many lines by what the reader has published. Skips the
    /// end of the ring if the message is too long for it, and what the reader has not read of a
    /// short lap.
    #[cold]
    #[inline(never)]
    fn make_place(
        &mut self,
        lines: u32,
        way: WriteWay,
        internal: bool,
    ) -> Result<SlotPlace, PushError> {
        self.load_published()?;
        if self.known_place(lines, way).is_none() {
            self.skip(lines);
        }
        if let Some(place) = self.known_place(lines, way) {
            return Ok(place);
        }
        // After lines were skipped there is room: two words that skip never follow each other.
        if self.ring.is_short()
            && self.change_lines()
            && let Some(place) = self.known_place(lines, way)
        {
            return Ok(place);
        }
        self.lap.grow(self.ring.geometry());
        // Internal messages are not counted, since they wait for half of the ring. The engine tries
        // again when there is more room than now.
        if !internal {
            self.refused_at = self.consumed;
        }
        Err(PushError::Full)
    }

    /// Goes on to where a message of so many lines fits, if it doesn't here: to the next lap, or
    /// behind the lines of a short lap.
    fn skip(&mut self, lines: u32) {
        let geometry = self.ring.geometry();
        let next = geometry.next_lap(self.produced);
        if geometry.line(self.produced) + lines > geometry.lines() {
            // The reader is behind the line that the word of the next slot would be in.
            let is_behind = is_before(self.lap.start.wrapping_add(lines), self.consumed);
            if is_behind {
                let place = SlotPlace { lines: 1, next, is_last: true };
                self.prepare(place);
                self.store(place, Meta::SKIP);
            }
            return;
        }
        let behind = self.lap.start.wrapping_add(self.lap.filled_before);
        let is_in_the_way = is_before(self.consumed, self.lap.start);
        if is_in_the_way
            && is_before(self.produced, behind)
            && self.lap.filled_before + lines < geometry.lines()
        {
            let line = geometry.line(behind);
            // SAFETY: the slot is free, as for a message; the body has 56 bytes.
            unsafe {
                self.ring
                    .slot(self.produced)
                    .body
                    .writable()
                    .cast::<[u8; 4]>()
                    .write(line.to_le_bytes());
            }
            let place = SlotPlace { lines: 1, next: behind, is_last: false };
            self.prepare(place);
            self.store(place, Meta::JUMP);
            self.unchecked = self.produced;
        }
    }

    /// Stores the word of a message that lies in slots. They go to the cache that the cores share,
    /// where the reader finds them sooner, and this writer in the next lap.
    #[inline(always)]
    fn publish_slots(&mut self, place: SlotPlace, parts: MessageParts<'_>, internal: bool) {
        let first = self.produced;
        self.store(place, parts.meta(internal, place.is_last));
        self.ring.demote_slot(first);
        if place.lines == 2 {
            self.ring.demote_slot(first.wrapping_add(1));
        }
    }

    /// Stores the word of a message, and goes on to the next slot.
    #[inline(always)]
    fn store(&mut self, place: SlotPlace, meta: Meta) {
        let word = meta.word(self.lap.flags, self.piggyback.taken());
        self.ring.slot(self.produced).word.store(word, Release);
        if place.is_last {
            let geometry = self.ring.geometry();
            let filled = geometry.line(self.produced) + place.lines;
            self.lap.end(geometry, filled, place.next);
            if let Some(choice) = &mut self.lap_choice {
                choice.ended(filled);
            }
            // The reader has read the first line of the lap.
            self.changed_at = None;
        }
        self.produced = place.next;
    }

    #[inline(never)]
    fn write_with_run(
        &mut self,
        parts: MessageParts<'_>,
        polls: Option<&u32>,
    ) -> Result<(), PushError> {
        let outside = parts.outside();
        let way = self.writing.way(outside as usize);
        let place = self.place(lines_of(outside), way, polls)?;
        let at = self.produced.wrapping_add(1);
        // All lines of the run are requested at once. Without this, the stores would wait for one
        // line after the other, since the reader's cache has had them since the last round.
        let is_hinted = outside <= HINTED_BYTES_MAX && way == WriteWay::Ordinary;
        if is_hinted {
            self.ring.prefetch_run_to_write(at, outside);
        }
        let body = self.ring.slot(self.produced).body.writable();
        let run = self.ring.writable_run(at, outside);
        // SAFETY: slot and run are free, by `place`.
        unsafe { parts.write_run(&mut self.writing, way, body, run) };
        self.store(place, parts.meta(polls.is_none(), place.is_last));
        let is_alone = polls.is_some_and(|polls| self.is_alone(*polls));
        if is_hinted {
            self.hint(at, outside, is_alone);
        } else {
            self.ring.prefetch_slot_to_write(self.produced);
        }
        Ok(())
    }

    /// Whether the message with a run that is written now is not one of a batch. `polls` counts the
    /// polls of this worker.
    pub(super) fn is_alone(&mut self, polls: u32) -> bool {
        let between = polls.wrapping_sub(self.polls_at_run);
        self.polls_at_run = polls;
        between >= POLLS_BETWEEN_BATCHES
    }

    /// After a message was published: hints for the processor about the run that was written, and
    /// the lines that a next message of the same length takes.
    fn hint(&self, run: u32, outside: u32, is_alone: bool) {
        // The reader of a single message waits for it, and finds it sooner in the cache that both
        // cores share than in the cache of this core. In a batch, the time that the demotion takes
        // here would count.
        if is_alone {
            self.ring.demote_run(run, outside);
        }
        // The reader may still read lines that are not known to be free.
        if !is_before(self.unlooked, self.straight(lines_of(outside)).next) {
            self.ring.prefetch_run_to_write(self.produced.wrapping_add(1), outside);
        }
        self.ring.prefetch_slot_to_write(self.produced);
    }

    /// Loads the reader's progress and checks it.
    fn load_published(&mut self) -> Result<(), PushError> {
        let claim = self.ring.header().consumed.0.load(Acquire);
        self.published =
            checked_progress(self.published, claim, self.produced).map_err(PushError::Broken)?;
        self.consumed = later(self.consumed, claim);
        Ok(())
    }

    /// Whether less than half of the ring is in use. Internal messages leave the other half to the
    /// engine.
    pub(crate) fn has_half_free(&mut self) -> Result<bool, PushError> {
        let geometry = self.ring.geometry();
        let has_half_free = |producer: &Self| {
            let unread = producer.lap.unread(geometry, producer.consumed, producer.produced);
            // The long lines are free while the short ones are in use.
            let can_grow = producer.ring.is_short() && producer.can_change_lines();
            can_grow || unread < geometry.lines() / 2
        };
        if !has_half_free(self) {
            self.load_published()?;
        }
        Ok(has_half_free(self))
    }

    /// Whether the reader wants the doorbell for the message that was just written. `fenced` is
    /// true if the reader can't put a barrier on this process.
    #[inline(always)]
    pub(crate) fn is_doorbell_wanted(&self, fenced: bool) -> bool {
        if fenced {
            fence(SeqCst);
        } else {
            // The processor may let the load overtake the store: the reader's barrier orders them.
            // The compiler must not, since no barrier reaches its reordering.
            light_fence();
        }
        self.ring.header().polled.0.load(Relaxed) == 0
    }

    /// Asks the reader to wake this worker when it gives room back. Returns whether it has given
    /// room back since a message was refused; then there is no need to sleep.
    ///
    /// The worker has to announce its sleep before: the reader wakes a worker that sleeps, and
    /// checks that once.
    pub(crate) fn want_space(&mut self, _: &SleepAnnounced) -> Result<bool, PushError> {
        self.ring.header().space_wanted.0.store(1, Relaxed);
        fence(SeqCst);
        self.load_published()?;
        Ok(self.consumed != self.refused_at)
    }
}
