//! The memory of a ring for the model checker: the same parts, made of its atomics.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use tagmatch_os::memory::Mapping;

use super::geometry::{Geometry, LINE_BYTES};
use super::memory::{Header, Padded};
use super::slot::{Meta, Slot};
use crate::cooperative::Claims;
use crate::sync::{AtomicU32, AtomicU64, Body};

/// Stands for mapped memory. A line is a slot and bytes, which don't overlap here: a run that
/// covers a line also writes the word of its slot.
pub(crate) struct Ring {
    header: Header,
    slots: Vec<Slot>,
    /// The bytes, in a box that nothing else refers to.
    bytes: *mut [u8],
    /// Tell the model checker which lines are read and written as parts of runs.
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
            consumed: Padded(AtomicU32::new(0)),
            doorbell_wanted: Padded(AtomicU32::new(0)),
            space_wanted: Padded(AtomicU32::new(0)),
            claims: Padded(Claims::default()),
        };
        let slot = |_| Slot { word: AtomicU64::new(0), body: Body::new() };
        let bytes = geometry.bytes() as usize;
        Some(Ring {
            header,
            slots: (0..geometry.lines()).map(slot).collect(),
            bytes: Box::into_raw(vec![0; bytes].into_boxed_slice()),
            lines: (0..geometry.lines()).map(|_| UnsafeCell::new(())).collect(),
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
        &self.slots[self.geometry.line(position) as usize]
    }

    /// The caller's read counts as done here: it has the consumer until it has read the bytes.
    pub(crate) fn run(&self, position: u32, length: u32) -> *const u8 {
        self.lines_of(position, length).for_each(|line| self.lines[line].with(|_| ()));
        self.at(position)
    }

    /// The caller's write counts as done here. No access of another thread comes between.
    pub(crate) fn writable_run(&self, position: u32, length: u32) -> *mut u8 {
        // In the next lap, this would be taken for a message.
        let lap = Meta::of_lap(!self.geometry.is_in_odd_lap(position));
        let left_behind = Meta::new(8, false, false, false).word(lap, 0);
        for line in self.lines_of(position, length) {
            self.lines[line].with_mut(|_| ());
            self.slots[line].word.store(left_behind, Relaxed);
        }
        self.at(position)
    }

    /// The model has no caches.
    pub(crate) fn prefetch_run_to_write(&self, _: u32, _: u32) {}

    /// The model has no caches.
    pub(crate) fn prefetch_slot_to_write(&self, _: u32) {}

    /// The model has no caches.
    pub(crate) fn demote_run(&self, _: u32, _: u32) {}

    fn lines_of(&self, position: u32, length: u32) -> Range<usize> {
        let first = self.geometry.line(position) as usize;
        let range = first..first + length.div_ceil(LINE_BYTES) as usize;
        assert!(range.end <= self.lines.len());
        range
    }

    fn at(&self, position: u32) -> *mut u8 {
        let offset = self.geometry.line(position) * LINE_BYTES;
        // SAFETY: inside the box, since a line is below the number of lines.
        unsafe { self.bytes.cast::<u8>().add(offset as usize) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw`, and dropped once.
        drop(unsafe { Box::from_raw(self.bytes) });
    }
}
