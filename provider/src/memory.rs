//! The caller's memory.
//!
//! libfabric's callers give pointers. From the call until the operation's entry has been read, the
//! memory is the provider's (fi_msg(3), fi_tagged(3)). This module is where pointers become
//! buffers.

use std::ptr::NonNull;

use tagmatch::{Buffer, raw};

use crate::errno::{Errno, Result};

/// Memory that a caller lends to an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    length: usize,
    /// The operation may write it.
    writable: bool,
}

// SAFETY: a caller lends memory to the endpoint, which any thread of the process may use.
unsafe impl Send for Memory {}

impl Memory {
    /// Memory of a send (`writable` is false) or of a receive.
    ///
    /// # Errors
    /// The pointer is null although there is a length, or the length reaches beyond the address
    /// space.
    ///
    /// # Safety
    /// The `length` bytes at `start` are readable, and writable if `writable`; nobody else writes
    /// them, nor reads what the operation writes, until the operation's entry has been read.
    #[inline]
    pub(crate) unsafe fn new(start: *const u8, length: usize, writable: bool) -> Result<Self> {
        let end = (start as usize).checked_add(length);
        let start = match NonNull::new(start.cast_mut()) {
            Some(start) => start,
            None if length == 0 => NonNull::dangling(),
            None => return Err(Errno::INVALID),
        };
        if length > isize::MAX as usize || end.is_none() {
            return Err(Errno::INVALID);
        }
        Ok(Memory { start, length, writable })
    }

    /// Where the memory is.
    #[inline]
    pub(crate) fn start(&self) -> usize {
        self.start.as_ptr() as usize
    }

    /// How many bytes there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// The memory without its first `count` bytes.
    pub(crate) fn after(self, count: usize) -> Self {
        let count = count.min(self.length);
        // SAFETY: the result lies within the memory, or right behind its last byte.
        let start = unsafe { self.start.add(count) };
        Memory { start, length: self.length - count, ..self }
    }

    /// A buffer of the worker.
    #[inline]
    pub(crate) fn buffer(self) -> Buffer {
        // SAFETY: by the promise of `new`. The operation's entry is read after the operation is
        // over.
        unsafe {
            if self.writable {
                raw::buffer(self.start, self.length)
            } else {
                raw::read_only(self.start, self.length)
            }
        }
    }

    /// The bytes of a message that is copied at once.
    ///
    /// # Safety
    /// The bytes are not written while the slice is used.
    #[inline]
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: readable by the promise of `new`, and not written by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}
