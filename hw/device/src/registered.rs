//! Memory of the caller's own that a device has registered, and buffers that are parts of it.
//!
//! **Registered memory of the caller's own is a handle that buffers share.** `raw::register` asks
//! the device once (`Device::register`). Each part is a `Buffer` with a counted reference to the
//! device's registration, by which the device recognises it (`Buffer::lent_memory`). So parts need
//! no memory of their own, and the last of them ends the registration, on whatever thread. A cache
//! of registrations would have to learn when memory is freed, and nothing tells it.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::buffer::{Buffer, LentMemory};

/// Memory that a device is to register.
#[derive(Debug)]
pub struct RawMemory {
    start: NonNull<u8>,
    length: usize,
}

/// Memory of the caller's own that was registered once. Buffers that are parts of it need no
/// registration of their own, and no allocation.
///
/// Clones share the memory. It is unregistered when the last clone and the last buffer are gone,
/// on whatever thread, also after the worker.
#[derive(Clone)]
pub struct Registered {
    start: NonNull<u8>,
    length: usize,
    registration: Arc<Box<dyn LentMemory>>,
}

/// The device's record of registered memory. By this record the device recognises the parts.
struct Registration(Box<dyn Any + Send + Sync>);

// SAFETY: it lends no memory. The parts are made by unsafe calls.
unsafe impl LentMemory for Registration {
    fn memory(&self) -> (NonNull<u8>, usize) {
        (NonNull::dangling(), 0)
    }

    fn as_any(&self) -> &dyn Any {
        &*self.0
    }
}

// SAFETY: the caller of `RawMemory::new` has promised that any thread may use the memory.
unsafe impl Send for RawMemory {}
// SAFETY: the caller of `RawMemory::new` has promised that any thread may use the memory, and the
// registration is `Send` and `Sync`.
unsafe impl Send for Registered {}
// SAFETY: a shared reference gives out buffers only, by unsafe functions. The rest is as above.
unsafe impl Sync for Registered {}

impl RawMemory {
    /// Names `length` bytes at `start`. `None` if there are no bytes, or if they reach beyond the
    /// end of the address space.
    ///
    /// # Safety
    /// The bytes stay allocated, and any thread may use them, until the [`Registered`] that is made
    /// of this value is gone with its clones and buffers.
    pub unsafe fn new(start: NonNull<u8>, length: usize) -> Option<Self> {
        let is_inside =
            length <= isize::MAX.unsigned_abs() && start.addr().get().checked_add(length).is_some();
        (length > 0 && is_inside).then_some(RawMemory { start, length })
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The number of bytes, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "there is always a byte")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// The registered memory. Dropping `registration` ends the registration; it is the
    /// [`Buffer::lent_memory`] of all parts. For devices.
    pub fn registered(self, registration: Box<dyn Any + Send + Sync>) -> Registered {
        let registration = Arc::new(Box::new(Registration(registration)) as Box<_>);
        Registered { start: self.start, length: self.length, registration }
    }
}

impl Registered {
    /// The number of bytes, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "there is always a byte")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// A part of the memory, for receiving or sending. `None` if the range isn't inside the memory.
    /// Several parts may be in use at once.
    ///
    /// # Safety
    /// The promise of `raw::buffer` for the bytes in the range. Parts that overlap aren't in use at
    /// once, unless all of them are [read-only](Registered::read_only).
    #[inline]
    pub unsafe fn buffer(&self, range: Range<usize>) -> Option<Buffer> {
        // SAFETY: the caller's promise.
        unsafe { self.part(range, true) }
    }

    /// A part of the memory, for sending only. `None` if the range isn't inside the memory.
    ///
    /// # Safety
    /// The promise of `raw::read_only` for the bytes in the range.
    #[inline]
    pub unsafe fn read_only(&self, range: Range<usize>) -> Option<Buffer> {
        // SAFETY: the caller's promise.
        unsafe { self.part(range, false) }
    }

    /// # Safety
    /// As for [`Registered::buffer`], or for [`Registered::read_only`] if it isn't writable.
    unsafe fn part(&self, range: Range<usize>, is_writable: bool) -> Option<Buffer> {
        let Range { start, end } = range;
        if start > end || end > self.length {
            return None;
        }
        // SAFETY: the offset is inside the memory, or right behind it.
        let first = unsafe { self.start.add(start) };
        let registration = Arc::clone(&self.registration);
        // SAFETY: the part is inside the memory, which is allocated by the promise of
        // `RawMemory::new`. The rest is the caller's promise.
        Some(unsafe { Buffer::part(first, end - start, registration, is_writable) })
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registered({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::ptr;

    use super::*;

    fn registered(memory: &mut [MaybeUninit<u8>]) -> (Registered, Arc<()>) {
        let count = Arc::new(());
        let start = NonNull::from(&mut *memory).cast();
        // SAFETY: the memory outlives all that these tests make of it.
        let raw = unsafe { RawMemory::new(start, memory.len()) }.unwrap();
        assert_eq!((raw.start(), raw.len()), (start, memory.len()));
        (raw.registered(Box::new(Arc::clone(&count))), count)
    }

    #[test]
    fn parts_lie_where_they_should_and_keep_the_registration() {
        let mut memory = Box::new_uninit_slice(100);
        let start = memory.as_ptr().cast::<u8>();
        let (registered, count) = registered(&mut memory);
        assert_eq!((registered.start().as_ptr().cast_const(), registered.len()), (start, 100));
        // SAFETY: the parts don't overlap.
        let parts = unsafe { [registered.buffer(0..40), registered.buffer(40..100)] };
        let [mut left, mut right] = parts.map(Option::unwrap);
        assert_eq!((left.as_ptr(), left.len()), (start, 40));
        assert_eq!((right.as_ptr(), right.len()), (start.wrapping_add(40), 60));
        assert_eq!(left.room().unwrap().fill(&[1; 10]), 10);
        assert_eq!(right.room().unwrap().fill(&[2; 60]), 60);
        let clone = registered.clone();
        drop((registered, left));
        assert_eq!(Arc::strong_count(&count), 2, "the registration has ended");
        // SAFETY: the left part is gone, and its first bytes are written.
        let again = unsafe { clone.read_only(5..10) }.unwrap();
        drop(clone);
        assert!(again.lent_memory().unwrap().is::<Arc<()>>());
        assert_eq!((&again[..], &right[..]), (&[1; 5][..], &[2; 60][..]));
        drop(again);
        assert_eq!(Arc::strong_count(&count), 2, "the last part has lost its registration");
        std::thread::spawn(|| drop(right)).join().unwrap();
        assert_eq!(Arc::strong_count(&count), 1, "still registered");
    }

    #[test]
    fn read_only_parts_are_sent_and_not_written() {
        let mut memory = [MaybeUninit::new(7); 4];
        let (registered, count) = registered(&mut memory);
        // SAFETY: all are read only, and the bytes are initialised.
        let parts = unsafe { [registered.read_only(0..4), registered.read_only(1..3)] };
        let [mut whole, part] = parts.map(Option::unwrap);
        assert!(!whole.is_writable() && whole.room().is_none() && whole.as_mut_slice().is_none());
        assert!(whole.lent_memory().is_some());
        assert_eq!(
            (&part[..], part.clone().into_vec(), whole.into_vec()),
            (&[7; 2][..], vec![7; 2], vec![7; 4])
        );
        drop((registered, part));
        assert_eq!(Arc::strong_count(&count), 1);
    }

    #[test]
    fn ranges_outside_give_nothing() {
        let mut memory = Box::new_uninit_slice(10);
        let (registered, count) = registered(&mut memory);
        let five = 5;
        let four = 4;
        for range in [0..11, 11..11, five..four, usize::MAX..usize::MAX, 1..usize::MAX] {
            // SAFETY: no two buffers are made.
            unsafe {
                assert!(registered.buffer(range.clone()).is_none(), "{range:?}");
                assert!(registered.read_only(range.clone()).is_none(), "{range:?}");
            }
        }
        assert_eq!(Arc::strong_count(&count), 2);
        for range in [0..0, 10..10, 0..10] {
            // SAFETY: each buffer is gone before the next one is made.
            assert_eq!(unsafe { registered.buffer(range.clone()) }.unwrap().len(), range.len());
        }
    }

    #[test]
    fn no_bytes_and_more_than_there_can_be_are_refused() {
        for length in [0, 6, isize::MAX.unsigned_abs(), usize::MAX] {
            let start = NonNull::new(ptr::without_provenance_mut(usize::MAX - 5)).unwrap();
            // SAFETY: nothing is made of it.
            let refused = unsafe { RawMemory::new(start, length) };
            assert!(refused.is_none(), "{length}");
        }
    }
}
