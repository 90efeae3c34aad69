//! Two buffers, used again and again, as every peer uses them.

use std::ptr::NonNull;

use tagmatch::{Buffer, raw};

pub(crate) const SIZE_MAX: usize = 4 << 20;
/// The alignment in `measure.h`, so that every program has huge pages, or none.
const ALIGNMENT: usize = 2 << 20;

/// Bytes that live as long as the process.
pub(crate) struct Memory(NonNull<u8>);

impl Memory {
    pub(crate) fn new() -> Self {
        let bytes = vec![1u8; SIZE_MAX + ALIGNMENT].leak();
        let offset = bytes.as_ptr().align_offset(ALIGNMENT);
        Memory(NonNull::from(&mut bytes[offset..offset + SIZE_MAX]).cast())
    }

    /// The buffer to send from.
    #[inline]
    pub(crate) fn outgoing(&self, size: usize) -> Buffer {
        assert!(size <= SIZE_MAX);
        // SAFETY: allocated for good and initialised; nothing writes here while a send is
        // under way, since `bytes_mut` is called between cases only.
        unsafe { raw::read_only(self.0, size) }
    }

    /// The buffer to receive into. The receives of a window share it, as osu_bw's do.
    #[inline]
    pub(crate) fn incoming(&self, size: usize) -> Buffer {
        assert!(size <= SIZE_MAX);
        // SAFETY: allocated for good and initialised. The worker belongs to this one thread, which
        // writes for one receive at a time and holds no slice from one call to the next; and
        // nothing reads the bytes before all receives into them have ended.
        unsafe { raw::buffer(self.0, size) }
    }

    /// Bytes of small messages, which are copied before the call returns.
    #[inline]
    pub(crate) fn bytes(&self, size: usize) -> &[u8] {
        assert!(size <= SIZE_MAX);
        // SAFETY: allocated for good and initialised; written through `bytes_mut` only while no
        // such slice is there, which the borrow checker sees to, or by receives, which have ended.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), size) }
    }

    /// The bytes to send, to be changed while nothing is under way.
    pub(crate) fn bytes_mut(&mut self, size: usize) -> &mut [u8] {
        assert!(size <= SIZE_MAX);
        // SAFETY: as for `bytes`, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), size) }
    }
}
