//! The memory of a ring for the model checker: the same parts, made of its atomics.

use loom::cell::UnsafeCell;
use tagmatch_os::memory::Mapping;

use super::geometry::Geometry;
use super::memory::{Header, Padded};
use super::slot::Slot;
use crate::sync::{AtomicU32, AtomicU64, Body};

const LINE_BYTES: usize = 64;

/// Stands for mapped memory.
pub(crate) struct Ring {
    header: Header,
    slots: Vec<Slot>,
    /// The bytes, in a box that nothing else refers to.
    spill: *mut [u8],
    /// Tell the model checker which lines of the spill are read and written.
    lines: Vec<UnsafeCell<()>>,
    geometry: Geometry,
}

// SAFETY: loom runs one thread at a time, and `lines` reports each access to the bytes.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    pub(crate) fn new(_: Mapping, geometry: Geometry) -> Option<Self> {
        let header = Header {
            consumed: Padded(AtomicU64::new(0)),
            doorbell_wanted: Padded(AtomicU32::new(0)),
            space_wanted: Padded(AtomicU32::new(0)),
        };
        let slot = |_| Slot { word: AtomicU64::new(0), body: Body::new() };
        let bytes = geometry.spill_bytes() as usize;
        Some(Ring {
            header,
            slots: (0..geometry.slots()).map(slot).collect(),
            spill: Box::into_raw(vec![0; bytes].into_boxed_slice()),
            lines: (0..bytes / LINE_BYTES).map(|_| UnsafeCell::new(())).collect(),
            geometry,
        })
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) fn slot(&self, position: u32) -> &Slot {
        &self.slots[(position & (self.geometry.slots() - 1)) as usize]
    }

    /// The caller's read counts as done here: it has the consumer until it has read the bytes.
    pub(crate) fn spill(&self, offset: u32, length: u32) -> *const u8 {
        self.lines_of(offset, length).iter().for_each(|line| line.with(|_| ()));
        self.at(offset)
    }

    /// The caller's write counts as done here. No access of another thread comes between.
    pub(crate) fn writable_spill(&self, offset: u32, length: u32) -> *mut u8 {
        self.lines_of(offset, length).iter().for_each(|line| line.with_mut(|_| ()));
        self.at(offset)
    }

    /// The model has no caches.
    pub(crate) fn prefetch_spill_to_write(&self, _: u32, _: u32) {}

    /// The model has no caches.
    pub(crate) fn prefetch_slot_to_write(&self, _: u32) {}

    /// The model has no caches.
    pub(crate) fn demote_spill(&self, _: u32, _: u32) {}

    fn lines_of(&self, offset: u32, length: u32) -> &[UnsafeCell<()>] {
        let end = (offset + length) as usize;
        &self.lines[offset as usize / LINE_BYTES..end.div_ceil(LINE_BYTES)]
    }

    fn at(&self, offset: u32) -> *mut u8 {
        assert!(offset < self.geometry.spill_bytes());
        // SAFETY: inside the box, by the check.
        unsafe { self.spill.cast::<u8>().add(offset as usize) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw`, and dropped once.
        drop(unsafe { Box::from_raw(self.spill) });
    }
}
