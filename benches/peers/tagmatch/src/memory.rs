//! Buffers as every peer uses them: the same one again and again, or one that moves.

use std::ptr::NonNull;

use tagmatch::{Buffer, raw};

pub(crate) const SIZE_MAX: usize = 4 << 20;
/// Bytes of the memory through which the buffers of cold cases move.
pub(crate) const COLD_BYTES: usize = 64 << 20;
/// The alignment in `measure.h`, so that every program has huge pages, or none.
const ALIGNMENT: usize = 2 << 20;

/// Buffers begin at cache lines.
const LINE: usize = 64;

/// Bytes that live as long as the process, and the buffer in them that is used now.
pub(crate) struct Memory {
    bytes: NonNull<u8>,
    len: usize,
    /// Where the buffer begins.
    start: usize,
}

impl Memory {
    pub(crate) fn new(len: usize) -> Self {
        let bytes = vec![1u8; len + ALIGNMENT].leak();
        let offset = bytes.as_ptr().align_offset(ALIGNMENT);
        Memory { bytes: NonNull::from(&mut bytes[offset..offset + len]).cast(), len, start: 0 }
    }

    /// Moves to the next buffer of `size` bytes, and gives its start.
    pub(crate) fn advance(&mut self, size: usize) -> usize {
        let next = self.start + size.next_multiple_of(LINE);
        self.start = if next + size <= self.len { next } else { 0 };
        self.start
    }

    #[inline]
    fn pointer(&self, size: usize) -> NonNull<u8> {
        assert!(self.start + size <= self.len);
        // SAFETY: `bytes` points to `len` bytes, and the line above compares with them.
        unsafe { self.bytes.add(self.start) }
    }

    /// The buffer to send from.
    #[inline]
    pub(crate) fn outgoing(&self, size: usize) -> Buffer {
        // SAFETY: allocated for good and initialised; nothing writes here while a send is
        // under way, since `bytes_mut` is called between cases only.
        unsafe { raw::read_only(self.pointer(size), size) }
    }

    /// The buffer to receive into. The receives of a window share it, as osu_bw's do.
    #[inline]
    pub(crate) fn incoming(&self, size: usize) -> Buffer {
        // SAFETY: allocated for good and initialised. The worker belongs to this one thread, which
        // writes for one receive at a time and holds no slice from one call to the next; and
        // nothing reads the bytes before all receives into them have ended.
        unsafe { raw::buffer(self.pointer(size), size) }
    }

    /// Bytes of small messages, which are copied before the call returns.
    #[inline]
    pub(crate) fn bytes(&self, size: usize) -> &[u8] {
        // SAFETY: allocated for good and initialised; written through `bytes_mut` only while no
        // such slice is there, which the borrow checker sees to, or by receives, which have ended.
        unsafe { std::slice::from_raw_parts(self.pointer(size).as_ptr(), size) }
    }

    /// The bytes to send, to be changed while nothing is under way.
    pub(crate) fn bytes_mut(&mut self, size: usize) -> &mut [u8] {
        // SAFETY: as for `bytes`, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(size).as_ptr(), size) }
    }

    /// Reads the data of a receive that has ended, whose buffer was at `start`.
    pub(crate) fn read_data(&mut self, start: usize, size: usize) {
        self.start = start;
        let words = self.bytes(size).as_chunks::<8>().0.iter();
        let sum = words.fold(0, |sum: u64, word| sum.wrapping_add(u64::from_ne_bytes(*word)));
        std::hint::black_box(sum);
    }
}
