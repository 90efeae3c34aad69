//! The bytes of a message that is written, and how they get into its lines.

use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use tagmatch_device::copy::copy_small;

use super::memory::Ring;
use super::slot::{IMMEDIATE_BYTES, INLINE_BYTES, Meta, is_in_two_slots, room};
use crate::streaming::{WriteWay, Writing};

/// A message that is written: `first`, then `second`.
#[derive(Clone, Copy)]
pub(super) struct MessageParts<'a> {
    pub(super) first: &'a [u8],
    pub(super) second: &'a [u8],
    pub(super) immediate: Option<u32>,
}

impl MessageParts<'_> {
    /// Bytes of the message.
    #[inline(always)]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "below 2^27, as the producer's caller knows"
    )]
    pub(super) fn length(&self) -> u32 {
        (self.first.len() + self.second.len()) as u32
    }

    /// The meta data of the message.
    #[inline(always)]
    pub(super) fn meta(&self, internal: bool, is_last: bool) -> Meta {
        Meta::new(self.length(), self.immediate.is_some(), internal, is_last)
    }

    /// How many slots the message takes; none if it takes a slot and a run.
    #[inline(always)]
    pub(super) fn slots(&self) -> u32 {
        let length = self.length();
        if length <= room(self.immediate.is_some()) {
            1
        } else if is_in_two_slots(length, self.immediate.is_some()) {
            2
        } else {
            0
        }
    }

    /// Bytes of the message that don't fit into its slot, if it takes a slot and a run.
    pub(super) fn outside(&self) -> u32 {
        self.length() - room(self.immediate.is_some())
    }

    /// Writes a message that lies in one slot or two, the first of which is at `position`, and the
    /// word of the second one, with the flags of the lap.
    ///
    /// # Safety
    /// The message takes so many slots, and their lines are free.
    #[inline(always)]
    pub(super) unsafe fn write_slots(&self, ring: &Ring, position: u32, slots: u32, lap: Meta) {
        let MessageParts { first, second, immediate } = *self;
        let mut body = ring.slot(position).body.writable();
        // SAFETY: by the caller's promise. A reader that keeps the rules reads no body of a free
        // slot, and another reader harms only itself. The immediate data are the last bytes of a
        // slot; the message's bytes end before them.
        unsafe {
            if slots == 1 {
                copy_small(first, body);
                copy_small(second, body.add(first.len()));
            } else {
                let slot = ring.slot(position.wrapping_add(1));
                slot.word.store(Meta::of_second_slot(lap), Relaxed);
                let next = slot.body.writable();
                if let Some(room) = INLINE_BYTES.checked_sub(first.len()) {
                    let (here, rest) = second.split_at_unchecked(room);
                    copy_small(first, body);
                    ptr::copy_nonoverlapping(here.as_ptr(), body.add(first.len()), room);
                    copy_small(rest, next);
                } else {
                    let (here, rest) = first.split_at_unchecked(INLINE_BYTES);
                    ptr::copy_nonoverlapping(here.as_ptr(), body, INLINE_BYTES);
                    copy_small(rest, next);
                    copy_small(second, next.add(rest.len()));
                }
                body = next;
            }
            if let Some(value) = immediate {
                let at = INLINE_BYTES - IMMEDIATE_BYTES;
                body.add(at).cast::<[u8; 4]>().write(value.to_le_bytes());
            }
        }
    }

    /// Writes a message that lies in a slot and a run.
    ///
    /// # Safety
    /// The message takes a slot and a run. `body` is the body of a slot that is free, and `run` the
    /// beginning of as many free lines as [`MessageParts::outside`] takes.
    pub(super) unsafe fn write_run(
        &self,
        writing: &mut Writing,
        way: WriteWay,
        body: *mut u8,
        run: *mut u8,
    ) {
        let MessageParts { first, second, immediate } = *self;
        let room = room(immediate.is_some()) as usize;
        // SAFETY: by the caller's promise. The first `room` bytes go to the body, which has as
        // many, and the immediate data behind them; the others go to the run, which has whole lines
        // to itself.
        unsafe {
            if first.len() >= room {
                ptr::copy_nonoverlapping(first.as_ptr(), body, room);
                let rest = &first[room..];
                ptr::copy_nonoverlapping(rest.as_ptr(), run, rest.len());
                ptr::copy_nonoverlapping(second.as_ptr(), run.add(rest.len()), second.len());
            } else {
                let (inline, rest) = second.split_at(room - first.len());
                // The run comes first: streaming waits for stores before it, and the slot's line
                // has to come from the reader, which looks at it all the time.
                writing.write(way, rest, run);
                ptr::copy_nonoverlapping(first.as_ptr(), body, first.len());
                ptr::copy_nonoverlapping(inline.as_ptr(), body.add(first.len()), inline.len());
            }
            if let Some(value) = immediate {
                body.add(room).cast::<[u8; 4]>().write(value.to_le_bytes());
            }
        }
    }
}
