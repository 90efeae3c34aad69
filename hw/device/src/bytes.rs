//! The bytes of a received message.

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

use crate::copy::copy_small;
use crate::room::Room;

/// The bytes of one message, in one logical run.
///
/// They may lie in memory that the sender can still write, so there is no slice of them. A reader
/// copies them out, and decides on the copy alone. The device has copied the first bytes, which
/// include the header, already.
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    head: &'a [u8],
    tail: *const u8,
    tail_length: usize,
    lifetime: PhantomData<&'a ()>,
}

// SAFETY: `Bytes` only reads, and its tail stays mapped and readable for every thread.
unsafe impl Send for Bytes<'_> {}

impl<'a> Bytes<'a> {
    /// How many bytes at the start of a message a device copies at least, if there are as many.
    pub const HEAD_MAX: usize = 64;

    /// Bytes in ordinary memory, for tests and for devices outside of this project.
    #[inline]
    pub fn from_slice(bytes: &'a [u8]) -> Self {
        let (head, tail) = bytes.split_at(bytes.len().min(Self::HEAD_MAX));
        // SAFETY: the tail is borrowed for 'a.
        unsafe { Self::from_parts(head, tail.as_ptr(), tail.len()) }
    }

    /// A head that was copied out, and the rest of the message where it lies. If there is a rest,
    /// the head has at least [`Bytes::HEAD_MAX`] bytes.
    ///
    /// # Safety
    /// For the lifetime `'a`, `tail_length` bytes at `tail` stay mapped and readable. Another
    /// process may be writing them.
    #[inline]
    pub unsafe fn from_parts(head: &'a [u8], tail: *const u8, tail_length: usize) -> Self {
        debug_assert!(tail_length == 0 || head.len() >= Self::HEAD_MAX);
        Bytes { head, tail, tail_length, lifetime: PhantomData }
    }

    /// The head, if that is the whole message.
    #[inline(always)]
    pub fn whole_head(&self) -> Option<&'a [u8]> {
        (self.tail_length == 0).then_some(self.head)
    }

    /// A message whose head is all of it.
    #[inline(always)]
    pub fn of_head(head: &'a [u8]) -> Self {
        Bytes { head, tail: ptr::null(), tail_length: 0, lifetime: PhantomData }
    }

    /// The number of bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.head.len() + self.tail_length
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `N` bytes from `offset` on; `None` if the message is too short.
    #[inline(always)]
    pub fn array<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let end = offset.checked_add(N)?;
        if end <= self.head.len() {
            return self.head[offset..end].try_into().ok();
        }
        let mut out = [0; N];
        (end <= self.len()).then(|| self.copy_to(offset, &mut out))?;
        Some(out)
    }

    /// The first `N` bytes, if the device has copied so many. For headers: of a message that is not
    /// copied whole, it has copied at least [`Bytes::HEAD_MAX`] bytes.
    #[inline(always)]
    pub fn first<const N: usize>(&self) -> Option<[u8; N]> {
        self.head.first_chunk().copied()
    }

    /// Copies bytes from `offset` on into `out`, as many as there are and fit, and returns how
    /// many.
    #[inline(always)]
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) -> usize {
        self.copy_to_room(offset, out.into())
    }

    /// As [`Bytes::copy_to`], into memory that needn't be initialised.
    #[inline(always)]
    pub fn copy_to_room(&self, offset: usize, out: Room<'_>) -> usize {
        // SAFETY: bytes of a message are initialised.
        let out = unsafe { out.into_uninit() };
        if self.tail_length == 0 && offset <= self.head.len() {
            let length = out.len().min(self.head.len() - offset);
            let from = &self.head[offset..offset + length];
            // SAFETY: `length` <= `out.len()`, and `out` is no part of `self`.
            unsafe { copy_small(from, out.as_mut_ptr().cast()) };
            return length;
        }
        // A copy is passed, so that bytes whose parts are in registers stay there.
        let copy = *self;
        copy.copy_run_to(offset, out)
    }

    #[inline(never)]
    fn copy_run_to(&self, offset: usize, out: &mut [MaybeUninit<u8>]) -> usize {
        let wanted = out.len().min(self.len().saturating_sub(offset));
        let from_head = wanted.min(self.head.len().saturating_sub(offset));
        if from_head > 0 {
            Room::new(&mut *out).fill(&self.head[offset..offset + from_head]);
        }
        if wanted > from_head {
            let skip = (offset + from_head) - self.head.len();
            let rest = &mut out[from_head..wanted];
            // SAFETY: skip + rest.len() <= tail_length by the computation of `wanted`, the caller
            // of `from_parts` has promised that the tail is readable, and nothing else refers to
            // `out`. If the sender writes at the same time, the copy has some of the bytes that the
            // sender wrote.
            unsafe {
                let to = rest.as_mut_ptr().cast();
                ptr::copy_nonoverlapping(self.tail.add(skip), to, rest.len());
            }
        }
        wanted
    }

    /// A copy of all bytes from `offset` on.
    pub fn to_vec(&self, offset: usize) -> Vec<u8> {
        let mut out = vec![0; self.len().saturating_sub(offset)];
        self.copy_to(offset, &mut out);
        out
    }
}

/// `N` bytes from `at` on. The caller has checked that they are there.
pub fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}

/// The little-endian number at `at`.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

/// The little-endian number at `at`.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

impl fmt::Debug for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_across_head_and_tail() {
        let all: Vec<u8> = (0..100).collect();
        let bytes = Bytes::from_slice(&all);
        assert_eq!(bytes.len(), 100);
        assert_eq!(bytes.array::<4>(62), Some([62, 63, 64, 65]));
        assert_eq!(bytes.array::<4>(0), Some([0, 1, 2, 3]));
        assert_eq!(bytes.array::<4>(97), None);
        assert_eq!(bytes.array::<1>(usize::MAX), None);
        assert_eq!((bytes.first::<2>(), bytes.first::<65>()), (Some([0, 1]), None));
        assert_eq!(bytes.to_vec(50), all[50..]);
        assert_eq!(bytes.to_vec(99), [99]);
        assert!(bytes.to_vec(100).is_empty() && bytes.to_vec(1000).is_empty());
        let mut small = [0; 3];
        assert_eq!(bytes.copy_to(63, &mut small), 3);
        assert_eq!(small, [63, 64, 65]);
    }

    #[test]
    fn every_part_of_a_message_of_any_length() {
        let all: Vec<u8> = (0..130).collect();
        for message in (0..=all.len()).map(|length| &all[..length]) {
            let bytes = Bytes::from_slice(message);
            assert_eq!((bytes.len(), bytes.is_empty()), (message.len(), message.is_empty()));
            for offset in [0, 1, 31, 63, 64, 65, 100, 129, 130, 131, usize::MAX] {
                let rest = message.get(offset..).unwrap_or_default();
                assert_eq!(bytes.to_vec(offset), rest);
                for room in [0, 1, 2, 40, 200] {
                    let mut out = vec![0xff; room];
                    let copied = bytes.copy_to(offset, &mut out);
                    assert_eq!(copied, room.min(rest.len()));
                    assert_eq!(out[..copied], rest[..copied]);
                    assert!(out[copied..].iter().all(|byte| *byte == 0xff));
                }
                let eight = rest.first_chunk();
                assert_eq!(bytes.array::<8>(offset).as_ref(), eight);
            }
        }
    }

    #[test]
    fn numbers_are_little_endian() {
        let bytes: Vec<u8> = (1..=10).collect();
        assert_eq!(array_at(&bytes, 8), [9, 10]);
        assert_eq!(u32_at(&bytes, 1), 0x0504_0302);
        assert_eq!(u64_at(&bytes, 2), 0x0a09_0807_0605_0403);
    }
}
