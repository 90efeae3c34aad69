//! Memory for messages.

use std::ptr;

/// Memory that is never freed, so no operation can outlive it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    start: *mut u8,
    length: usize,
}

// SAFETY: a test reads and writes memory only while no operation is under way in it.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`.
unsafe impl Sync for Memory {}

impl Memory {
    /// No memory: a null pointer, and no bytes.
    pub(crate) const NULL: Memory = Memory { start: ptr::null_mut(), length: 0 };

    /// So many bytes, each 0xee.
    pub(crate) fn new(length: usize) -> Self {
        Memory::of(&vec![0xee; length])
    }

    /// A copy of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let start = Box::leak(Box::<[u8]>::from(bytes)).as_mut_ptr();
        Memory { start, length: bytes.len() }
    }

    /// A pointer and a length that a caller gives by mistake.
    pub(crate) fn claimed(start: *mut u8, length: usize) -> Self {
        Memory { start, length }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// A piece of it.
    pub(crate) fn part(&self, from: usize, length: usize) -> Self {
        assert!(from + length <= self.length, "the piece lies within");
        Memory { start: self.start.wrapping_add(from), length }
    }

    /// The bytes as they are now.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        if self.length == 0 {
            return Vec::new();
        }
        // SAFETY: the memory lives for ever, and no operation is under way in it.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }.to_vec()
    }

    /// Sets the first bytes.
    pub(crate) fn write(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.length, "there is room");
        // SAFETY: as for `bytes`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start, bytes.len()) };
    }

    /// The memory as an argument of calls with several pieces.
    pub(crate) fn part_of_call(&self) -> libc::iovec {
        libc::iovec { iov_base: self.start.cast(), iov_len: self.length }
    }
}

/// A message of this length. Messages with different seeds differ in most bytes.
pub(crate) fn payload(seed: u64, length: usize) -> Vec<u8> {
    let start = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..length).map(|at| start[at % 8].wrapping_add((at / 8 * 31 + at) as u8)).collect()
}
