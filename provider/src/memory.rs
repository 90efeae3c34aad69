//! The caller's memory as buffers of the worker.

use tagmatch::{Buffer, raw};
use tagmatch_ofi_provider::Memory;

/// A buffer of the worker.
#[inline(always)]
pub(crate) fn buffer(memory: Memory) -> Buffer {
    let start = memory.as_ptr();
    let length = memory.len();
    // SAFETY: by the promise of `Memory::new`. The operation's entry is read after the operation is
    // over.
    unsafe {
        if memory.is_writable() {
            raw::buffer(start, length)
        } else {
            raw::read_only(start, length)
        }
    }
}
