//! Buffers of numbers: memory that was allocated for them goes back to the allocator as it came.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::buffer::{Buffer, LentMemory};

/// A number, which every pattern of its bytes is a value of. Messages carry it in the byte order of
/// the machine.
///
/// # Safety
/// The type has no padding, and every pattern of bytes is one of its values.
pub unsafe trait Element: Copy + Send + Sync + 'static {}

macro_rules! elements {
    ($($number:ty)+) => {
        // SAFETY: integers and floating-point numbers are such types.
        $(unsafe impl Element for $number {})+
    };
}

elements! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 }

/// The bytes of a slice of numbers.
pub fn as_bytes<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: the same memory, which has no padding, and no byte needs an alignment.
    unsafe { slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The bytes of a slice of numbers, to be received into.
pub fn as_bytes_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    // SAFETY: as in `as_bytes`. Whatever bytes are written, they are numbers.
    unsafe { slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}

impl Buffer {
    /// A buffer of a vector's numbers, without a copy; [`Buffer::into_elements`] gives the vector
    /// back.
    ///
    /// ```
    /// # use tagmatch_device as tagmatch;
    /// use tagmatch::Buffer;
    /// let buffer = Buffer::from_elements(vec![1.5, 2.5]);
    /// assert_eq!(buffer.len(), 16);
    /// assert_eq!(buffer.into_elements::<f64>().unwrap(), [1.5, 2.5]);
    /// ```
    // Not `From<Vec<T>>`: then `vec![0; 5]` would be a buffer of 20 bytes, since a number whose
    // type isn't known is an `i32`.
    pub fn from_elements<T: Element>(elements: Vec<T>) -> Self {
        let mut elements = ManuallyDrop::new(elements);
        let length = elements.len();
        let capacity = elements.capacity();
        // A vector's pointer is not null.
        let start = NonNull::new(elements.as_mut_ptr()).unwrap_or(NonNull::dangling());
        let is_taken = AtomicBool::new(false);
        Buffer::lent(Box::new(Elements { start, length, capacity, is_taken }))
    }

    /// The vector that [`Buffer::from_elements`] was given, without a copy.
    ///
    /// # Errors
    /// The buffer was made from something else, which is returned.
    pub fn into_elements<T: Element>(self) -> Result<Vec<T>, Buffer> {
        let elements = self.lent_memory().and_then(<dyn Any>::downcast_ref::<Elements<T>>);
        elements.and_then(Elements::take).ok_or(self)
    }
}

/// A vector of numbers, in its parts.
struct Elements<T: Element> {
    start: NonNull<T>,
    length: usize,
    capacity: usize,
    /// The vector has left. The buffer that lends the memory is dropped without a further look.
    is_taken: AtomicBool,
}

impl<T: Element> Elements<T> {
    fn take(&self) -> Option<Vec<T>> {
        let is_first = !self.is_taken.swap(true, Ordering::AcqRel);
        // SAFETY: the parts of the vector that `Buffer::from_elements` has forgotten, once.
        let vec =
            || unsafe { Vec::from_raw_parts(self.start.as_ptr(), self.length, self.capacity) };
        is_first.then(vec)
    }
}

impl<T: Element> Drop for Elements<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

// SAFETY: it owns the memory alone, as a vector does, and numbers may go to other threads.
unsafe impl<T: Element> Send for Elements<T> {}
// SAFETY: a shared reference gives the vector out once, to whoever is first.
unsafe impl<T: Element> Sync for Elements<T> {}

// SAFETY: the same memory always, which numbers have initialised, and which lives until it is taken
// by the buffer's owner. Nothing else has a pointer to it.
unsafe impl<T: Element> LentMemory for Elements<T> {
    fn memory(&self) -> (NonNull<u8>, usize) {
        (self.start.cast(), self.length * size_of::<T>())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn zeroed_alike(&self, length: usize) -> Option<Buffer> {
        let count = length.checked_div(size_of::<T>())?;
        let rest = length % size_of::<T>();
        // SAFETY: zeros are a value of every `Element`.
        (rest == 0).then(|| Buffer::from_elements(vec![unsafe { std::mem::zeroed::<T>() }; count]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_comes_back_as_it_went() {
        let mut numbers = Vec::with_capacity(10);
        numbers.extend([1.0f64, -2.0, 3.5]);
        let start = numbers.as_ptr();
        let capacity = numbers.capacity();
        let mut buffer = Buffer::from_elements(numbers);
        assert_eq!((buffer.as_ptr(), buffer.len()), (start.cast(), 24));
        assert_eq!(buffer[8..16], (-2.0f64).to_ne_bytes());
        buffer.as_mut_slice().unwrap()[..8].copy_from_slice(&9.25f64.to_ne_bytes());
        let back = buffer.into_elements::<f64>().unwrap();
        assert_eq!((back.as_ptr(), back.capacity()), (start, capacity));
        assert_eq!(back, [9.25, -2.0, 3.5]);
        // Dropped as a buffer, and copied as bytes.
        drop(Buffer::from_elements(vec![7u128; 9]));
        assert_eq!(Buffer::from_elements(vec![0x0101u16]).into_vec(), [1, 1]);
        assert_eq!(Buffer::from_elements(Vec::<u64>::new()).into_elements::<u64>().unwrap(), []);
    }

    #[test]
    fn another_type_is_no_way_out() {
        let buffer = Buffer::from_elements(vec![1u32, 2]).into_elements::<f32>().unwrap_err();
        assert_eq!(buffer.into_elements::<u32>().unwrap(), [1, 2]);
        let bytes = Buffer::zeroed(8).into_elements::<u8>().unwrap_err();
        assert_eq!(bytes.into_vec(), [0; 8]);
    }

    #[test]
    fn slices_are_seen_as_bytes() {
        let mut numbers = [1u16, 2];
        as_bytes_mut(&mut numbers)[2..].copy_from_slice(&0x0303u16.to_ne_bytes());
        assert_eq!(as_bytes(&numbers), [1u16.to_ne_bytes(), [3, 3]].concat());
    }
}
