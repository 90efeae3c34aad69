//! Memory that belongs to an operation until it ends.

use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

/// Bytes to send, or a place to receive them.
///
/// An operation owns its buffer and gives it back when it completes, so that no dropped request,
/// leaked future or lost worker can leave a device reading or writing memory that was freed. Moving
/// a buffer never moves its bytes.
///
/// ```
/// # use tagmatch_device as tagmatch;
/// use tagmatch::Buffer;
/// let buffer = Buffer::from(vec![1, 2, 3]);
/// assert_eq!(&buffer[..], [1, 2, 3]);
/// assert_eq!(buffer.into_vec(), [1, 2, 3]);
/// ```
// Every message reads, moves and drops one: where the bytes are doesn't depend on whose they are, and memory
// that isn't ours is dropped by one comparison.
pub struct Buffer {
    /// `length` initialised bytes, valid for reads, and for writes if the owner is not one that shares, as
    /// long as this lives.
    start: NonNull<u8>,
    length: usize,
    owner: Owner,
}

// It is moved with every operation.
const _: () = assert!(size_of::<Buffer>() == 24 && size_of::<Option<Buffer>>() == 24);

// SAFETY: the caller of `Buffer::from_raw` vouched for the memory from any thread, until the buffer is gone;
// vectors, shared slices and `LentMemory` are `Send` by themselves.
unsafe impl Send for Buffer {}
// SAFETY: a shared `Buffer` gives out shared slices only, and `from_raw`'s caller vouched that
// nobody else writes the memory meanwhile; the other owners are `Sync`.
unsafe impl Sync for Buffer {}

/// Who gets the memory back, in one word, which moves as one: a vector's capacity, twice and one more; a name
/// below; or else a pointer to a `Box<dyn LentMemory>`, itself in a box.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Owner(*mut Box<dyn LentMemory>);

impl Owner {
    /// Whoever gave it to [`Buffer::from_raw`].
    const CALLER: Owner = Owner(ptr::without_provenance_mut(2));
    const CALLER_READ_ONLY: Owner = Owner(ptr::without_provenance_mut(4));
    /// All who have a part in an `Arc`.
    const SHARED: Owner = Owner(ptr::without_provenance_mut(6));

    #[inline]
    fn vec(capacity: usize) -> Self {
        // At most `isize::MAX`, as of any vector.
        Owner(ptr::without_provenance_mut(capacity << 1 | 1))
    }

    #[inline]
    fn vec_capacity(self) -> Option<usize> {
        (self.0.addr() & 1 == 1).then_some(self.0.addr() >> 1)
    }

    fn lender(self) -> Option<*mut Box<dyn LentMemory>> {
        const { assert!(align_of::<Box<dyn LentMemory>>() >= 4) };
        // No allocation starts below that.
        const NAMES: usize = 8;
        (self.vec_capacity().is_none() && self.0.addr() >= NAMES).then_some(self.0)
    }
}

/// Memory of a device, which gets it back when this is dropped.
///
/// # Safety
/// What [`LentMemory::memory`] gives is always the same, initialised, valid for reads and writes as long as
/// `self` lives, and reached by nobody else, save by operations of the device that hold the buffer.
pub unsafe trait LentMemory: Send + Sync {
    /// Where it starts, and its length in bytes.
    fn memory(&self) -> (NonNull<u8>, usize);

    /// For the device that knows which kind it is.
    fn as_any(&self) -> &dyn Any;
}

impl Buffer {
    /// A buffer of `length` zero bytes.
    pub fn zeroed(length: usize) -> Self {
        vec![0; length].into()
    }

    /// Memory that the caller manages.
    ///
    /// # Safety
    /// From now until this buffer has been given back by the operation that it was handed to, or
    /// dropped: `length` bytes at `start` stay allocated and initialised; nobody writes them; and if
    /// `writable`, nobody else reads them. Any thread may do the reading and writing.
    #[inline]
    pub unsafe fn from_raw(start: NonNull<u8>, length: usize, writable: bool) -> Self {
        let owner = if writable { Owner::CALLER } else { Owner::CALLER_READ_ONLY };
        Buffer { start, length, owner }
    }

    /// Memory that a device lends. For devices.
    pub fn lent(memory: Box<dyn LentMemory>) -> Self {
        let (start, length) = memory.memory();
        Buffer { start, length, owner: Owner(Box::into_raw(Box::new(memory))) }
    }

    /// The memory that a device lends, if it does. For devices.
    pub fn lent_memory(&self) -> Option<&dyn Any> {
        let lender = self.owner.lender()?;
        // SAFETY: a box that is made in `lent` and freed by our drop.
        Some(unsafe { &*lender }.as_any())
    }

    /// Whether a receive may use it. Shared bytes can only be sent.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.owner != Owner::SHARED && self.owner != Owner::CALLER_READ_ONLY
    }

    /// The bytes for writing, or `None` if they can only be read.
    #[inline]
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        // SAFETY: by the field's invariant; ours alone, as a vector's are, and as `from_raw`'s caller or
        // `LentMemory` promises.
        let bytes = || unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) };
        self.is_writable().then(bytes)
    }

    /// The bytes as a vector: the one that the buffer was made from, else a copy.
    #[inline]
    pub fn into_vec(self) -> Vec<u8> {
        if self.owner.vec_capacity().is_none() {
            return self.to_vec();
        }
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` isn't used or dropped any more.
        unsafe { this.take_vec() }.unwrap_or_default()
    }

    /// The vector that it was made from, if it was.
    ///
    /// # Safety
    /// Called once, and nothing afterwards.
    #[inline]
    unsafe fn take_vec(&mut self) -> Option<Vec<u8>> {
        let capacity = self.owner.vec_capacity()?;
        // SAFETY: the parts of the vector in `From<Vec<u8>>`, which was forgotten there, and which the caller
        // takes once.
        Some(unsafe { Vec::from_raw_parts(self.start.as_ptr(), self.length, capacity) })
    }

    /// Gives the memory of these parts back to its owner. By value: a buffer whose address is never asked for
    /// stays in registers.
    ///
    /// # Safety
    /// They are the parts of a buffer that is not used any more.
    #[cold]
    #[inline(never)]
    unsafe fn release(start: NonNull<u8>, length: usize, owner: Owner) {
        if owner == Owner::SHARED {
            let bytes = ptr::slice_from_raw_parts(start.as_ptr(), length);
            // SAFETY: what `Arc::into_raw` gave in `From<Arc<[u8]>>`, given back once.
            drop(unsafe { Arc::from_raw(bytes) });
        } else if let Some(lender) = owner.lender() {
            // SAFETY: what `Box::into_raw` gave in `lent`, given back once.
            drop(unsafe { Box::from_raw(lender) });
        } else if let Some(capacity) = owner.vec_capacity() {
            // SAFETY: the parts of the vector in `From<Vec<u8>>`, which was forgotten there.
            drop(unsafe { Vec::from_raw_parts(start.as_ptr(), length, capacity) });
        }
    }
}

impl Drop for Buffer {
    #[inline(always)]
    fn drop(&mut self) {
        let Buffer { start, length, owner } = *self;
        if owner != Owner::CALLER && owner != Owner::CALLER_READ_ONLY {
            // SAFETY: nothing is dropped twice or used afterwards.
            unsafe { Self::release(start, length, owner) }
        }
    }
}

impl Default for Buffer {
    #[inline]
    fn default() -> Self {
        Vec::new().into()
    }
}

/// The copy has memory of its own; shared bytes stay shared.
impl Clone for Buffer {
    fn clone(&self) -> Self {
        if self.owner != Owner::SHARED {
            return self.to_vec().into();
        }
        let bytes = ptr::slice_from_raw_parts(self.start.as_ptr(), self.length);
        // SAFETY: what `Arc::into_raw` gave in `From<Arc<[u8]>>`; the part that `self` has stays its own.
        Arc::clone(&ManuallyDrop::new(unsafe { Arc::from_raw(bytes) })).into()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: by the field's invariant; nobody writes them but through us, by the promise made to
        // `from_raw` or by `LentMemory`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
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
        let mut vec = ManuallyDrop::new(vec);
        let owner = Owner::vec(vec.capacity());
        // SAFETY: no vector's pointer is null.
        let start = unsafe { NonNull::new_unchecked(vec.as_mut_ptr()) };
        Buffer { start, length: vec.len(), owner }
    }
}

impl From<Box<[u8]>> for Buffer {
    fn from(bytes: Box<[u8]>) -> Self {
        bytes.into_vec().into()
    }
}

impl From<Arc<[u8]>> for Buffer {
    fn from(bytes: Arc<[u8]>) -> Self {
        let length = bytes.len();
        // SAFETY: no shared slice's pointer is null. Nobody writes through it.
        let start = unsafe { NonNull::new_unchecked(Arc::into_raw(bytes).cast_mut().cast()) };
        Buffer { start, length, owner: Owner::SHARED }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.owner {
            Owner::SHARED => "shared",
            Owner::CALLER | Owner::CALLER_READ_ONLY => "raw",
            owner if owner.lender().is_some() => "lent by a device",
            _ => "owned",
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

    #[test]
    fn every_owner_gets_its_memory_back_once() {
        struct Lent(Arc<()>, Vec<u8>);
        // SAFETY: always the same vector, which nobody else reaches.
        unsafe impl LentMemory for Lent {
            fn memory(&self) -> (NonNull<u8>, usize) {
                (NonNull::from(&self.1[..]).cast(), self.1.len())
            }

            fn as_any(&self) -> &dyn Any {
                &self.0
            }
        }
        let count = Arc::new(());
        let lent = Buffer::lent(Box::new(Lent(Arc::clone(&count), vec![1, 2])));
        assert!(lent.lent_memory().unwrap().is::<Arc<()>>() && lent.is_writable());
        assert_eq!((&lent[..], Arc::strong_count(&count)), (&[1, 2][..], 2));
        assert_eq!((lent.into_vec(), Arc::strong_count(&count)), (vec![1, 2], 1));

        let bytes = Arc::<[u8]>::from(&b"abc"[..]);
        let shared = Buffer::from(Arc::clone(&bytes));
        let copy = shared.clone();
        assert_eq!((copy.as_ptr(), Arc::strong_count(&bytes)), (bytes.as_ptr(), 3));
        drop(shared);
        assert_eq!((copy.into_vec(), Arc::strong_count(&bytes)), (b"abc".to_vec(), 1));

        let mut roomy = Vec::with_capacity(10);
        roomy.push(7);
        let (start, capacity) = (roomy.as_ptr(), roomy.capacity());
        let buffer = Buffer::from(roomy);
        assert!(buffer.lent_memory().is_none());
        let back = buffer.into_vec();
        assert_eq!((back.as_ptr(), back.capacity(), &back[..]), (start, capacity, &[7][..]));
        assert_eq!(Buffer::default().into_vec(), []);
    }

    #[test]
    fn owners_are_named() {
        let named = |buffer: Buffer| format!("{buffer:?}");
        assert_eq!(named(Buffer::zeroed(3)), "Buffer(3 bytes, owned)");
        assert_eq!(named(Arc::<[u8]>::from(&b"ab"[..]).into()), "Buffer(2 bytes, shared)");
    }
}
