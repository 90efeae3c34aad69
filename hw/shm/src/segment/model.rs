//! The memory of a segment for the model checker.

use std::io;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use tagmatch_os::memory::Mapping;

use super::memory::{AREAS, ContentsPlace, SLOTS, SegmentSlot};
use crate::streaming::Writing;
use crate::sync::AtomicU64;

/// Contents in the model are one byte.
struct Member {
    slots: [(SegmentSlot, UnsafeCell<u8>); SLOTS],
    areas: [UnsafeCell<u8>; AREAS],
    finished: AtomicU64,
}

/// Stands for mapped memory.
#[derive(Clone)]
pub(super) struct Memory {
    members: Arc<Vec<Member>>,
    token: Arc<[AtomicU64; 2]>,
}

// SAFETY: loom runs one thread at a time, and panics if two threads use a byte at once.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn new(_: Mapping, members: u32) -> io::Result<Self> {
        let slot = || SegmentSlot { stamp: AtomicU64::new(0), about: AtomicU64::new(0) };
        let member = |_| Member {
            slots: std::array::from_fn(|_| (slot(), UnsafeCell::new(0))),
            areas: std::array::from_fn(|_| UnsafeCell::new(0)),
            finished: AtomicU64::new(0),
        };
        let token = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        Ok(Memory { members: Arc::new((0..members).map(member).collect()), token })
    }

    pub(super) fn members(&self) -> u32 {
        self.members.len() as u32
    }

    pub(super) fn token(&self) -> [&AtomicU64; 2] {
        self.token.each_ref()
    }

    pub(super) fn slot(&self, member: u32, slot: usize) -> &SegmentSlot {
        &self.members[member as usize].slots[slot].0
    }

    pub(super) fn finished(&self, member: u32) -> &AtomicU64 {
        &self.members[member as usize].finished
    }

    pub(super) fn prefetch(&self, _: u32, _: usize) {}

    fn byte(&self, place: ContentsPlace) -> &UnsafeCell<u8> {
        match place {
            ContentsPlace::Slot(member, slot) => &self.members[member as usize].slots[slot].1,
            ContentsPlace::Area(member, area) => &self.members[member as usize].areas[area],
        }
    }

    pub(super) fn write(&self, place: ContentsPlace, _: usize, contents: &[u8], _: &mut Writing) {
        // SAFETY: loom panics if another thread uses the byte.
        self.byte(place).with_mut(|byte| unsafe { *byte = contents[0] });
    }

    pub(super) fn read(&self, place: ContentsPlace, _: usize, into: &mut [u8]) {
        // SAFETY: loom panics if another thread writes the byte.
        self.byte(place).with(|byte| unsafe { into[0] = *byte });
    }

    pub(super) fn append(&self, place: ContentsPlace, offset: usize, _: usize, to: &mut Vec<u8>) {
        let mut byte = [0];
        self.read(place, offset, &mut byte);
        to.extend(byte);
    }
}

mod tests;
