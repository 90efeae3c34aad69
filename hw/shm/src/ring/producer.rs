//! The writing end of a ring.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use tagmatch_device::Outgoing;
use tagmatch_device::copy::copy_small;

use super::geometry::{Geometry, Progress};
use super::memory::Ring;
use super::slot::{IMMEDIATE_BYTES, INLINE_BYTES, Meta, Slot};
use crate::doorbell::SleepAnnounced;
use crate::streaming::{self, Way, Writing};
use crate::sync::{fence, light_fence};

/// Why a message was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushError {
    /// No room now.
    Full,
    /// The reader has published progress that is impossible: the rule that it broke.
    Broken(&'static str),
}

/// A longer spilled run is written without hints to the processor.
const HINTED_BYTES_MAX: u32 = 8 << 10;

/// A spilled message that follows the one before it after fewer polls is one of a batch.
const POLLS_BETWEEN_BATCHES: u32 = 8;

/// The writing end of a ring: one per ring.
pub(crate) struct Producer {
    ring: Arc<Ring>,
    /// The messages and bytes that were written.
    produced: Progress,
    /// The progress of the reader when it was last loaded and checked.
    consumed: Progress,
    /// The value of `consumed` when a message of the engine was last refused.
    refused_at: Progress,
    /// The polls of this worker when a message was last spilled.
    polls_at_spill: u32,
    /// How the runs of spilled messages are written.
    writing: Writing,
}

impl Producer {
    /// The writing end of a new ring.
    pub(crate) fn new(ring: Arc<Ring>) -> Self {
        Self::starting_at(ring, Progress::default())
    }

    /// The writing end of a ring at this progress. Both ends must start at the same progress.
    pub(crate) fn starting_at(ring: Arc<Ring>, start: Progress) -> Self {
        Producer {
            ring,
            produced: start,
            consumed: start,
            refused_at: start,
            polls_at_spill: 0,
            writing: Writing::new(streaming::is_faster_here()),
        }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.ring.geometry()
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
        self.write(first, second, immediate, Some(polls))
    }

    /// Writes one internal message, as [`Producer::push`] does for the engine.
    #[inline]
    pub(crate) fn push_internal(&mut self, first: &[u8], second: &[u8]) -> Result<(), PushError> {
        self.write(first, second, None, None)
    }

    /// Writes one message; without `polls`, an internal one.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "below 2^28, as the caller has checked")]
    fn write(
        &mut self,
        first: &[u8],
        second: &[u8],
        immediate: Option<u32>,
        polls: Option<&u32>,
    ) -> Result<(), PushError> {
        let length = first.len() + second.len();
        let room = match immediate {
            None => INLINE_BYTES,
            Some(_) => INLINE_BYTES - IMMEDIATE_BYTES,
        };
        let unread = self.produced.messages.wrapping_sub(self.consumed.messages);
        if unread >= self.ring.geometry().slots() {
            self.refresh(polls.is_none())?;
        }
        if length > room {
            // A copy of the header is passed, so that the address of a header that was made in
            // registers isn't taken.
            let mut header = [0; Outgoing::HEADER_MAX];
            let copy = &mut header[..first.len()];
            copy.copy_from_slice(first);
            return self.push_spilled(copy, second, immediate, polls, room);
        }
        let slot = self.ring.slot(self.produced.messages);
        let body = body(slot);
        // SAFETY: the slot is free (`refresh`), so a reader that keeps the rules does not read its
        // body, and another reader harms only itself. `length` <= `room` <= INLINE_BYTES.
        unsafe {
            copy_small(first, body);
            copy_small(second, body.add(first.len()));
        }
        // No message is longer than INLINE_BYTES here.
        self.publish(length as u32, immediate, polls.is_none());
        Ok(())
    }

    /// Completes a slot whose body was written: stores the immediate data, and the word last.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "the constants are below 64")]
    fn publish(&mut self, length: u32, immediate: Option<u32>, internal: bool) {
        let slot = self.ring.slot(self.produced.messages);
        if let Some(value) = immediate {
            let at = INLINE_BYTES - IMMEDIATE_BYTES;
            // SAFETY: these are the last bytes of a free slot's body; the message's bytes end
            // before them.
            unsafe { body(slot).add(at).cast::<[u8; 4]>().write(value.to_le_bytes()) };
        }
        self.produced.messages = self.produced.messages.wrapping_add(1);
        let meta = Meta::new(length, immediate.is_some(), internal);
        slot.word.store(meta.word(self.produced.messages), Release);
    }

    #[inline(never)]
    #[allow(clippy::cast_possible_truncation, reason = "at most the geometry's message_max")]
    fn push_spilled(
        &mut self,
        first: &[u8],
        second: &[u8],
        immediate: Option<u32>,
        polls: Option<&u32>,
        room: usize,
    ) -> Result<(), PushError> {
        let length = first.len() + second.len();
        let geometry = self.ring.geometry();
        debug_assert!(length <= geometry.message_max() as usize + INLINE_BYTES);
        let spilled = (length - room) as u32;
        let (offset, after) = geometry.place(self.produced.spill_bytes, spilled);
        let fits =
            |consumed: Progress| after.wrapping_sub(consumed.spill_bytes) <= geometry.spill_bytes();
        if !fits(self.consumed) {
            self.load_consumed()?;
            if !fits(self.consumed) {
                self.note_refused(polls.is_none());
                return Err(PushError::Full);
            }
        }
        let way = self.writing.way(spilled as usize);
        // All lines of the run are requested at once. Without this, the stores would wait for one
        // line after the other, since the reader's cache has had them since the last round.
        let is_hinted = spilled <= HINTED_BYTES_MAX && way != Way::Streaming;
        if is_hinted {
            self.ring.prefetch_spill_to_write(offset, spilled);
        }
        let body = body(self.ring.slot(self.produced.messages));
        let spill = self.ring.writable_spill(offset, spilled);
        // SAFETY: slot and run are free, by the checks against `consumed`. The first `room` bytes
        // go to the body, which has as many; the other `spilled` bytes go to the run, which has
        // whole lines to itself.
        unsafe {
            if first.len() >= room {
                ptr::copy_nonoverlapping(first.as_ptr(), body, room);
                let rest = &first[room..];
                ptr::copy_nonoverlapping(rest.as_ptr(), spill, rest.len());
                ptr::copy_nonoverlapping(second.as_ptr(), spill.add(rest.len()), second.len());
            } else {
                let (inline, rest) = second.split_at(room - first.len());
                // The run comes first: streaming waits for stores before it, and the slot's line
                // has to come from the reader, which looks at it all the time.
                self.writing.write(way, rest, spill);
                ptr::copy_nonoverlapping(first.as_ptr(), body, first.len());
                ptr::copy_nonoverlapping(inline.as_ptr(), body.add(first.len()), inline.len());
            }
        }
        self.produced.spill_bytes = after;
        self.publish(length as u32, immediate, polls.is_none());
        let is_alone = polls.is_some_and(|polls| self.is_alone(*polls));
        if is_hinted {
            self.hint(offset, spilled, is_alone);
        } else {
            self.ring.prefetch_slot_to_write(self.produced.messages);
        }
        Ok(())
    }

    /// Whether the message that is spilled now is not one of a batch. `polls` counts the polls of
    /// this worker.
    pub(super) fn is_alone(&mut self, polls: u32) -> bool {
        let between = polls.wrapping_sub(self.polls_at_spill);
        self.polls_at_spill = polls;
        between >= POLLS_BETWEEN_BATCHES
    }

    /// After a message was published: hints for the processor about the run that was written, and
    /// the run that a next message of the same length takes.
    fn hint(&self, offset: u32, spilled: u32, is_alone: bool) {
        // The reader of a single message waits for it, and finds it sooner in the cache that both
        // cores share than in the cache of this core. In a batch, the time that the demotion takes
        // here would count.
        if is_alone {
            self.ring.demote_spill(offset, spilled);
        }
        let geometry = self.ring.geometry();
        let (next, after) = geometry.place(self.produced.spill_bytes, spilled);
        // The reader may still read a run that is not known to be free.
        if after.wrapping_sub(self.consumed.spill_bytes) <= geometry.spill_bytes() {
            self.ring.prefetch_spill_to_write(next, spilled);
        }
        self.ring.prefetch_slot_to_write(self.produced.messages);
    }

    /// Loads the reader's progress; `Full` if still no slot is free.
    #[cold]
    fn refresh(&mut self, internal: bool) -> Result<(), PushError> {
        self.load_consumed()?;
        let unread = self.produced.since(self.consumed).messages;
        if unread >= self.ring.geometry().slots() {
            self.note_refused(internal);
            return Err(PushError::Full);
        }
        Ok(())
    }

    /// Notes the room at which a message was refused: the engine tries again when there is more.
    /// Internal messages are not counted, since they wait for half of the ring.
    fn note_refused(&mut self, internal: bool) {
        if !internal {
            self.refused_at = self.consumed;
        }
    }

    /// Loads the reader's progress and checks it.
    fn load_consumed(&mut self) -> Result<(), PushError> {
        let told = Progress::unpack(self.ring.header().consumed.0.load(Acquire));
        self.consumed =
            check_progress(self.consumed, told, self.produced).map_err(PushError::Broken)?;
        Ok(())
    }

    /// Whether less than half of the ring is in use. Internal messages leave the other half to the
    /// engine.
    pub(crate) fn has_half_free(&mut self) -> Result<bool, PushError> {
        let geometry = self.ring.geometry();
        let half_free = |unread: Progress| {
            unread.messages < geometry.slots() / 2
                && unread.spill_bytes < geometry.spill_bytes() / 2
        };
        if half_free(self.produced.since(self.consumed)) {
            return Ok(true);
        }
        self.load_consumed()?;
        Ok(half_free(self.produced.since(self.consumed)))
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
        self.ring.header().doorbell_wanted.0.load(Relaxed) != 0
    }

    /// Asks the reader to wake this worker when it gives room back. Returns whether it has given
    /// room back since a message was refused; then there is no need to sleep.
    ///
    /// The worker has to announce its sleep before: the reader wakes a worker that sleeps, and
    /// checks that once.
    pub(crate) fn want_space(&mut self, _: &SleepAnnounced) -> Result<bool, PushError> {
        self.ring.header().space_wanted.0.store(1, Relaxed);
        fence(SeqCst);
        self.load_consumed()?;
        Ok(self.consumed != self.refused_at)
    }
}

/// Checks the progress that a reader has published: it lies between the progress that it published
/// before and what was produced.
///
/// # Errors
/// The rule that the reader broke.
pub fn check_progress(
    before: Progress,
    told: Progress,
    produced: Progress,
) -> Result<Progress, &'static str> {
    let possible = produced.since(before);
    let claimed = told.since(before);
    if claimed.messages > possible.messages || claimed.spill_bytes > possible.spill_bytes {
        return Err("a reader claims more messages or bytes than were written");
    }
    Ok(told)
}

fn body(slot: &Slot) -> *mut u8 {
    slot.body.writable()
}
