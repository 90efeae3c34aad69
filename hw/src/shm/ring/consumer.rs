//! The reading end of a ring.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use super::geometry::Progress;
use super::memory::Ring;
use super::slot::{self, Bounds, INLINE_BYTES, Meta, Shape};
use crate::Bytes;

/// The reading end of a ring: one per ring.
pub(crate) struct Consumer {
    ring: Arc<Ring>,
    bounds: Bounds,
    /// What has been taken.
    taken: Progress,
    /// What of it the writer has been told.
    published: Progress,
}

/// A message that was taken.
pub(crate) struct Taken<'a> {
    pub(crate) bytes: Bytes<'a>,
    pub(crate) immediate: Option<u32>,
}

impl Consumer {
    /// For a ring that nothing was written to before it was handed out.
    pub(crate) fn new(ring: Arc<Ring>, message_bytes_max: u32) -> Self {
        let bounds = Bounds {
            message_bytes_max,
            internal_bytes_max: ring.geometry().fragment_max() + INLINE_BYTES as u32,
        };
        Consumer {
            ring,
            bounds,
            taken: Progress::default(),
            published: Progress::default(),
        }
    }

    /// What the next slot says, if a message is in it.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "takes the halves of the word"
    )]
    pub(crate) fn peek(&self) -> Option<Meta> {
        let word = self.ring.slot(self.taken.messages).word.load(Acquire);
        let is_next = word as u32 == self.taken.messages.wrapping_add(1);
        is_next.then_some(Meta((word >> 32) as u32))
    }

    /// Checks what [`Consumer::peek`] found.
    #[inline]
    pub(crate) fn parse(&self, meta: Meta) -> Result<Shape, &'static str> {
        slot::parse(meta, self.bounds)
    }

    /// Takes the message that was peeked at and parsed. Its spilled bytes stay where they are, until
    /// the next [`Consumer::publish`].
    #[inline]
    pub(crate) fn take(&mut self, shape: Shape) -> Taken<'_> {
        let slot = self.ring.slot(self.taken.messages);
        self.taken.messages = self.taken.messages.wrapping_add(1);
        let mut head = [0u8; Bytes::HEAD_MAX];
        let (copy, _) = head.split_at_mut(INLINE_BYTES);
        for (to, from) in copy.chunks_exact_mut(8).zip(&slot.body) {
            to.copy_from_slice(&from.load(Relaxed).to_ne_bytes());
        }
        let immediate = shape.immediate.then(|| {
            let at = INLINE_BYTES - slot::IMMEDIATE_BYTES;
            u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
        });
        let spilled = shape.spilled();
        if spilled == 0 {
            // SAFETY: there is no tail.
            let bytes = unsafe { Bytes::from_head(head, shape.length as usize, ptr::null(), 0) };
            return Taken { bytes, immediate };
        }
        let bytes = self.spilled_bytes(head, shape);
        Taken { bytes, immediate }
    }

    fn spilled_bytes(&mut self, mut head: [u8; Bytes::HEAD_MAX], shape: Shape) -> Bytes<'_> {
        let spilled = shape.spilled();
        let geometry = self.ring.geometry();
        let (offset, after) = geometry.place(self.taken.spill_bytes, spilled);
        self.taken.spill_bytes = after;
        let run = self.ring.spill(offset, spilled);
        // The head is filled up, so that every header is a copy, wherever the slot ended.
        let inline = shape.inline as usize;
        let more = (Bytes::HEAD_MAX - inline).min(spilled as usize);
        // SAFETY: `spill` has checked that the run is inside the ring; `inline + more` is at most
        // HEAD_MAX. The tail stays mapped while `self` is borrowed.
        unsafe {
            ptr::copy_nonoverlapping(run, head.as_mut_ptr().add(inline), more);
            Bytes::from_head(head, inline + more, run.add(more), spilled as usize - more)
        }
    }

    /// Whether messages were taken that the writer does not know of.
    pub(crate) fn has_unpublished(&self) -> bool {
        self.taken != self.published
    }

    /// Whether enough was taken that the writer should be told.
    #[inline]
    pub(crate) fn is_publish_due(&self) -> bool {
        let unknown = self.taken.since(self.published);
        let geometry = self.ring.geometry();
        unknown.messages >= geometry.slots() / 8
            || unknown.spill_bytes >= geometry.spill_bytes() / 8
    }

    /// Gives back to the writer what was taken. Returns whether it sleeps until there is room.
    pub(crate) fn publish(&mut self) -> bool {
        if !self.has_unpublished() {
            return false;
        }
        let header = self.ring.header();
        header.consumed.0.store(self.taken.pack(), Release);
        self.published = self.taken;
        fence(SeqCst);
        header.space_wanted.0.load(Relaxed) != 0 && header.space_wanted.0.swap(0, Relaxed) != 0
    }

    /// Says whether the writer is to ring the bell. When it becomes wanted, the caller puts a
    /// barrier between this and the next [`Consumer::peek`].
    pub(crate) fn want_bell(&self, wanted: bool) {
        self.ring
            .header()
            .bell_wanted
            .0
            .store(u32::from(wanted), Relaxed);
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
