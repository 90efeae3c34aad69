//! The memory of a pair of workers: two rings, each with its header words and its lines.
//!
//! The first page has both headers and both rings' short lines. An idle pair takes no other memory.

#![cfg_attr(all(loom, test), allow(unused_imports, reason = "the model brings its own memory"))]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tagmatch_os::memory::Mapping;

use super::geometry::{Geometry, HEADER_BYTES, LINE_BYTES};
use super::slot::Slot;
use crate::cooperative::Claims;
#[cfg(not(all(loom, test)))]
use crate::hints;
use crate::padded::Padded;
use crate::sync::AtomicU32;

#[cfg(all(loom, test))]
pub(crate) use super::model::Ring;

/// The header of a ring. Each word has two cache lines of its own, because processors fetch lines
/// in pairs.
#[repr(C, align(128))]
pub(crate) struct Header {
    /// The position up to which the reader has read. Only the reader stores it, with `Release`: it
    /// has read the lines before the writer may use them again. The writer loads it with `Acquire`
    /// when the ring seems full.
    pub(crate) consumed: Padded<AtomicU32>,
    /// 1 while the reader looks at this ring without being asked; 0 at first, and while it looks
    /// only after the doorbell was rung. The reader stores it.
    ///
    /// The writer stores a slot and then loads this; the reader stores 0 here and then looks at the
    /// slots once more. One of them must see the other: either the reader puts a barrier on the
    /// writer (membarrier) between its two steps, or both have a `SeqCst` fence between theirs.
    pub(crate) polled: Padded<AtomicU32>,
    /// 1 while the writer sleeps until there is room. The writer announces its sleep in its
    /// doorbell, stores 1 here, fences (`SeqCst`), and loads `consumed` once more. The reader
    /// stores `consumed`, fences, exchanges this for 0, and wakes the writer if the writer's
    /// doorbell says that it sleeps.
    pub(crate) space_wanted: Padded<AtomicU32>,
    /// The pieces of a long message from the writer, which both copy.
    pub(crate) claims: Padded<Claims>,
}

#[cfg(not(all(loom, test)))]
const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

/// One ring in the mapped memory of a pair, for one of its ends: the header, and the lines that
/// this end uses.
///
/// Another process may write all of it at any time. So there are atomics and raw pointers into it,
/// never references to plain data.
#[cfg(not(all(loom, test)))]
#[derive(Clone)]
pub(crate) struct Ring {
    /// Keeps the memory mapped, into which the other parts point.
    mapping: Arc<Mapping>,
    header: NonNull<Header>,
    /// The first of the lines in use: of the short ones or of the long ones.
    lines: NonNull<u8>,
    /// How many lines are in use.
    geometry: Geometry,
    short: NonNull<u8>,
    long: NonNull<u8>,
    /// How many long lines there are.
    long_geometry: Geometry,
}

// SAFETY: `Ring` gives out references to atomics, and raw pointers, whose use is unsafe. The
// mapping belongs to the process, not to a thread.
#[cfg(not(all(loom, test)))]
unsafe impl Send for Ring {}
// SAFETY: as above.
#[cfg(not(all(loom, test)))]
unsafe impl Sync for Ring {}

#[cfg(not(all(loom, test)))]
impl Ring {
    /// The rings in the memory of a pair, each with its short lines in use; first the one that the
    /// maker of the memory reads. `memory`: what the memory has room for. `used`: how many long
    /// lines are used of that. `None` if the length of the memory is wrong, or more is used than
    /// there is.
    pub(crate) fn pair(mapping: Mapping, memory: Geometry, used: Geometry) -> Option<[Self; 2]> {
        let start = NonNull::new(mapping.start())?;
        let fits = mapping.length() == memory.pair_bytes()
            && used.lines() <= memory.lines()
            && start.as_ptr().addr().is_multiple_of(align_of::<Header>());
        let mapping = Arc::new(mapping);
        fits.then(|| {
            memory.places().map(|places| {
                // SAFETY: the parts are inside the memory of this geometry, whose length was
                // checked.
                let at = |offset| unsafe { start.add(offset) };
                let [header, short, long] = [places.header, places.short, places.long].map(at);
                Ring {
                    mapping: Arc::clone(&mapping),
                    header: header.cast(),
                    lines: short,
                    geometry: Geometry::SHORT,
                    short,
                    long,
                    long_geometry: used,
                }
            })
        })
    }

    /// How many lines are in use.
    #[inline]
    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    #[inline]
    pub(crate) fn long_geometry(&self) -> Geometry {
        self.long_geometry
    }

    /// Whether the short lines are in use.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.lines == self.short
    }

    /// Goes on to the other lines.
    pub(crate) fn change_lines(&mut self) {
        (self.lines, self.geometry) = if self.is_short() {
            (self.long, self.long_geometry)
        } else {
            (self.short, Geometry::SHORT)
        };
    }

    /// This ring, with its short lines in use instead of the long ones, or the other way round.
    pub(crate) fn other_lines(&self) -> Self {
        let mut other = self.clone();
        other.change_lines();
        other
    }

    /// Gives the memory of the long lines, which are in use, back to the machine. They are zero
    /// then.
    pub(crate) fn give_back_long_lines(&self) {
        let offset = self.long.as_ptr().addr() - self.mapping.start().addr();
        if self.mapping.give_back(offset, self.long_geometry.long_bytes()).is_err() {
            // The kernel can't give back memory that is shared in another way. Slots without a word
            // are enough.
            self.clear();
        }
    }

    /// Clears the word of each slot.
    pub(crate) fn clear(&self) {
        (0..self.geometry.lines()).for_each(|line| self.slot(line).word.store(0, Relaxed));
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: `pair` has checked length and alignment; the mapping lives as long as `self`; the
        // header is made of atomics, for which any bit pattern is valid.
        unsafe { self.header.as_ref() }
    }

    /// The line at a position, as the slot of a message.
    #[inline(always)]
    pub(crate) fn slot(&self, position: u32) -> &Slot {
        let line = self.geometry.line(position) as usize;
        // SAFETY: the line is below the number of lines, which the length that `pair` checked
        // accounts for; lines begin at a multiple of 64 bytes; slots are made of atomics.
        unsafe { self.lines.cast::<Slot>().add(line).as_ref() }
    }

    /// For reading a run of `length` bytes, which begins with the line at `position`.
    ///
    /// # Panics
    /// If the run isn't inside the ring. Writer and reader have checked that it is.
    #[inline]
    pub(crate) fn run(&self, position: u32, length: u32) -> *const u8 {
        self.writable_run(position, length)
    }

    /// For writing a run. Panics as [`Ring::run`] does.
    #[inline]
    pub(crate) fn writable_run(&self, position: u32, length: u32) -> *mut u8 {
        let offset = self.geometry.line(position) * LINE_BYTES;
        assert!(u64::from(offset) + u64::from(length) <= u64::from(self.geometry.bytes()));
        // SAFETY: inside the mapping, by the check above and the length that `pair` checked.
        unsafe { self.lines.add(offset as usize).as_ptr() }
    }

    /// Makes the processor fetch the lines of a run for writing. Has no other effect. Panics as
    /// [`Ring::run`] does.
    #[inline]
    pub(crate) fn prefetch_run_to_write(&self, position: u32, length: u32) {
        let run = self.writable_run(position, length);
        for at in (0..length as usize).step_by(hints::LINE_BYTES) {
            hints::prefetch_to_write(run.wrapping_add(at));
        }
    }

    /// Makes the processor move the lines of a run to the cache that the cores share. Has no other
    /// effect. Panics as [`Ring::run`] does.
    #[inline]
    pub(crate) fn demote_run(&self, position: u32, length: u32) {
        let run = self.writable_run(position, length);
        for at in (0..length as usize).step_by(hints::LINE_BYTES) {
            hints::demote(run.wrapping_add(at));
        }
    }

    /// Makes the processor move the line at a position to the cache that the cores share. Has no
    /// other effect.
    #[inline(always)]
    pub(crate) fn demote_slot(&self, position: u32) {
        hints::demote(self.slot(position).body.writable());
    }

    /// Makes the processor fetch the line at a position for writing. Has no other effect.
    #[inline(always)]
    pub(crate) fn prefetch_slot_to_write(&self, position: u32) {
        hints::prefetch_to_write(self.slot(position).body.writable());
    }
}
