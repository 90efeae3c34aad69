//! The memory that a collective operation works on.

use std::ops::{Deref, DerefMut, Range};

use tagmatch::Buffer;

/// Bytes that can be written. It is the caller's buffer as long as that can be written and has the
/// length that the operation needs. So numbers are neither copied into it nor out of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkMemory(Buffer);

impl WorkMemory {
    /// Cuts off bytes at the end, or adds zeros.
    pub(crate) fn resize(&mut self, length: usize) {
        self.0 = std::mem::take(&mut self.0).resized(length);
    }

    /// The bytes at `range`, which is in the memory.
    pub(crate) fn cut(self, range: Range<usize>) -> Self {
        WorkMemory(self.0.cut(range))
    }
}

impl From<Buffer> for WorkMemory {
    #[inline]
    fn from(buffer: Buffer) -> Self {
        if buffer.is_vec() {
            return WorkMemory(buffer);
        }
        let length = buffer.total_len();
        WorkMemory(buffer.resized(length))
    }
}

impl From<Vec<u8>> for WorkMemory {
    fn from(bytes: Vec<u8>) -> Self {
        WorkMemory(bytes.into())
    }
}

impl From<WorkMemory> for Buffer {
    fn from(memory: WorkMemory) -> Self {
        memory.0
    }
}

impl Deref for WorkMemory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for WorkMemory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // It can be written: see `Buffer::resized`.
        self.0.as_mut_slice().unwrap_or_default()
    }
}
