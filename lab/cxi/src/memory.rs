//! Memory that a program lends to an operation, until it has read the operation's completion.

use tagmatch_ofi_sys::calls::{Errno, Result};

/// A program's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    start: *mut u8,
    length: usize,
}

// SAFETY: a program lends memory to an endpoint, which any of its threads may use.
unsafe impl Send for Memory {}

impl Memory {
    /// Memory of a call.
    ///
    /// # Safety
    /// The bytes are the endpoint's until the operation's completion has been read: readable for a
    /// send, writable for a receive.
    pub(crate) unsafe fn new(start: *mut u8, length: usize) -> Result<Self> {
        if (start.is_null() && length > 0) || isize::try_from(length).is_err() {
            return Err(Errno::INVALID);
        }
        Ok(Memory { start, length })
    }

    /// Where it is.
    pub(crate) fn start(&self) -> usize {
        self.start as usize
    }

    /// How many bytes there are.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// A copy of the bytes of a send.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        if self.length == 0 {
            return Vec::new();
        }
        // SAFETY: readable by the promise of `new`.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }.to_vec()
    }

    /// The first bytes of a receive, as many as there is room for and at most `most`.
    pub(crate) fn first(&mut self, most: usize) -> &mut [u8] {
        let length = self.length.min(most);
        if length == 0 {
            return &mut [];
        }
        // SAFETY: writable by the promise of `new`, and lent to one operation.
        unsafe { std::slice::from_raw_parts_mut(self.start, length) }
    }
}
