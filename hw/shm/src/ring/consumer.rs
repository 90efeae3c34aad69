//! The reading end of a ring.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use tagmatch_device::Bytes;

use super::geometry::Progress;
use super::memory::Ring;
use super::slot::{self, Bounds, INLINE_BYTES, MessageShape, Meta, Slot};
use crate::sync::fence;

/// The reading end of a ring: one per ring.
pub(crate) struct Consumer {
    ring: Arc<Ring>,
    bounds: Bounds,
    /// The messages and bytes that were taken.
    taken: Progress,
    /// The part of `taken` that the writer was told.
    published: Progress,
    /// So much was taken that the writer should be told.
    is_publish_due: bool,
    /// A copy of the first bytes of the last message that was taken.
    head: [u8; Bytes::HEAD_MAX],
}

/// The slot of the next message and its sequence number, for a quick look whether it is there.
pub(crate) struct Watch {
    /// Keeps the slot mapped.
    _ring: Arc<Ring>,
    slot: NonNull<Slot>,
    sequence: u32,
}

// SAFETY: a slot is made of atomics, and the ring that keeps it mapped is `Send`.
unsafe impl Send for Watch {}

impl Watch {
    /// Whether the message is there.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "takes half of the word")]
    pub(crate) fn is_there(&self) -> bool {
        // SAFETY: `slot` was made from a reference into the ring, which `_ring` keeps mapped.
        let slot = unsafe { self.slot.as_ref() };
        // Before the message is read, the word is loaded again, with `Acquire`.
        slot.word.load(Relaxed) as u32 == self.sequence
    }

    /// Moves on to the slot after the message that the consumer is about to take.
    #[inline]
    pub(crate) fn advance(&mut self, consumer: &Consumer) {
        let position = consumer.taken.messages.wrapping_add(1);
        self.slot = NonNull::from(consumer.ring.slot(position));
        self.sequence = position.wrapping_add(1);
    }
}

/// A message that was taken.
pub(crate) struct Taken<'a> {
    pub(crate) bytes: Bytes<'a>,
    pub(crate) immediate: Option<u32>,
}

/// The immediate data of a message, from the end of its slot.
#[inline(always)]
fn immediate_of(slot: &[u8; Bytes::HEAD_MAX], shape: MessageShape) -> Option<u32> {
    if shape.immediate { immediate_in(slot) } else { None }
}

#[cold]
fn immediate_in(slot: &[u8; Bytes::HEAD_MAX]) -> Option<u32> {
    let at = INLINE_BYTES - slot::IMMEDIATE_BYTES;
    let bytes = [slot[at], slot[at + 1], slot[at + 2], slot[at + 3]];
    Some(u32::from_le_bytes(bytes))
}

impl Consumer {
    /// The reading end of a new ring.
    pub(crate) fn new(ring: Arc<Ring>, message_bytes_max: u32) -> Self {
        Self::starting_at(ring, message_bytes_max, Progress::default())
    }

    /// The reading end of a ring at this progress. Both ends must start at the same progress.
    pub(crate) fn starting_at(ring: Arc<Ring>, message_bytes_max: u32, start: Progress) -> Self {
        let bounds = Bounds {
            message_bytes_max,
            internal_bytes_max: ring.geometry().fragment_max() + slot::BODY_BYTES,
        };
        let head = [0; Bytes::HEAD_MAX];
        Consumer { ring, bounds, taken: start, published: start, is_publish_due: false, head }
    }

    /// A watch on the next message.
    pub(crate) fn watch(&self) -> Watch {
        Watch {
            _ring: self.ring.clone(),
            slot: NonNull::from(self.ring.slot(self.taken.messages)),
            sequence: self.taken.messages.wrapping_add(1),
        }
    }

    /// The meta data of the next message, if there is one.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "takes the halves of the word")]
    pub(crate) fn peek(&self) -> Option<Meta> {
        let word = self.ring.slot(self.taken.messages).word.load(Acquire);
        let is_next = word as u32 == self.taken.messages.wrapping_add(1);
        is_next.then_some(Meta((word >> 32) as u32))
    }

    /// Checks the meta data that [`Consumer::peek`] has returned.
    #[inline]
    pub(crate) fn parse(&self, meta: Meta) -> Result<MessageShape, &'static str> {
        slot::parse(meta, self.bounds)
    }

    /// Takes the message that was parsed. Its spilled bytes stay where they are until the next
    /// [`Consumer::publish`].
    #[inline(always)]
    pub(crate) fn take(&mut self, shape: MessageShape) -> Taken<'_> {
        self.take_slot();
        let immediate = immediate_of(&self.head, shape);
        let (mut inline, mut tail) = (shape.inline, (ptr::null(), 0));
        if shape.spilled() > 0 {
            (inline, tail) = self.spilled(shape.inline, shape.spilled());
        }
        let head = &self.head[..inline as usize];
        // SAFETY: `spilled` has checked that the tail is inside the ring. The ring stays mapped,
        // and the bytes stay where they are, while `self` is borrowed.
        Taken { bytes: unsafe { Bytes::from_parts(head, tail.0, tail.1) }, immediate }
    }

    /// Takes the next message, which `watch` looks at, if it is of the common kind: it is there, is
    /// for the engine and well-formed, and the writer needn't be told of room yet.
    ///
    /// # Safety
    /// The message's bytes are not read after the next call of a method that takes or publishes,
    /// nor after `self` was dropped or moved.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "takes the halves of the word")]
    pub(crate) unsafe fn take_common<'a>(&mut self, watch: &mut Watch) -> Option<Taken<'a>> {
        // SAFETY: `slot` was made from a reference into the ring, which `_ring` keeps mapped.
        let slot = unsafe { watch.slot.as_ref() };
        let word = slot.word.load(Acquire);
        let meta = Meta((word >> 32) as u32);
        if word as u32 != watch.sequence || self.is_publish_due {
            return None;
        }
        let (length, has_immediate) = meta.common(self.bounds.message_bytes_max)?;
        slot.copy_body(&mut self.head);
        let position = watch.sequence;
        self.taken.messages = position;
        self.is_publish_due = position & (self.ring.geometry().slots() / 8 - 1) == 0;
        let next = self.ring.slot(position);
        watch.slot = NonNull::from(next);
        watch.sequence = position.wrapping_add(1);
        let immediate = if has_immediate { immediate_in(&self.head) } else { None };
        let room = slot::room(has_immediate);
        let (mut inline, mut tail) = (length, (ptr::null(), 0));
        if length > room {
            (inline, tail) = self.spilled(room, length - room);
        }
        // SAFETY: by the caller's promise, for the copy in `self.head` and for the tail. `spilled`
        // has checked that the tail is inside the ring. `inline` is at most HEAD_MAX.
        let bytes = unsafe {
            let head = std::slice::from_raw_parts(self.head.as_ptr(), inline as usize);
            Bytes::from_parts(head, tail.0, tail.1)
        };
        Some(Taken { bytes, immediate })
    }

    #[inline(always)]
    fn take_slot(&mut self) {
        let slot = self.ring.slot(self.taken.messages);
        self.taken.messages = self.taken.messages.wrapping_add(1);
        let eighth = self.ring.geometry().slots() / 8;
        self.is_publish_due |= self.taken.messages & (eighth - 1) == 0;
        slot.copy_body(&mut self.head);
    }

    /// Completes the head of a message that is longer than its slot: the head has the first
    /// `inline` bytes, and `spilled` bytes follow. Returns the length of the head, and where the
    /// rest of the bytes lies.
    #[inline(never)]
    #[allow(clippy::cast_possible_truncation, reason = "at most HEAD_MAX")]
    fn spilled(&mut self, inline: u32, spilled: u32) -> (u32, (*const u8, usize)) {
        let geometry = self.ring.geometry();
        let (offset, after) = geometry.place(self.taken.spill_bytes, spilled);
        self.taken.spill_bytes = after;
        let unknown = after.wrapping_sub(self.published.spill_bytes);
        self.is_publish_due |= unknown >= geometry.spill_bytes() / 8;
        let run = self.ring.spill(offset, spilled);
        // The head is filled up, so that a header is always a copy, even if it is longer than a
        // slot.
        let more = (Bytes::HEAD_MAX as u32 - inline).min(spilled);
        // SAFETY: `spill` has checked that the run is inside the ring; `inline + more` is at most
        // HEAD_MAX.
        unsafe {
            let head = self.head.as_mut_ptr().add(inline as usize);
            ptr::copy_nonoverlapping(run, head, more as usize);
            (inline + more, (run.add(more as usize), (spilled - more) as usize))
        }
    }

    /// Whether messages were taken that the writer was not told of.
    pub(crate) fn has_unpublished(&self) -> bool {
        self.taken != self.published
    }

    /// Whether so much was taken that the writer should be told.
    #[inline]
    pub(crate) fn is_publish_due(&self) -> bool {
        self.is_publish_due
    }

    /// Gives the room of the messages that were taken back to the writer. Returns whether the
    /// writer sleeps until there is room.
    pub(crate) fn publish(&mut self) -> bool {
        if !self.has_unpublished() {
            return false;
        }
        let header = self.ring.header();
        header.consumed.0.store(self.taken.pack(), Release);
        self.published = self.taken;
        self.is_publish_due = false;
        fence(SeqCst);
        header.space_wanted.0.load(Relaxed) != 0 && header.space_wanted.0.swap(0, Relaxed) != 0
    }

    /// Tells the writer whether to ring the doorbell. After a change to `true`, the caller needs a
    /// barrier before the next [`Consumer::peek`].
    pub(crate) fn want_doorbell(&self, wanted: bool) {
        self.ring.header().doorbell_wanted.0.store(u32::from(wanted), Relaxed);
    }

    /// How many messages were taken, modulo 2^32.
    pub(crate) fn taken(&self) -> u32 {
        self.taken.messages
    }

    /// How many messages the ring can hold.
    pub(crate) fn capacity(&self) -> u32 {
        self.ring.geometry().slots()
    }
}
