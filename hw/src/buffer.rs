//! Memory that belongs to an operation until it ends.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes to send, or a place to receive them.
///
/// An operation owns its buffer and gives it back when it completes, so that no dropped request,
/// leaked future or lost worker can leave a device reading or writing memory that was freed. Moving
/// a buffer never moves its bytes.
///
/// ```
/// use tagmatch_hw::Buffer;
/// let buffer = Buffer::from(vec![1, 2, 3]);
/// assert_eq!(&buffer[..], [1, 2, 3]);
/// assert_eq!(buffer.into_vec(), [1, 2, 3]);
/// ```
#[derive(Default)]
pub struct Buffer(Memory);

enum Memory {
    Vec(Vec<u8>),
    Shared(Arc<[u8]>),
    Raw(RawMemory),
    RawReadOnly(RawMemory),
    Lent(Box<dyn LentMemory>),
}

/// Memory of a device, which gets it back when this is dropped.
///
/// # Safety
/// What [`LentMemory::memory`] gives is always the same, initialised, valid for reads and writes as long as
/// `self` lives, and reached by nobody else, save by operations of the device that hold the buffer.
pub(crate) unsafe trait LentMemory: Send + Sync {
    /// Where it starts, and its length in bytes.
    fn memory(&self) -> (NonNull<u8>, usize);

    /// For the device that knows which kind it is.
    fn as_any(&self) -> &dyn Any;
}

struct RawMemory {
    start: NonNull<u8>,
    length: usize,
}

// It is moved with every operation.
const _: () = assert!(size_of::<Buffer>() == 24);

// SAFETY: the caller of `Buffer::from_raw` vouched for the memory from any thread, until the
// buffer is gone; the other kinds of memory are `Send` by themselves.
unsafe impl Send for RawMemory {}
// SAFETY: a shared `Buffer` gives out shared slices only, and `from_raw`'s caller vouched that
// nobody else writes the memory meanwhile.
unsafe impl Sync for RawMemory {}

impl Default for Memory {
    fn default() -> Self {
        Memory::Vec(Vec::new())
    }
}

impl Memory {
    #[cold]
    fn raw_mut(&mut self) -> Option<&mut [u8]> {
        let (start, length) = match self {
            Memory::Raw(raw) => (raw.start, raw.length),
            Memory::Lent(lent) => lent.memory(),
            _ => return None,
        };
        // SAFETY: valid for reads and writes and ours alone, as `from_raw`'s caller promised, or `LentMemory`
        // promises.
        Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) })
    }
}

impl Buffer {
    /// A buffer of `length` zero bytes.
    pub fn zeroed(length: usize) -> Self {
        Buffer(Memory::Vec(vec![0; length]))
    }

    /// Memory that the caller manages.
    ///
    /// # Safety
    /// From now until this buffer has been given back by the operation that it was handed to, or
    /// dropped: `length` bytes at `start` stay allocated and initialised; nobody writes them; and if
    /// `writable`, nobody else reads them. Any thread may do the reading and writing.
    pub unsafe fn from_raw(start: NonNull<u8>, length: usize, writable: bool) -> Self {
        let raw = RawMemory { start, length };
        Buffer(if writable { Memory::Raw(raw) } else { Memory::RawReadOnly(raw) })
    }

    /// Memory that a device lends.
    pub(crate) fn lent(memory: Box<dyn LentMemory>) -> Self {
        Buffer(Memory::Lent(memory))
    }

    /// The memory that a device lends, if it does.
    pub(crate) fn lent_memory(&self) -> Option<&dyn Any> {
        match &self.0 {
            Memory::Lent(lent) => Some(lent.as_any()),
            _ => None,
        }
    }

    /// Whether a receive may use it. Shared bytes can only be sent.
    #[inline]
    pub fn is_writable(&self) -> bool {
        matches!(self.0, Memory::Vec(_) | Memory::Raw(_) | Memory::Lent(_))
    }

    /// The bytes for writing, or `None` if they can only be read.
    #[inline]
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        match &mut self.0 {
            Memory::Vec(vec) => Some(vec),
            other => other.raw_mut(),
        }
    }

    /// The bytes as a vector: the one that the buffer was made from, else a copy.
    #[inline]
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Memory::Vec(vec) => vec,
            _ => self.to_vec(),
        }
    }
}

/// The copy has memory of its own; shared bytes stay shared.
impl Clone for Buffer {
    fn clone(&self) -> Self {
        match &self.0 {
            Memory::Shared(shared) => Arc::clone(shared).into(),
            _ => self.to_vec().into(),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Vec(vec) => vec,
            Memory::Shared(shared) => shared,
            Memory::Lent(lent) => {
                let (start, length) = lent.memory();
                // SAFETY: valid for reads and not written by others, as `LentMemory` promises.
                unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }
            }
            // SAFETY: valid for reads and not written by others, by the promise made to `from_raw`.
            Memory::Raw(raw) | Memory::RawReadOnly(raw) => unsafe {
                std::slice::from_raw_parts(raw.start.as_ptr(), raw.length)
            },
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for Buffer {
    #[inline]
    fn from(vec: Vec<u8>) -> Self {
        Buffer(Memory::Vec(vec))
    }
}

impl From<Box<[u8]>> for Buffer {
    fn from(bytes: Box<[u8]>) -> Self {
        Buffer(Memory::Vec(bytes.into_vec()))
    }
}

impl From<Arc<[u8]>> for Buffer {
    fn from(bytes: Arc<[u8]>) -> Self {
        Buffer(Memory::Shared(bytes))
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            Memory::Vec(_) => "owned",
            Memory::Shared(_) => "shared",
            Memory::Raw(_) | Memory::RawReadOnly(_) => "raw",
            Memory::Lent(_) => "lent by a device",
        };
        write!(f, "Buffer({} bytes, {kind})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_do_not_move_with_the_buffer() {
        let buffer = Buffer::zeroed(100);
        let before = buffer.as_ptr();
        let moved = Box::new(buffer);
        assert_eq!(moved.as_ptr(), before);
        let vec = moved.into_vec();
        assert_eq!(vec.as_ptr(), before);
    }

    #[test]
    fn shared_bytes_are_read_only() {
        let mut buffer = Buffer::from(Arc::<[u8]>::from(&b"abc"[..]));
        assert!(!buffer.is_writable() && buffer.as_mut_slice().is_none());
        assert_eq!(&buffer[..], b"abc");
    }

    #[test]
    fn raw_memory_is_used_in_place() {
        let mut memory = [1u8, 2, 3];
        {
            // SAFETY: `memory` outlives the buffer and is not touched meanwhile.
            let mut buffer =
                unsafe { Buffer::from_raw(NonNull::from(&mut memory).cast::<u8>(), 3, true) };
            buffer.as_mut_slice().unwrap()[1] = 9;
        }
        assert_eq!(memory, [1, 9, 3]);
    }
}
