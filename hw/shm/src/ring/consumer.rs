//! The reading end of a ring.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use tagmatch_device::Bytes;

use super::geometry::lines_of;
use super::memory::Ring;
use super::piggyback::Piggyback;
use super::slot::{self, BODY_BYTES, Bounds, COPY_BYTES, INLINE_BYTES, MessageShape, Meta, Slot};
use crate::sync::fence;

/// The reading end of a ring: one per ring.
pub(crate) struct Consumer {
    ring: Ring,
    piggyback: Arc<Piggyback>,
    bounds: Bounds,
    /// The longest message that lies in slots alone, if it has no immediate data.
    in_slots_max: u32,
    /// The position of the next slot.
    taken: u32,
    /// The flags of its lap.
    lap: Meta,
    /// The part of `taken` that was published in the header.
    published: u32,
    /// Lines that were taken since then.
    unpublished: u32,
    /// After so many such lines the writer is told.
    publish_at: u32,
    /// A copy of the first bytes of the last message that was taken.
    head: [u8; COPY_BYTES],
}

/// The slot of the next message, for a quick look whether it is there.
pub(crate) struct Watch {
    /// Keeps the slot mapped.
    _ring: Ring,
    slot: NonNull<Slot>,
    /// The flags of its lap.
    lap: Meta,
}

// SAFETY: a slot is made of atomics, and the mapping is `Send`.
unsafe impl Send for Watch {}

impl Watch {
    /// Whether the message is there.
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.look().is_some()
    }

    /// The meta data of the message, and how far its writer has read the other ring, if the message
    /// is there.
    #[inline(always)]
    pub(crate) fn look(&self) -> Option<(Meta, u32)> {
        Meta::of_word(self.slot().word.load(Acquire), self.lap)
    }

    #[inline(always)]
    fn slot(&self) -> &Slot {
        // SAFETY: `slot` was made from a reference into the ring, which `_ring` keeps mapped.
        unsafe { self.slot.as_ref() }
    }

    /// Moves on to the consumer's next message.
    #[inline(always)]
    pub(crate) fn follow(&mut self, consumer: &Consumer) {
        self.slot = NonNull::from(consumer.ring.slot(consumer.taken));
        self.lap = consumer.lap;
    }
}

/// A message that was taken.
pub(crate) struct TakenMessage<'a> {
    pub(crate) bytes: Bytes<'a>,
    pub(crate) immediate: Option<u32>,
}

/// Lines that a message takes.
#[inline(always)]
fn lines(shape: MessageShape) -> u32 {
    lines_of(shape.outside()) + shape.slots - 1
}

/// How many lines are taken before the writer is told.
fn publish_at(ring: &Ring) -> u32 {
    // Each message of the other direction tells it. Where there are short lines, one comes often
    // enough.
    ring.geometry().lines() / if ring.is_short() { 2 } else { 8 }
}

/// The immediate data of a message, from the end of the copy of so many slots.
#[cold]
fn immediate_in(copy: &[u8; COPY_BYTES], slots: u32) -> Option<u32> {
    let end = slots as usize * INLINE_BYTES;
    copy.get(..end)?.last_chunk().copied().map(u32::from_le_bytes)
}

impl Consumer {
    /// The reading end of a new ring. `piggyback`: shared with the writing end of the ring of the
    /// other direction.
    pub(crate) fn new(ring: Ring, message_bytes_max: u32, piggyback: Arc<Piggyback>) -> Self {
        Self::starting_at(ring, message_bytes_max, piggyback, 0)
    }

    /// The reading end of a ring at this position. Both ends must start at the same position.
    pub(crate) fn starting_at(
        ring: Ring,
        message_bytes_max: u32,
        piggyback: Arc<Piggyback>,
        start: u32,
    ) -> Self {
        let bounds = Bounds {
            message_bytes_max,
            internal_bytes_max: ring.long_geometry().fragment_max() + BODY_BYTES,
        };
        let lap = Meta::of_lap(ring.geometry().is_in_odd_lap(start));
        let publish_at = publish_at(&ring);
        Consumer {
            ring,
            piggyback,
            bounds,
            in_slots_max: message_bytes_max.min(2 * BODY_BYTES),
            taken: start,
            lap,
            published: start,
            unpublished: 0,
            publish_at,
            head: [0; COPY_BYTES],
        }
    }

    /// A watch on the next message.
    pub(crate) fn watch(&self) -> Watch {
        let slot = NonNull::from(self.ring.slot(self.taken));
        Watch { _ring: self.ring.clone(), slot, lap: self.lap }
    }

    /// The meta data of the next message, if there is one.
    #[inline]
    pub(crate) fn peek(&self) -> Option<Meta> {
        let word = self.ring.slot(self.taken).word.load(Acquire);
        Meta::of_word(word, self.lap).map(|(meta, _)| meta)
    }

    /// Follows the writer if it has skipped lines, as the result of [`Consumer::peek`] says.
    pub(crate) fn skip(&mut self, meta: Meta) -> bool {
        let geometry = self.ring.geometry();
        let line = geometry.line(self.taken);
        let peer_progress = self.piggyback.peer_progress();
        // A writer that keeps the rules skips nothing at the beginning of a lap, and jumps ahead.
        // So a reader skips less often than there are lines.
        if meta == Meta::SKIP && line != 0 {
            self.advance(1, true, peer_progress);
            return true;
        }
        if meta == Meta::CHANGE_LINES {
            self.change_lines(peer_progress);
            return true;
        }
        if meta != Meta::JUMP {
            return false;
        }
        self.ring.slot(self.taken).copy_body(&mut self.head);
        let to = u32::from_le_bytes([self.head[0], self.head[1], self.head[2], self.head[3]]);
        let is_ahead = line < to && to < geometry.lines();
        if is_ahead {
            self.advance(to - line, false, peer_progress);
        }
        is_ahead
    }

    /// Follows the writer to the other lines.
    fn change_lines(&mut self, peer_progress: u32) {
        let next = self.ring.long_geometry().next_lap(self.taken);
        if !self.ring.is_short() {
            // Before the writer hears that this end was here: it may write there again then.
            self.ring.give_back_long_lines();
        }
        self.ring.change_lines();
        self.taken = next;
        self.lap = Meta::of_lap(self.ring.geometry().is_in_odd_lap(next));
        self.publish_at = publish_at(&self.ring);
        self.piggyback.take(self.taken, peer_progress);
    }

    /// Checks the meta data that [`Consumer::peek`] has returned.
    ///
    /// # Errors
    /// The rule that the writer broke.
    #[inline]
    pub(crate) fn parse(&self, meta: Meta) -> Result<MessageShape, &'static str> {
        if [Meta::SKIP, Meta::JUMP, Meta::CHANGE_LINES].contains(&meta) {
            return Err("lines are skipped where a message has to be");
        }
        let shape = slot::parse(meta, self.bounds)?;
        let geometry = self.ring.geometry();
        let filled = geometry.line(self.taken) + lines(shape);
        if filled > geometry.lines() {
            return Err("a message goes beyond the end of the ring");
        }
        if filled == geometry.lines() && !shape.is_last {
            return Err("the last message of a lap doesn't say so");
        }
        Ok(shape)
    }

    /// Takes the message that was parsed, after which `watch` follows. The bytes that are not in
    /// its slot stay where they are until the next [`Consumer::publish`] or message to the writer.
    #[inline(always)]
    pub(crate) fn take(
        &mut self,
        shape: MessageShape,
        watch: Option<&mut Watch>,
    ) -> TakenMessage<'_> {
        let slot = self.ring.slot(self.taken);
        let peer_progress = Meta::of_word(slot.word.load(Relaxed), self.lap)
            .map_or(0, |(_, peer_progress)| peer_progress);
        let lines = lines(shape);
        if shape.slots == 1 {
            slot.copy_body(&mut self.head);
        } else {
            slot.copy_bodies(self.ring.slot(self.taken.wrapping_add(1)), &mut self.head);
        }
        let immediate = if shape.immediate { immediate_in(&self.head, shape.slots) } else { None };
        let mut inline = shape.inline;
        let mut tail = (ptr::null(), 0);
        if shape.outside() > 0 {
            (inline, tail) = self.rest(shape.inline, shape.outside());
        }
        self.advance(lines, shape.is_last, peer_progress);
        if let Some(watch) = watch {
            watch.follow(self);
        }
        let head = &self.head[..inline as usize];
        // SAFETY: `rest` has checked that the tail is inside the ring. The ring stays mapped, and
        // the bytes stay where they are, while `self` is borrowed.
        TakenMessage { bytes: unsafe { Bytes::from_parts(head, tail.0, tail.1) }, immediate }
    }

    /// Takes the next message, at which `watch` has looked, if it is of the shortest kind: it is
    /// for the engine, lies in slots alone, and has no immediate data; and the writer needn't be
    /// told of room yet.
    ///
    /// # Safety
    /// The message's bytes are not read after the next call of a method that takes or publishes,
    /// after the next message to the writer, nor after `self` was dropped or moved.
    #[inline(always)]
    pub(crate) unsafe fn take_short<'a>(
        &mut self,
        watch: &mut Watch,
        (meta, peer_progress): (Meta, u32),
    ) -> Option<&'a [u8]> {
        // Without flags, the meta data are the length. Any flag makes it too long.
        let length = meta.0;
        if length > self.in_slots_max || self.is_publish_due() {
            return None;
        }
        let slot = watch.slot();
        let mut lines = 1;
        if length > BODY_BYTES {
            lines = 2;
            slot.copy_bodies(self.ring.slot(self.taken.wrapping_add(1)), &mut self.head);
        } else {
            slot.copy_body(&mut self.head);
        }
        self.advance(lines, false, peer_progress);
        // The lap is the same.
        watch.slot = NonNull::from(self.ring.slot(self.taken));
        // SAFETY: by the caller's promise, for the copy in `self.head`. `length` is at most what
        // two slots have room for, so at most COPY_BYTES.
        Some(unsafe { std::slice::from_raw_parts(self.head.as_ptr(), length as usize) })
    }

    /// Takes the next message, which `watch` looks at, if it is of the common kind: it is there, is
    /// for the engine and well-formed, and the writer needn't be told of room yet.
    ///
    /// # Safety
    /// As for [`Consumer::take_short`].
    #[inline(always)]
    pub(crate) unsafe fn take_common<'a>(&mut self, watch: &mut Watch) -> Option<TakenMessage<'a>> {
        let (meta, peer_progress) = watch.look()?;
        let (length, has_immediate) = meta.common(self.bounds.message_bytes_max)?;
        if self.is_publish_due() {
            return None;
        }
        let slot = watch.slot();
        let room = slot::room(has_immediate);
        let is_in_two_slots = slot::is_in_two_slots(length, has_immediate);
        let mut lines = 1;
        if is_in_two_slots {
            lines = 2;
            slot.copy_bodies(self.ring.slot(self.taken.wrapping_add(1)), &mut self.head);
        } else {
            if length > room {
                lines = lines_of(length - room);
                if self.goes_beyond(lines) {
                    return None;
                }
            }
            slot.copy_body(&mut self.head);
        }
        let slots = if is_in_two_slots { 2 } else { 1 };
        let immediate = if has_immediate { immediate_in(&self.head, slots) } else { None };
        let mut inline = length;
        let mut tail = (ptr::null(), 0);
        if length > room && !is_in_two_slots {
            (inline, tail) = self.rest(room, length - room);
        }
        self.advance(lines, false, peer_progress);
        watch.follow(self);
        // SAFETY: by the caller's promise, for the copy in `self.head` and for the tail. `rest` has
        // checked that the tail is inside the ring. `inline` is at most what two slots have room
        // for, or HEAD_MAX, so at most COPY_BYTES.
        let bytes = unsafe {
            let head = std::slice::from_raw_parts(self.head.as_ptr(), inline as usize);
            Bytes::from_parts(head, tail.0, tail.1)
        };
        Some(TakenMessage { bytes, immediate })
    }

    /// Whether a message of so many lines, which is not the last one of its lap, needs more lines
    /// than there are.
    #[inline]
    fn goes_beyond(&self, lines: u32) -> bool {
        let geometry = self.ring.geometry();
        geometry.line(self.taken) + lines >= geometry.lines()
    }

    /// Goes on to the next slot, which is at the beginning of a lap if this message `is_last`.
    /// `peer_progress`: how far the writer has read the other ring, by the word of this message.
    #[inline(always)]
    fn advance(&mut self, lines: u32, is_last: bool, peer_progress: u32) {
        self.taken = self.taken.wrapping_add(lines);
        if is_last {
            let geometry = self.ring.geometry();
            self.taken = geometry.next_lap(self.taken.wrapping_sub(1));
            self.lap = Meta::of_lap(geometry.is_in_odd_lap(self.taken));
        }
        self.unpublished += lines;
        self.piggyback.take(self.taken, peer_progress);
    }

    /// Completes the head of a message that is longer than its slot: the head has the first
    /// `inline` bytes, and `outside` bytes follow. Returns the length of the head, and where the
    /// rest of the bytes lies.
    #[inline(never)]
    #[allow(clippy::cast_possible_truncation, reason = "at most HEAD_MAX")]
    fn rest(&mut self, inline: u32, outside: u32) -> (u32, (*const u8, usize)) {
        let run = self.ring.run(self.taken.wrapping_add(1), outside);
        // The head is filled up, so that a header is always a copy, even if it is longer than a
        // slot.
        let more = (Bytes::HEAD_MAX as u32 - inline).min(outside);
        // SAFETY: `run` has checked that the run is inside the ring; `inline + more` is at most
        // HEAD_MAX.
        unsafe {
            let head = self.head.as_mut_ptr().add(inline as usize);
            ptr::copy_nonoverlapping(run, head, more as usize);
            (inline + more, (run.add(more as usize), (outside - more) as usize))
        }
    }

    /// Whether messages were taken that the writer was not told of.
    pub(crate) fn has_unpublished(&self) -> bool {
        self.taken != self.published
    }

    /// Whether so much was taken that the writer should be told.
    #[inline]
    pub(crate) fn is_publish_due(&self) -> bool {
        self.unpublished >= self.publish_at
    }

    /// Gives the room of the messages that were taken back to the writer. Returns whether the
    /// writer sleeps until there is room.
    pub(crate) fn publish(&mut self) -> bool {
        if !self.has_unpublished() {
            return false;
        }
        let header = self.ring.header();
        header.consumed.0.store(self.taken, Release);
        self.published = self.taken;
        self.unpublished = 0;
        fence(SeqCst);
        header.space_wanted.0.load(Relaxed) != 0 && header.space_wanted.0.swap(0, Relaxed) != 0
    }

    /// Tells the writer whether to ring the doorbell. After a change to `true`, the caller needs a
    /// barrier before the next [`Consumer::peek`].
    pub(crate) fn want_doorbell(&self, wanted: bool) {
        self.ring.header().polled.0.store(u32::from(!wanted), Relaxed);
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn is_in_short_lines(&self) -> bool {
        self.ring.is_short()
    }

    /// The position of the next message.
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// Messages that are in the ring lie in two laps, or in short lines and a lap of long ones:
    /// before this position after [`Consumer::taken`].
    pub(crate) fn capacity(&self) -> u32 {
        2 * self.ring.long_geometry().lines()
    }
}
