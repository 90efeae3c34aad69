//! Memory that belongs to an operation until the operation ends.

use std::alloc::{Layout, alloc_zeroed};
use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use crate::room::Room;

/// Bytes to send, or memory to receive into.
///
/// An operation owns its buffer and returns it when it completes. So a device never reads or writes
/// memory that was freed, even if a request is dropped, a future is leaked or a worker is lost.
/// Moving a buffer doesn't move its bytes.
///
/// ```
/// # use tagmatch_device as tagmatch;
/// use tagmatch::Buffer;
/// let buffer = Buffer::from(vec![1, 2, 3]);
/// assert_eq!(&buffer[..], [1, 2, 3]);
/// assert_eq!(buffer.into_vec(), [1, 2, 3]);
/// ```
// Every message reads, moves and drops a buffer. So `start` and `length` are the same for all
// owners, and a buffer of the caller's memory is dropped by one comparison.
pub struct Buffer {
    /// `length` bytes, valid for reads as long as this lives. Also valid for writes, unless they
    /// are shared or read-only, see [`Buffer::is_writable`]. Initialised, except that the caller of
    /// [`Buffer::from_raw`] may know better.
    start: NonNull<u8>,
    length: usize,
    owner: Owner,
}

// Every operation moves a buffer, so its size counts.
const _: () = assert!(size_of::<Buffer>() == 24 && size_of::<Option<Buffer>>() == 24);

// SAFETY: the caller of `Buffer::from_raw` or `Buffer::part` has promised that any thread may use
// the memory until the buffer is gone. Vectors, shared slices and `LentMemory` are `Send`.
unsafe impl Send for Buffer {}
// SAFETY: a `&Buffer` gives out shared slices only, and the caller of `from_raw` or `part` has
// promised that nothing else writes the memory meanwhile. The other owners are `Sync`.
unsafe impl Sync for Buffer {}

/// The owner of the memory, which gets it back, encoded in one word. An odd number is a vector:
/// twice its capacity, plus 1. A number below 8 is one of the constants below. Another number is a
/// pointer of an `Arc<Box<dyn LentMemory>>`, plus [`Owner::READ_ONLY`] if its memory can only be
/// read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner(*mut Box<dyn LentMemory>);

impl Owner {
    /// The caller of [`Buffer::from_raw`].
    const CALLER: Owner = Owner(ptr::without_provenance_mut(2));
    const CALLER_READ_ONLY: Owner = Owner(ptr::without_provenance_mut(4));
    /// An `Arc`.
    const SHARED: Owner = Owner(ptr::without_provenance_mut(6));
    /// The bit that says, in every number but that of a vector, that the memory can only be read.
    const READ_ONLY: usize = 4;

    #[inline]
    fn vec(capacity: usize) -> Self {
        // A vector's capacity is at most `isize::MAX` bytes, so the shift loses nothing.
        Owner(ptr::without_provenance_mut(capacity << 1 | 1))
    }

    #[inline]
    fn vec_capacity(self) -> Option<usize> {
        (self.0.addr() & 1 == 1).then_some(self.0.addr() >> 1)
    }

    fn lent(lender: Arc<Box<dyn LentMemory>>, is_writable: bool) -> Self {
        let read_only = if is_writable { 0 } else { Self::READ_ONLY };
        let lender = Arc::into_raw(lender).cast_mut();
        Owner(lender.map_addr(|address| address | read_only))
    }

    #[inline]
    fn is_read_only(self) -> bool {
        self.0.addr() & (Self::READ_ONLY | 1) == Self::READ_ONLY
    }

    /// The pointer that `Arc::into_raw` returned in [`Owner::lent`].
    fn lender(self) -> Option<*mut Box<dyn LentMemory>> {
        const { assert!(align_of::<Box<dyn LentMemory>>() > Self::READ_ONLY) };
        // No allocation starts at an address below 8.
        const CONSTANTS_END: usize = 8;
        let is_lender = self.vec_capacity().is_none() && self.0.addr() >= CONSTANTS_END;
        is_lender.then(|| self.0.map_addr(|address| address & !Self::READ_ONLY))
    }
}

/// Memory that a device lends. The device gets it back when this is dropped.
///
/// # Safety
/// [`LentMemory::memory`] always returns the same memory. It is initialised, and valid for reads
/// and (unless [`LentMemory::is_writable`] denies it) writes as long as `self` lives. Nothing else
/// accesses it, except operations of the device that own the buffer.
pub unsafe trait LentMemory: Any + Send + Sync {
    /// Start of the memory, and its length in bytes.
    fn memory(&self) -> (NonNull<u8>, usize);

    /// For the device, which knows the type.
    fn as_any(&self) -> &dyn Any;

    /// Whether the memory can be written; asked once.
    fn is_writable(&self) -> bool {
        true
    }

    /// The slices of a buffer of several slices ([`Buffer::from_slices`]).
    #[doc(hidden)]
    fn slices(&self) -> Option<&[Buffer]> {
        None
    }

    /// A buffer of so many zero bytes that is made as this memory was; `None`: there is no such
    /// kind of memory, or the length doesn't fit it.
    #[doc(hidden)]
    fn zeroed_alike(&self, length: usize) -> Option<Buffer> {
        let _ = length;
        None
    }

    /// A copy of a buffer of several slices.
    #[doc(hidden)]
    fn copy_slices(&self) -> Option<Buffer> {
        None
    }
}

impl Buffer {
    /// A buffer of `length` zero bytes.
    pub fn zeroed(length: usize) -> Self {
        vec![0; length].into()
    }

    /// A buffer of `length` zero bytes; `None` if the allocator has no memory for it. For lengths
    /// that a peer has announced.
    pub fn try_zeroed(length: usize) -> Option<Self> {
        let layout = Layout::array::<u8>(length).ok()?;
        if length == 0 {
            return Some(Self::default());
        }
        // SAFETY: the size isn't zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        // A vector with this capacity has the same layout.
        Some(Buffer { start, length, owner: Owner::vec(length) })
    }

    /// Memory that the caller manages.
    ///
    /// # Safety
    /// Until this buffer is dropped, or returned by the operation that it was passed to: `length`
    /// bytes at `start` stay allocated, nothing else writes them, and if `writable` is true,
    /// nothing else reads them. Any thread may read and write them through the buffer.
    ///
    /// All bytes are initialised whenever the buffer is read: sent, cloned, or looked at as a
    /// slice. A buffer that is only received into needn't be initialised, see [`Buffer::room`].
    #[inline]
    pub unsafe fn from_raw(start: NonNull<u8>, length: usize, writable: bool) -> Self {
        let owner = if writable { Owner::CALLER } else { Owner::CALLER_READ_ONLY };
        Buffer { start, length, owner }
    }

    /// A buffer of memory that a device lends. For devices.
    pub fn lent(memory: Box<dyn LentMemory>) -> Self {
        let ((start, length), is_writable) = (memory.memory(), memory.is_writable());
        Buffer { start, length, owner: Owner::lent(Arc::new(memory), is_writable) }
    }

    /// A part of memory that several buffers share.
    ///
    /// # Safety
    /// As for [`Buffer::from_raw`], except that the bytes need to stay allocated only as long as
    /// `lender` lives.
    pub(crate) unsafe fn part(
        start: NonNull<u8>,
        length: usize,
        lender: Arc<Box<dyn LentMemory>>,
        is_writable: bool,
    ) -> Self {
        Buffer { start, length, owner: Owner::lent(lender, is_writable) }
    }

    /// The memory that a device lends; `None` if the buffer is of another kind. For devices.
    pub fn lent_memory(&self) -> Option<&dyn Any> {
        Some(self.lender()?.as_any())
    }

    /// The value that [`Buffer::lent`] was given.
    pub(crate) fn lender(&self) -> Option<&dyn LentMemory> {
        let lender = self.owner.lender()?;
        // SAFETY: the reference that the owner has until `self` is dropped.
        Some(&**unsafe { &*lender })
    }

    /// Has the value that [`Buffer::lent`] was given changed, if it is a `T`, and shows the memory
    /// that it lends from then on.
    pub(crate) fn change_lender<T: LentMemory, R>(
        &mut self,
        change: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        // SAFETY: the pointer that `Arc::into_raw` returned in `Owner::lent`. `ManuallyDrop` keeps
        // the reference count that belongs to `self`.
        let mut lender = ManuallyDrop::new(unsafe { Arc::from_raw(self.owner.lender()?) });
        let lender: &mut dyn Any = &mut **Arc::get_mut(&mut lender)?;
        let lender = lender.downcast_mut::<T>()?;
        let changed = change(lender);
        (self.start, self.length) = lender.memory();
        Some(changed)
    }

    /// Start of the bytes. Also for writing, if they are [writable](Buffer::is_writable).
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        // Hides the method of slices: a slice must not be made of bytes that aren't initialised.
        self.start.as_ptr()
    }

    /// The number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The first `length` bytes; all if there are fewer. Of memory that was only received into, the
    /// bytes that a message has written can be looked at so.
    #[inline]
    pub fn first_bytes(&self, length: usize) -> &[u8] {
        // SAFETY: as in `deref`, and bytes beyond `length` are left alone.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), length.min(self.length)) }
    }

    /// The bytes to receive into, which needn't be initialised; `None` if they can only be read.
    #[inline]
    pub fn room(&mut self) -> Option<Room<'_>> {
        let start = self.start.as_ptr().cast();
        // SAFETY: by the invariant of `start`. Nothing else accesses the bytes: a vector's belong
        // to it, and the caller of `from_raw`, `part` or `LentMemory` has promised it for the
        // others.
        let room = || unsafe { slice::from_raw_parts_mut(start, self.length) };
        self.is_writable().then(|| Room::new(room()))
    }

    /// Whether the buffer was made from a vector, so that it owns its memory. For devices.
    pub fn is_vec(&self) -> bool {
        self.owner.vec_capacity().is_some()
    }

    /// Whether the bytes can be written. Shared and read-only bytes can be sent, but not received
    /// into.
    #[inline]
    pub fn is_writable(&self) -> bool {
        !self.owner.is_read_only()
    }

    /// The bytes for writing; `None` if they can only be read. They are initialised, as for
    /// [`Deref`].
    #[inline]
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        // SAFETY: by the invariant of `start`. Nothing else accesses the bytes: a vector's belong
        // to it, and the caller of `from_raw`, `part` or `LentMemory` has promised it for the
        // others.
        let bytes = || unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) };
        self.is_writable().then(bytes)
    }

    /// The bytes as a vector: the vector that the buffer was made from, or a copy of other memory.
    /// Of a buffer of several slices, the bytes of all of them, one behind the other.
    #[inline]
    pub fn into_vec(self) -> Vec<u8> {
        if self.owner.vec_capacity().is_none() {
            return self.copy_to_vec();
        }
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` isn't used or dropped afterwards.
        unsafe { this.take_vec() }.unwrap_or_default()
    }

    fn copy_to_vec(&self) -> Vec<u8> {
        match self.lender().and_then(LentMemory::slices) {
            Some(slices) => slices.iter().fold(Vec::new(), |mut bytes, slice| {
                bytes.extend_from_slice(slice);
                bytes
            }),
            None => self.to_vec(),
        }
    }

    /// The vector that the buffer was made from; `None` if it was made from something else.
    ///
    /// # Safety
    /// Called once, and no other method is called afterwards.
    #[inline]
    unsafe fn take_vec(&mut self) -> Option<Vec<u8>> {
        let capacity = self.owner.vec_capacity()?;
        // SAFETY: these are the parts of the vector that `From<Vec<u8>>` has forgotten, and the
        // caller takes them once.
        Some(unsafe { Vec::from_raw_parts(self.start.as_ptr(), self.length, capacity) })
    }

    /// Takes the buffer apart.
    #[doc(hidden)]
    #[inline(always)]
    pub fn into_parts(self) -> BufferParts {
        let Buffer { start, length, owner } = *ManuallyDrop::new(self);
        BufferParts { start, length, owner }
    }

    /// Gives the memory back to its owner. Takes the parts of the buffer by value: a buffer whose
    /// address isn't taken stays in registers.
    ///
    /// # Safety
    /// They are the parts of a buffer that is not used afterwards.
    #[cold]
    #[inline(never)]
    unsafe fn release(start: NonNull<u8>, length: usize, owner: Owner) {
        if owner == Owner::SHARED {
            let bytes = ptr::slice_from_raw_parts(start.as_ptr(), length);
            // SAFETY: the pointer that `Arc::into_raw` returned in `From<Arc<[u8]>>`, used once.
            drop(unsafe { Arc::from_raw(bytes) });
        } else if let Some(lender) = owner.lender() {
            // SAFETY: the pointer that `Arc::into_raw` returned in `Owner::lent`, used once.
            drop(unsafe { Arc::from_raw(lender) });
        } else if let Some(capacity) = owner.vec_capacity() {
            // SAFETY: these are the parts of the vector that `From<Vec<u8>>` has forgotten.
            drop(unsafe { Vec::from_raw_parts(start.as_ptr(), length, capacity) });
        }
    }
}

/// The parts of a buffer on the short way of an operation, where they are kept in registers: a
/// buffer has a destructor, and a call that could panic would need its address. If these are
/// dropped, the buffer leaks.
#[derive(Debug)]
#[must_use = "a buffer leaks with its parts"]
pub struct BufferParts {
    start: NonNull<u8>,
    length: usize,
    owner: Owner,
}

// SAFETY: as for the buffer that they are the parts of.
unsafe impl Send for BufferParts {}

impl BufferParts {
    /// The buffer.
    #[inline(always)]
    pub fn into_buffer(self) -> Buffer {
        let BufferParts { start, length, owner } = self;
        Buffer { start, length, owner }
    }

    /// Whether the bytes can be written; see [`Buffer::is_writable`].
    #[inline(always)]
    pub fn is_writable(&self) -> bool {
        !self.owner.is_read_only()
    }
}

impl Drop for Buffer {
    #[inline(always)]
    fn drop(&mut self) {
        let Buffer { start, length, owner } = *self;
        if owner != Owner::CALLER && owner != Owner::CALLER_READ_ONLY {
            // SAFETY: `self` is not used afterwards, and dropped once.
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

/// The copy has memory of its own, but shared bytes stay shared. Several slices are copied one by
/// one.
impl Clone for Buffer {
    fn clone(&self) -> Self {
        if self.owner != Owner::SHARED {
            let slices = self.lender().and_then(LentMemory::copy_slices);
            return slices.unwrap_or_else(|| self.to_vec().into());
        }
        let bytes = ptr::slice_from_raw_parts(self.start.as_ptr(), self.length);
        // SAFETY: the pointer that `Arc::into_raw` returned in `From<Arc<[u8]>>`. `ManuallyDrop`
        // keeps the reference count that belongs to `self`.
        Arc::clone(&ManuallyDrop::new(unsafe { Arc::from_raw(bytes) })).into()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: by the invariant of `start`. The bytes are written through `self` alone: the
        // caller of `from_raw`, `part` or `LentMemory` has promised that.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

/// Compares the bytes.
impl<B: AsRef<[u8]> + ?Sized> PartialEq<B> for Buffer {
    fn eq(&self, other: &B) -> bool {
        **self == *other.as_ref()
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
        // SAFETY: a vector's pointer is not null.
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
        // SAFETY: the pointer of an `Arc` is not null. Nothing writes through it.
        let start = unsafe { NonNull::new_unchecked(Arc::into_raw(bytes).cast_mut().cast()) };
        Buffer { start, length, owner: Owner::SHARED }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(slices) = self.lender().and_then(LentMemory::slices) {
            let total = slices.iter().map(|slice| slice.len()).fold(0, usize::saturating_add);
            return write!(f, "Buffer({total} bytes in {} slices)", slices.len());
        }
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

    fn raw(memory: &mut [u8], writable: bool) -> Buffer {
        // SAFETY: in these tests, `memory` outlives the buffer and is not accessed meanwhile.
        unsafe { Buffer::from_raw(NonNull::from(&mut *memory).cast(), memory.len(), writable) }
    }

    #[test]
    fn raw_memory_is_used_in_place() {
        let mut memory = [1u8, 2, 3];
        let mut buffer = raw(&mut memory, true);
        buffer.as_mut_slice().unwrap()[1] = 9;
        assert_eq!(buffer.room().unwrap().part(2..3).unwrap().fill(&[8, 7]), 1);
        let copy = buffer.clone();
        drop(buffer);
        assert_eq!(memory, [1, 9, 8]);
        assert_ne!(copy.as_ptr(), memory.as_ptr());
        assert_eq!(copy.into_vec(), [1, 9, 8]);
    }

    #[test]
    fn memory_that_can_only_be_read_is_not_written() {
        let mut memory = [1u8, 2, 3];
        let mut buffer = raw(&mut memory, false);
        assert!(!buffer.is_writable() && buffer.lent_memory().is_none());
        assert!(buffer.as_mut_slice().is_none() && buffer.room().is_none());
        assert_eq!((&buffer[..], buffer.clone().is_writable()), (&[1, 2, 3][..], true));
    }

    #[test]
    fn as_many_bytes_are_shown_as_there_are() {
        let buffer = Buffer::from(vec![5, 6, 7].into_boxed_slice());
        assert_eq!((buffer.first_bytes(2), buffer.first_bytes(9)), (&[5, 6][..], &[5, 6, 7][..]));
        assert_eq!((buffer.as_ref(), buffer.len(), buffer.is_empty()), (&[5, 6, 7][..], 3, false));
        assert!(Buffer::default().is_empty() && Buffer::zeroed(0).is_empty());
    }

    #[test]
    fn every_owner_gets_its_memory_back_once() {
        struct Lent(Arc<()>, Vec<u8>);
        // SAFETY: always the same vector, which nothing else accesses.
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
        let start = roomy.as_ptr();
        let capacity = roomy.capacity();
        let buffer = Buffer::from(roomy);
        assert!(buffer.lent_memory().is_none());
        let back = buffer.into_vec();
        assert_eq!((back.as_ptr(), back.capacity(), &back[..]), (start, capacity, &[7][..]));
        assert_eq!(Buffer::default().into_vec(), []);
    }

    #[test]
    fn memory_that_is_not_there_is_told() {
        for length in [0, 1, 5000] {
            assert_eq!(Buffer::try_zeroed(length).unwrap().into_vec(), vec![0; length]);
        }
        assert!(Buffer::try_zeroed(usize::MAX).is_none());
        assert!(Buffer::try_zeroed(isize::MAX.unsigned_abs()).is_none());
    }

    #[test]
    fn owners_are_named() {
        let named = |buffer: Buffer| format!("{buffer:?}");
        assert_eq!(named(Buffer::zeroed(3)), "Buffer(3 bytes, owned)");
        assert_eq!(named(Arc::<[u8]>::from(&b"ab"[..]).into()), "Buffer(2 bytes, shared)");
        assert_eq!(named(Buffer::from_elements(vec![1u32])), "Buffer(4 bytes, lent by a device)");
        for writable in [true, false] {
            assert_eq!(named(raw(&mut [1, 2, 3], writable)), "Buffer(3 bytes, raw)");
        }
    }
}
