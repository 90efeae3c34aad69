//! The memory of a ring: its header words, slots and spill.

#![cfg_attr(all(loom, test), allow(unused_imports, reason = "the model brings its own memory"))]

use std::ptr::NonNull;

use super::geometry::Geometry;
use super::slot::Slot;
use crate::sync::{AtomicU32, AtomicU64};
use tagmatch_os::memory::Mapping;

#[cfg(all(loom, test))]
pub(crate) use super::model::Ring;

/// The header of a ring. Each word has a pair of cache lines to itself: processors fetch
/// neighbours.
#[repr(C, align(128))]
pub(crate) struct Header {
    /// [`Progress`](super::geometry::Progress) of the reader, which alone stores it (`Release`: the
    /// reader is done with the slots before the writer may reuse them); the writer loads it with
    /// `Acquire` when the ring seems full.
    pub(crate) consumed: Padded<AtomicU64>,
    /// 1 while the reader does not look at this ring unless the bell is rung. Stored by the reader.
    ///
    /// The writer stores a slot and then loads this; the reader stores 1 here and then looks at the
    /// slots once more. One of them must see the other: either the reader puts a barrier on the
    /// writer (membarrier) between its two steps, or both have a `SeqCst` fence between theirs.
    pub(crate) doorbell_wanted: Padded<AtomicU32>,
    /// 1 while the writer sleeps until there is room. The writer, who has said in its bell that it
    /// sleeps, stores 1, fences (`SeqCst`), and loads `consumed` once more; the reader stores
    /// `consumed`, fences, takes this, and wakes the writer if its bell says that it sleeps.
    pub(crate) space_wanted: Padded<AtomicU32>,
}

/// A word with its own two cache lines.
#[repr(C, align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

#[cfg(not(all(loom, test)))]
const _: () = assert!(size_of::<Header>() == 384);
#[cfg(not(all(loom, test)))]
const _: () = assert!(size_of::<Header>() <= Geometry::SLOTS_OFFSET_BYTES);

/// Mapped memory that has the length of a ring of this geometry.
///
/// All of it may be written by another process at any time, so there are atomics and raw pointers
/// into it, never references to plain data.
#[cfg(not(all(loom, test)))]
pub(crate) struct Ring {
    /// Keeps the memory mapped; `start` points to its beginning.
    _mapping: Mapping,
    start: NonNull<u8>,
    geometry: Geometry,
}

// SAFETY: `Ring` gives out atomics, and raw pointers whose users are answerable for themselves; the
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

    /// The slot that a position falls on.
    #[inline]
    pub(crate) fn slot(&self, position: u32) -> &Slot {
        let index = (position & (self.geometry.slots() - 1)) as usize;
        // SAFETY: the masked index is below the number of slots, which the length that `new`
        // checked accounts for; the offset is a multiple of 64 from a page; slots are made of
        // atomics.
        unsafe {
            let slots = self.start.add(Geometry::SLOTS_OFFSET_BYTES);
            slots.cast::<Slot>().add(index).as_ref()
        }
    }

    /// `length` bytes at `offset` of the spill, to read.
    ///
    /// # Panics
    /// If they are not all in it, which [`Geometry::place`] rules out for both sides.
    #[inline]
    pub(crate) fn spill(&self, offset: u32, length: u32) -> *const u8 {
        self.writable_spill(offset, length)
    }

    /// The same, to write.
    #[inline]
    pub(crate) fn writable_spill(&self, offset: u32, length: u32) -> *mut u8 {
        let end = u64::from(offset) + u64::from(length);
        assert!(end <= u64::from(self.geometry.spill_bytes()));
        // SAFETY: inside the mapping, by the check above and the length that `new` checked.
        unsafe {
            let spill = self.start.add(self.geometry.spill_offset());
            spill.add(offset as usize).as_ptr()
        }
    }
}
