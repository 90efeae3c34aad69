//! Memory to receive into, which needn't be initialised.
//!
//! **Memory to receive into may never have been written.** A C caller's memory often wasn't, and
//! Rust allows no slice of it. So devices and the protocol write through a `Room`,
//! which can't be read, and ask a `Buffer` for its pointer and length
//! without making a slice. `Received::data` shows only bytes that were written, whatever length a
//! peer names.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::{ptr, slice};

/// Bytes that can be written and not read, because they may never have been written before. Only
/// initialised bytes are written there.
#[derive(Debug, Default)]
pub struct Room<'a>(&'a mut [MaybeUninit<u8>]);

impl<'a> Room<'a> {
    #[inline(always)]
    pub(crate) fn new(bytes: &'a mut [MaybeUninit<u8>]) -> Self {
        Room(bytes)
    }

    /// The number of bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A part of the bytes; `None` if it isn't inside.
    #[inline]
    pub fn part(self, range: Range<usize>) -> Option<Self> {
        self.0.get_mut(range).map(Room)
    }

    /// Copies as many bytes as fit, and returns how many.
    #[inline]
    pub fn fill(self, from: &[u8]) -> usize {
        let length = from.len().min(self.len());
        // SAFETY: both have `length` bytes, and nothing else refers to those of `self`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.0.as_mut_ptr().cast(), length) };
        length
    }

    /// Sets all bytes to zero.
    pub fn zero(self) {
        // SAFETY: the bytes belong to `self`.
        unsafe { ptr::write_bytes(self.0.as_mut_ptr(), 0, self.0.len()) };
    }

    /// The bytes themselves.
    ///
    /// # Safety
    /// Only initialised bytes are written.
    #[inline(always)]
    pub unsafe fn into_uninit(self) -> &'a mut [MaybeUninit<u8>] {
        self.0
    }
}

impl<'a> From<&'a mut [u8]> for Room<'a> {
    #[inline(always)]
    fn from(bytes: &'a mut [u8]) -> Self {
        // SAFETY: the same memory, and only initialised bytes are written through a `Room`.
        Room(unsafe { slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_bytes_are_copied_as_fit() {
        let mut memory = [MaybeUninit::uninit(); 4];
        assert_eq!(Room::new(&mut memory).part(1..3).unwrap().fill(b"abc"), 2);
        assert_eq!(Room::new(&mut memory).part(3..4).unwrap().fill(b""), 0);
        // SAFETY: these two bytes were just written.
        assert_eq!(unsafe { [memory[1].assume_init(), memory[2].assume_init()] }, *b"ab");
        for outside in [3..5, 5..5, 0..usize::MAX] {
            assert!(Room::new(&mut memory).part(outside).is_none());
        }
        let rest = Room::new(&mut memory).part(1..4).unwrap();
        let none = Room::default();
        assert_eq!((rest.len(), rest.is_empty()), (3, false));
        assert_eq!((none.len(), none.is_empty()), (0, true));
        let mut bytes = *b"1234";
        assert_eq!(Room::from(&mut bytes[..]).fill(b"xyz"), 3);
        assert_eq!(&bytes, b"xyz4");
        Room::from(&mut bytes[1..3]).zero();
        assert_eq!(&bytes, b"x\0\x004");
    }
}
