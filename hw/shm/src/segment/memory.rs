//! The layout of a segment, and copies into it and out of it.

use crate::sync::AtomicU64;

pub(super) const SLOTS: usize = 8;
pub(super) const AREAS: usize = 2;
/// Two cache lines, because processors fetch lines in pairs.
const SLOT_STRIDE: usize = 128;
pub(super) const SLOT_BYTES: usize = SLOT_STRIDE - size_of::<SegmentSlot>();
pub(super) const AREA_BYTES: usize = 64 << 10;
/// The first bytes have the token, and nothing else: a page, if it is of the smallest size. Larger
/// ones cost nothing but memory.
const HEAD_BYTES: usize = 4096;
/// A member's words: its slots, and behind them the word that says what it has finished. The words
/// of all members lie together, so that a member that reads all of them touches few pages. The
/// distance from one member's to the next is an odd number of slots. With a distance of a page, the
/// slots of all members would compete for the same few lines of a cache.
const WORDS_BYTES: usize = FINISHED_OFFSET + SLOT_STRIDE;
const FINISHED_OFFSET: usize = SLOTS * SLOT_STRIDE;
const AREAS_BYTES: usize = AREAS * AREA_BYTES;
pub(super) const TOKEN_BYTES: usize = 16;

const _: () = assert!(WORDS_BYTES / SLOT_STRIDE % 2 == 1 && AREA_BYTES.is_multiple_of(HEAD_BYTES));

/// Where the areas begin: at a multiple of [`HEAD_BYTES`], behind the words of all members.
fn areas_offset(members: u32) -> usize {
    HEAD_BYTES + (members as usize * WORDS_BYTES).next_multiple_of(HEAD_BYTES)
}

/// The length of a segment for this many members.
pub(super) fn length_bytes(members: u32) -> usize {
    areas_offset(members) + members as usize * AREAS_BYTES
}

/// The words of a slot. Contents follow them.
#[repr(C)]
pub(super) struct SegmentSlot {
    /// The stamp of the contents. Only the slot's member stores it, with `Release`, after the
    /// contents and `about`. Readers load it with `Acquire`.
    pub(super) stamp: AtomicU64,
    /// A word about the contents.
    pub(super) about: AtomicU64,
}

/// Where contents lie: in a slot or an area of a member.
#[derive(Clone, Copy)]
pub(super) enum ContentsPlace {
    Slot(u32, usize),
    Area(u32, usize),
}

#[cfg(all(loom, test))]
pub(super) use super::model::Memory;
#[cfg(not(all(loom, test)))]
pub(super) use real::Memory;

#[cfg(not(all(loom, test)))]
mod real {
    use std::io;
    use std::ptr::{self, NonNull};

    use tagmatch_os::memory::Mapping;

    use super::*;
    use crate::hints::{self, LINE_BYTES};
    use crate::streaming::{WriteWay, Writing};

    /// Of contents up to this length, all lines are asked for before the first one is written, as
    /// the ring does with its runs: a store to a line that a reader has waits for it.
    const PREFETCHED_MAX: usize = 16 << 10;

    /// The mapped memory of a segment.
    ///
    /// Other processes may write all of it at any time. So there are atomics and copies by raw
    /// pointers, never references to plain data.
    pub(in super::super) struct Memory {
        /// Keeps the memory mapped; `start` points to its beginning.
        _mapping: Mapping,
        start: NonNull<u8>,
        members: u32,
        areas_offset: usize,
    }

    // SAFETY: `Memory` gives out references to atomics and copies of bytes. The mapping belongs to
    // the process, not to a thread.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl Memory {
        pub(in super::super) fn new(mapping: Mapping, members: u32) -> io::Result<Self> {
            let start = NonNull::new(mapping.start()).ok_or(io::ErrorKind::InvalidData)?;
            if mapping.length() != length_bytes(members) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let areas_offset = areas_offset(members);
            Ok(Memory { _mapping: mapping, start, members, areas_offset })
        }

        pub(in super::super) fn members(&self) -> u32 {
            self.members
        }

        /// The words that tell this segment from all others.
        pub(in super::super) fn token(&self) -> [&AtomicU64; 2] {
            // SAFETY: the first page has room for both; a mapping begins with a page; any bit
            // pattern is valid for atomics.
            unsafe {
                let words = self.start.cast::<AtomicU64>();
                [words.as_ref(), words.add(1).as_ref()]
            }
        }

        /// The beginning of a member's words.
        #[inline]
        fn words(&self, member: u32) -> NonNull<u8> {
            assert!(member < self.members);
            // SAFETY: inside the mapping, by the check above and the length that `new` has checked.
            unsafe { self.start.add(HEAD_BYTES + member as usize * WORDS_BYTES) }
        }

        /// The beginning of a member's areas.
        #[inline]
        fn areas(&self, member: u32) -> NonNull<u8> {
            assert!(member < self.members);
            // SAFETY: as in `words`.
            unsafe { self.start.add(self.areas_offset + member as usize * AREAS_BYTES) }
        }

        #[inline]
        pub(in super::super) fn slot(&self, member: u32, slot: usize) -> &SegmentSlot {
            let offset = slot % SLOTS * SLOT_STRIDE;
            // SAFETY: inside the member's words; the offset is a multiple of 128 from a page; slots
            // are made of atomics.
            unsafe { self.words(member).add(offset).cast::<SegmentSlot>().as_ref() }
        }

        /// Asks for a slot's first cache line, in order to write it. Waits for nothing.
        #[inline]
        pub(in super::super) fn prefetch(&self, member: u32, slot: usize) {
            let slot: *const SegmentSlot = self.slot(member, slot);
            hints::prefetch_to_write(slot.cast());
        }

        #[inline]
        pub(in super::super) fn finished(&self, member: u32) -> &AtomicU64 {
            // SAFETY: inside the member's words, and aligned.
            unsafe { self.words(member).add(FINISHED_OFFSET).cast::<AtomicU64>().as_ref() }
        }

        /// The bytes from `offset` on, and how many there are.
        #[inline]
        fn bytes(&self, place: ContentsPlace, offset: usize) -> (*mut u8, usize) {
            let (part, start, length) = match place {
                ContentsPlace::Slot(member, slot) => {
                    let start = slot % SLOTS * SLOT_STRIDE + size_of::<SegmentSlot>();
                    (self.words(member), start, SLOT_BYTES)
                }
                ContentsPlace::Area(member, area) => {
                    (self.areas(member), area % AREAS * AREA_BYTES, AREA_BYTES)
                }
            };
            let offset = offset.min(length);
            // SAFETY: `start + length` is within that part of the member's memory, and `offset`
            // within that.
            let bytes = unsafe { part.add(start + offset) };
            (bytes.as_ptr(), length - offset)
        }

        #[inline]
        pub(in super::super) fn write(
            &self,
            place: ContentsPlace,
            offset: usize,
            contents: &[u8],
            writing: &mut Writing,
        ) {
            let (bytes, length) = self.bytes(place, offset);
            let contents = &contents[..contents.len().min(length)];
            if matches!(place, ContentsPlace::Slot(..)) {
                // SAFETY: as below.
                unsafe { ptr::copy_nonoverlapping(contents.as_ptr(), bytes, contents.len()) };
                return;
            }
            let way = if offset.is_multiple_of(LINE_BYTES) {
                writing.way(contents.len())
            } else {
                WriteWay::Ordinary
            };
            if way != WriteWay::Streaming && contents.len() <= PREFETCHED_MAX {
                for line in (0..contents.len()).step_by(LINE_BYTES) {
                    hints::prefetch_to_write(bytes.wrapping_add(line));
                }
            }
            // SAFETY: as many bytes as there are; `contents` is memory of this process, which no
            // segment overlaps. An area is made of whole lines. Another process may read or write
            // the same bytes at the same time: then their values are undefined, and nothing but the
            // data depends on them.
            unsafe { writing.write(way, contents, bytes) }
        }

        #[inline]
        pub(in super::super) fn read(&self, place: ContentsPlace, offset: usize, into: &mut [u8]) {
            let (bytes, length) = self.bytes(place, offset);
            // SAFETY: as in `write`.
            unsafe { ptr::copy_nonoverlapping(bytes, into.as_mut_ptr(), into.len().min(length)) }
        }

        /// Appends as many of the bytes as there are.
        pub(in super::super) fn append(
            &self,
            place: ContentsPlace,
            offset: usize,
            length: usize,
            to: &mut Vec<u8>,
        ) {
            let (bytes, most) = self.bytes(place, offset);
            let length = length.min(most);
            to.reserve(length);
            // SAFETY: as in `write`; the vector has room for as many bytes behind its own, and all
            // of these are initialised then.
            unsafe {
                ptr::copy_nonoverlapping(bytes, to.as_mut_ptr().add(to.len()), length);
                to.set_len(to.len() + length);
            }
        }
    }
}
