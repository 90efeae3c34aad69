//! Buffers of another length.

use std::ops::Range;

use crate::buffer::{Buffer, LentMemory};

impl Buffer {
    /// These bytes, cut off or filled up with zeros to `length`, in memory that can be written. The
    /// memory stays the same if it can be written and has that length; a vector of bytes is
    /// resized; other memory is copied. Numbers stay numbers ([`Buffer::from_elements`]), as long
    /// as `length` is a whole number of them.
    ///
    /// ```
    /// # use tagmatch_device as tagmatch;
    /// use tagmatch::Buffer;
    /// let four = Buffer::from_elements(vec![1u64, 2]).resized(32);
    /// assert_eq!(four.into_elements::<u64>().unwrap(), [1, 2, 0, 0]);
    /// ```
    #[must_use]
    pub fn resized(self, length: usize) -> Buffer {
        if self.is_vec() {
            let mut bytes = self.into_vec();
            bytes.resize(length, 0);
            return bytes.into();
        }
        let is_whole = self.lender().and_then(LentMemory::slices).is_none();
        if !is_whole {
            return Buffer::from(self.into_vec()).resized(length);
        }
        if length == self.len() && self.is_writable() {
            return self;
        }
        let kept_length = length.min(self.len());
        self.copied(0..kept_length, length)
    }

    /// The bytes at `range`. Without a copy if these are all, or the first ones of a vector of
    /// bytes. Numbers stay numbers, as long as the range has a whole number of them.
    ///
    /// # Panics
    /// The range ends behind the buffer, or before it begins.
    #[must_use]
    pub fn cut(self, range: Range<usize>) -> Buffer {
        if self.is_vec() {
            let mut bytes = self.into_vec();
            bytes.truncate(range.end);
            bytes.drain(..range.start);
            return bytes.into();
        }
        if range == (0..self.len()) {
            return self;
        }
        let length = range.len();
        self.copied(range, length)
    }

    /// Memory of the same kind, and of `length` bytes, which begins with those at `range`.
    fn copied(&self, range: Range<usize>, length: usize) -> Buffer {
        let alike = self.lender().and_then(|lender| lender.zeroed_alike(length));
        let mut copy = alike.unwrap_or_else(|| Buffer::zeroed(length));
        let kept = range.len();
        if let Some(bytes) = copy.as_mut_slice() {
            bytes[..kept].copy_from_slice(&self[range]);
        }
        copy
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn memory_that_fits_is_not_copied() {
        let numbers = vec![1u32, 2, 3];
        let start = numbers.as_ptr();
        let buffer = Buffer::from_elements(numbers).resized(12).cut(0..12);
        let numbers = buffer.into_elements::<u32>().unwrap();
        assert_eq!(numbers.as_ptr(), start);
        let bytes = vec![1u8, 2, 3];
        let start = bytes.as_ptr();
        let bytes = Buffer::from(bytes).resized(3).cut(0..2).into_vec();
        assert_eq!(bytes.as_ptr(), start);
    }

    #[test]
    fn numbers_stay_numbers_while_they_are_whole() {
        let numbers = || Buffer::from_elements(vec![1u16, 2, 3]);
        assert_eq!(numbers().resized(8).into_elements::<u16>().unwrap(), [1, 2, 3, 0]);
        assert_eq!(numbers().resized(4).into_elements::<u16>().unwrap(), [1, 2]);
        assert_eq!(numbers().cut(2..6).into_elements::<u16>().unwrap(), [2, 3]);
        let odd = numbers().cut(1..4);
        assert_eq!(odd, numbers()[1..4]);
        assert!(odd.into_elements::<u16>().is_err());
    }

    #[test]
    fn bytes_that_can_only_be_read_are_copied() {
        let shared: Arc<[u8]> = Arc::from([1, 2, 3]);
        let mut own = Buffer::from(Arc::clone(&shared)).resized(3);
        own.as_mut_slice().unwrap()[0] = 9;
        assert_eq!((&*own, &*shared), (&[9, 2, 3][..], &[1, 2, 3][..]));
        assert_eq!(Buffer::from(shared).cut(1..3), [2, 3]);
        let slices = Buffer::from_slices([vec![1, 2], vec![3]]);
        assert_eq!(slices.resized(4), [1, 2, 3, 0]);
    }
}
