//! The caller's memory.
//!
//! libfabric's callers give pointers. From the call until the operation's entry has been read, the
//! memory is the provider's (fi_msg(3), fi_tagged(3)). This module is where pointers are
//! checked.

use std::ptr::NonNull;

use tagmatch_ofi_sys::calls::{Errno, Result};

/// Memory that a caller lends to an operation.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    start: NonNull<u8>,
    length: usize,
    /// The operation may write it.
    writable: bool,
}

// SAFETY: a caller lends memory to the endpoint, which any thread of the process may use.
unsafe impl Send for Memory {}

#[expect(clippy::len_without_is_empty, reason = "no operation differs without bytes")]
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
    #[inline(always)]
    pub unsafe fn new(start: *const u8, length: usize, writable: bool) -> Result<Self> {
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
    pub fn start(&self) -> usize {
        self.start.as_ptr() as usize
    }

    /// How many bytes there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// The memory without its first `count` bytes.
    pub fn after(self, count: usize) -> Self {
        let count = count.min(self.length);
        // SAFETY: the result lies within the memory, or right behind its last byte.
        let start = unsafe { self.start.add(count) };
        Memory { start, length: self.length - count, ..self }
    }

    /// The first `count` bytes.
    pub fn first(self, count: usize) -> Self {
        Memory { length: self.length.min(count), ..self }
    }

    /// The first byte. The memory is not null; without bytes it dangles.
    #[inline]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    /// Whether the operation may write it.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The bytes of a message that is copied at once.
    ///
    /// # Safety
    /// The bytes are not written while the slice is used.
    #[inline]
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: readable by the promise of `new`, and not written by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    /// The bytes that an operation writes: the first ones, at most `count`.
    ///
    /// # Safety
    /// The memory is writable, and nobody else uses it while the slice is used.
    pub unsafe fn first_mut<'a>(self, count: usize) -> &'a mut [u8] {
        // SAFETY: writable by the promise of `new`, and not shared by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length.min(count)) }
    }
}
