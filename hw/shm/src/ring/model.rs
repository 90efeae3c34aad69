//! The memory of a pair for the model checker: the same parts, made of its atomics.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use tagmatch_os::memory::Mapping;

use super::geometry::{Geometry, LINE_BYTES};
use super::memory::Header;
use super::slot::{Meta, Slot};
use crate::cooperative::Claims;
use crate::padded::Padded;
use crate::sync::{AtomicU32, AtomicU64, Body};

/// Stands for one ring in the mapped memory of a pair.
#[derive(Clone)]
pub(crate) struct Ring {
    parts: Arc<RingCells>,
    is_short: bool,
}

struct RingCells {
    header: Header,
    short: LineCells,
    long: LineCells,
}

/// A line is a slot and bytes, which don't overlap here: a run that covers a line also writes the
/// word of its slot.
struct LineCells {
    slots: Vec<Slot>,
    /// The bytes, in a box that nothing else refers to.
    bytes: *mut [u8],
    /// Tell the model checker which lines are read and written as parts of runs.
    cells: Vec<UnsafeCell<()>>,
    geometry: Geometry,
}

// SAFETY: loom runs one thread at a time, and `cells` reports each access to the bytes.
unsafe impl Send for LineCells {}
// SAFETY: as above.
unsafe impl Sync for LineCells {}

impl LineCells {
    fn new(geometry: Geometry) -> Self {
        let slot = |_| Slot { word: AtomicU64::new(0), body: Body::new() };
        LineCells {
            slots: (0..geometry.lines()).map(slot).collect(),
            bytes: Box::into_raw(vec![0; geometry.bytes() as usize].into_boxed_slice()),
            cells: (0..geometry.lines()).map(|_| UnsafeCell::new(())).collect(),
            geometry,
        }
    }

    fn of(&self, position: u32, length: u32) -> Range<usize> {
        let first = self.geometry.line(position) as usize;
        let range = first..first + length.div_ceil(LINE_BYTES) as usize;
        assert!(range.end <= self.cells.len());
        range
    }

    fn at(&self, position: u32) -> *mut u8 {
        let offset = self.geometry.line(position) * LINE_BYTES;
        // SAFETY: inside the box, since a line is below the number of lines.
        unsafe { self.bytes.cast::<u8>().add(offset as usize) }
    }
}

impl Drop for LineCells {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw`, and dropped once.
        drop(unsafe { Box::from_raw(self.bytes) });
    }
}

impl Ring {
    pub(crate) fn pair(_: Mapping, _: Geometry, used: Geometry) -> Option<[Self; 2]> {
        let ring = || {
            let header = Header {
                consumed: Padded(AtomicU32::new(0)),
                polled: Padded(AtomicU32::new(0)),
                space_wanted: Padded(AtomicU32::new(0)),
                claims: Padded(Claims::default()),
            };
            let short = LineCells::new(Geometry::SHORT);
            let long = LineCells::new(used);
            Ring { parts: Arc::new(RingCells { header, short, long }), is_short: true }
        };
        Some([ring(), ring()])
    }

    fn lines(&self) -> &LineCells {
        if self.is_short { &self.parts.short } else { &self.parts.long }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.lines().geometry
    }

    pub(crate) fn long_geometry(&self) -> Geometry {
        self.parts.long.geometry
    }

    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }

    pub(crate) fn change_lines(&mut self) {
        self.is_short = !self.is_short;
    }

    pub(crate) fn other_lines(&self) -> Self {
        Ring { parts: Arc::clone(&self.parts), is_short: !self.is_short }
    }

    pub(crate) fn give_back_long_lines(&self) {
        self.clear();
    }

    /// Clears the words as a write of whole lines would.
    pub(crate) fn clear(&self) {
        let lines = self.lines();
        for (cell, slot) in lines.cells.iter().zip(&lines.slots) {
            cell.with_mut(|_| ());
            slot.word.store(0, Relaxed);
        }
    }

    pub(crate) fn header(&self) -> &Header {
        &self.parts.header
    }

    pub(crate) fn slot(&self, position: u32) -> &Slot {
        let lines = self.lines();
        &lines.slots[lines.geometry.line(position) as usize]
    }

    /// The caller's read counts as done here: it has the consumer until it has read the bytes.
    pub(crate) fn run(&self, position: u32, length: u32) -> *const u8 {
        let lines = self.lines();
        lines.of(position, length).for_each(|line| lines.cells[line].with(|_| ()));
        lines.at(position)
    }

    /// The caller's write counts as done here. No access of another thread comes between.
    pub(crate) fn writable_run(&self, position: u32, length: u32) -> *mut u8 {
        let lines = self.lines();
        // In the next lap, this would be taken for a message.
        let lap = Meta::of_lap(!lines.geometry.is_in_odd_lap(position));
        let left_behind = Meta::new(8, false, false, false).word(lap, 0);
        for line in lines.of(position, length) {
            lines.cells[line].with_mut(|_| ());
            lines.slots[line].word.store(left_behind, Relaxed);
        }
        lines.at(position)
    }

    /// The model has no caches.
    pub(crate) fn prefetch_run_to_write(&self, _: u32, _: u32) {}

    /// The model has no caches.
    pub(crate) fn prefetch_slot_to_write(&self, _: u32) {}

    /// The model has no caches.
    pub(crate) fn demote_slot(&self, _: u32) {}

    /// The model has no caches.
    pub(crate) fn demote_run(&self, _: u32, _: u32) {}
}
