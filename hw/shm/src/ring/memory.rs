//! The memory of a ring: its header words and its lines.

#![cfg_attr(all(loom, test), allow(unused_imports, reason = "the model brings its own memory"))]

use std::ptr::NonNull;

use tagmatch_os::memory::Mapping;

use super::geometry::{Geometry, LINE_BYTES};
use super::slot::Slot;
use crate::cooperative::Claims;
#[cfg(not(all(loom, test)))]
use crate::hints;
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
    /// 1 while the reader looks at this ring only after the doorbell was rung. The reader stores
    /// it.
    ///
    /// The writer stores a slot and then loads this; the reader stores 1 here and then looks at the
    /// slots once more. One of them must see the other: either the reader puts a barrier on the
    /// writer (membarrier) between its two steps, or both have a `SeqCst` fence between theirs.
    pub(crate) doorbell_wanted: Padded<AtomicU32>,
    /// 1 while the writer sleeps until there is room. The writer announces its sleep in its
    /// doorbell, stores 1 here, fences (`SeqCst`), and loads `consumed` once more. The reader
    /// stores `consumed`, fences, exchanges this for 0, and wakes the writer if the writer's
    /// doorbell says that it sleeps.
    pub(crate) space_wanted: Padded<AtomicU32>,
    /// The pieces of a long message from the writer, which both copy.
    pub(crate) claims: Padded<Claims>,
}

/// A word with two cache lines of its own.
#[repr(C, align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

#[cfg(not(all(loom, test)))]
const _: () = assert!(size_of::<Header>() == 512);
#[cfg(not(all(loom, test)))]
const _: () = assert!(size_of::<Header>() <= Geometry::LINES_OFFSET_BYTES);

/// The mapped memory of a ring, of the length that its geometry needs.
///
/// Another process may write all of it at any time. So there are atomics and raw pointers into it,
/// never references to plain data.
#[cfg(not(all(loom, test)))]
pub(crate) struct Ring {
    /// Keeps the memory mapped; `start` points to its beginning.
    _mapping: Mapping,
    start: NonNull<u8>,
    geometry: Geometry,
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
    /// Takes the memory of a ring; `None` if its length is wrong.
    pub(crate) fn new(mapping: Mapping, geometry: Geometry) -> Option<Self> {
        let start = NonNull::new(mapping.start())?;
        let fits = mapping.length() == geometry.length_bytes()
            && start.as_ptr().addr().is_multiple_of(align_of::<Header>());
        fits.then_some(Ring { _mapping: mapping, start, geometry })
    }

    #[inline]
    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: `new` has checked length and alignment; the mapping lives as long as `self`; the
        // header is made of atomics, for which any bit pattern is valid.
        unsafe { self.start.cast::<Header>().as_ref() }
    }

    /// The line at a position, as the slot of a message.
    #[inline(always)]
    pub(crate) fn slot(&self, position: u32) -> &Slot {
        let line = self.geometry.line(position) as usize;
        // SAFETY: the line is below the number of lines, which the length that `new` checked
        // accounts for; the offset is a multiple of 64 from a page; slots are made of atomics.
        unsafe {
            let lines = self.start.add(Geometry::LINES_OFFSET_BYTES);
            lines.cast::<Slot>().add(line).as_ref()
        }
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
        // SAFETY: inside the mapping, by the check above and the length that `new` checked.
        unsafe {
            let lines = self.start.add(Geometry::LINES_OFFSET_BYTES);
            lines.add(offset as usize).as_ptr()
        }
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

    /// Makes the processor fetch the line at a position for writing. Has no other effect.
    #[inline(always)]
    pub(crate) fn prefetch_slot_to_write(&self, position: u32) {
        hints::prefetch_to_write(self.slot(position).body.writable());
    }
}
