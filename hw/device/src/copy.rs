//! Copying few bytes, for devices; copying bytes that another process may be writing.

use std::ptr;

use crate::buffer::Buffer;

/// Copies more than few bytes. `cold`, so that a copy of few bytes keeps what it has in registers.
///
/// # Safety
/// As for [`ptr::copy_nonoverlapping`].
#[cold]
#[inline(never)]
unsafe fn copy_more(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: by the caller's promise.
    unsafe { ptr::copy_nonoverlapping(from, to, length) };
}

/// Copies `from` to `to`, without a function call if there are at most 64 bytes.
///
/// # Safety
/// `to` is writable for `from.len()` bytes, which don't overlap `from`.
#[inline(always)]
pub unsafe fn copy_small(from: &[u8], to: *mut u8) {
    let length = from.len();
    let from = from.as_ptr();
    // Two moves of `size` bytes, one from each end, cover every length from `size` to twice `size`.
    // They may overlap.
    macro_rules! ends {
        ($size:expr) => {{
            // SAFETY: $size <= length, and both ends are inside `length` bytes.
            unsafe {
                let first = from.cast::<[u8; $size]>().read();
                let last = from.add(length - $size).cast::<[u8; $size]>().read();
                to.cast::<[u8; $size]>().write(first);
                to.add(length - $size).cast::<[u8; $size]>().write(last);
            }
        }};
    }
    if length > 64 {
        // SAFETY: by the caller's promise.
        return unsafe { copy_more(from, to, length) };
    }
    if length >= 8 {
        if length <= 16 {
            ends!(8)
        } else if length <= 32 {
            ends!(16)
        } else {
            ends!(32)
        }
    } else if length >= 2 {
        if length >= 4 { ends!(4) } else { ends!(2) }
    } else if length == 1 {
        // SAFETY: there is one byte at each of them.
        unsafe { to.write(from.read()) }
    }
}

impl Buffer {
    /// Copies the bytes from `at` on, which another process may be writing meanwhile: each aligned
    /// word of eight bytes is read once. `None`: some of the bytes aren't in the buffer.
    pub fn copy_out(&self, at: usize, out: &mut [u8]) -> Option<()> {
        let end = at.checked_add(out.len())?;
        if end > self.len() {
            return None;
        }
        // SAFETY: `at..end` is inside of the buffer.
        unsafe { copy_words(self.as_ptr().add(at), out) };
        Some(())
    }
}

/// Copies `out.len()` bytes, each aligned word by one load. The loads are volatile: a compiler that
/// may assume that nobody writes could load a byte twice.
///
/// # Safety
/// The bytes at `from` are mapped and initialised.
unsafe fn copy_words(from: *const u8, out: &mut [u8]) {
    const WORD: usize = size_of::<u64>();
    // SAFETY: each place is one of the `out.len()` bytes.
    let byte = |at: usize| unsafe { from.add(at).read_volatile() };
    // SAFETY: eight of these bytes begin at the place, which is aligned.
    let word = |at: usize| unsafe { from.add(at).cast::<u64>().read_volatile() };
    let end = out.len();
    let (head, rest) = out.split_at_mut(from.align_offset(WORD).min(end));
    let start = head.len();
    for (at, to) in head.iter_mut().enumerate() {
        *to = byte(at);
    }
    let mut words = rest.chunks_exact_mut(WORD);
    for (number, to) in words.by_ref().enumerate() {
        to.copy_from_slice(&word(start + number * WORD).to_ne_bytes());
    }
    let tail = words.into_remainder();
    for (at, to) in (end - tail.len()..end).zip(tail) {
        *to = byte(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_at_every_place_and_of_every_length_are_copied_out_of_a_buffer() {
        let bytes: Vec<u8> = (0..40).collect();
        let buffer = Buffer::from(bytes.clone());
        for at in 0..=bytes.len() {
            for length in 0..=bytes.len() - at {
                let mut out = vec![0xff; length];
                assert_eq!(buffer.copy_out(at, &mut out), Some(()));
                assert_eq!(out, bytes[at..at + length], "{length} bytes at {at}");
            }
            let mut out = vec![0xff; bytes.len() - at + 1];
            assert_eq!(buffer.copy_out(at, &mut out), None);
            assert_eq!(out, vec![0xff; bytes.len() - at + 1]);
        }
        assert_eq!(buffer.copy_out(usize::MAX, &mut [0; 2]), None);
    }
}
