//! The memory of a ring: its header words, slots and spill.

#![cfg_attr(all(loom, test), allow(unused_imports, reason = "the model brings its own memory"))]

use std::ptr::NonNull;

use tagmatch_os::memory::Mapping;

use super::geometry::Geometry;
use super::slot::Slot;
#[cfg(not(all(loom, test)))]
use crate::hints;
use crate::sync::{AtomicU32, AtomicU64};

#[cfg(all(loom, test))]
pub(crate) use super::model::Ring;

/// The header of a ring. Each word has two cache lines of its own, because processors fetch lines
/// in pairs.
#[repr(C, align(128))]
pub(crate) struct Header {
    /// [`Progress`](super::geometry::Progress) of the reader. Only the reader stores it, with
    /// `Release`: it has read the slots before the writer may reuse them. The writer loads it with
    /// `Acquire` when the ring seems full.
    pub(crate) consumed: Padded<AtomicU64>,
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
}

/// A word with two cache lines of its own.
#[repr(C, align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

#[cfg(not(all(loom, test)))]
const _: () = assert!(size_of::<Header>() == 384);
#[cfg(not(all(loom, test)))]
const _: () = assert!(size_of::<Header>() <= Geometry::SLOTS_OFFSET_BYTES);

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

    /// The slot of the message at a position.
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

    /// For reading `length` bytes at `offset` of the spill.
    ///
    /// # Panics
    /// If they are not inside the spill. [`Geometry::place`] makes sure that they are, on both
    /// sides.
    #[inline]
    pub(crate) fn spill(&self, offset: u32, length: u32) -> *const u8 {
        self.writable_spill(offset, length)
    }

    /// For writing `length` bytes at `offset` of the spill. Panics as [`Ring::spill`] does.
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

    /// Makes the processor fetch these bytes of the spill for writing. Has no other effect. Panics
    /// as [`Ring::spill`] does.
    #[inline]
    pub(crate) fn prefetch_spill_to_write(&self, offset: u32, length: u32) {
        let run = self.writable_spill(offset, length);
        for at in (0..length as usize).step_by(hints::LINE_BYTES) {
            hints::prefetch_to_write(run.wrapping_add(at));
        }
    }

    /// Makes the processor fetch the slot at a position for writing. Has no other effect.
    #[inline]
    pub(crate) fn prefetch_slot_to_write(&self, position: u32) {
        hints::prefetch_to_write(self.slot(position).body.writable());
    }

    /// Makes the processor move these bytes of the spill to the cache that the cores share. Has no
    /// other effect. Panics as [`Ring::spill`] does.
    #[inline]
    pub(crate) fn demote_spill(&self, offset: u32, length: u32) {
        let run = self.writable_spill(offset, length);
        for at in (0..length as usize).step_by(hints::LINE_BYTES) {
            hints::demote(run.wrapping_add(at));
        }
    }
}
