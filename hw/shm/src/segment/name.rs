//! How a member finds the memory that another member has made: by the maker's process, the number
//! of its descriptor there, and a token that is in the memory.
//!
//! A process number may mean another process in another pid namespace or on another machine. The
//! token, random bytes that only the maker and the receivers of the name know, tells whether the
//! memory is the right one.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering::Relaxed;

use tagmatch_os::memory::SealedMemory;
use tagmatch_os::process::Pid;
use tagmatch_os::random;

use super::memory::TOKEN_BYTES;
use crate::sync::AtomicU64;

/// The length of a name in bytes.
pub const NAME_BYTES: usize = 8 + TOKEN_BYTES;

/// The name of a segment. While this is kept, other members can open the segment.
pub struct SegmentName {
    _memory: SealedMemory,
    bytes: [u8; NAME_BYTES],
}

impl SegmentName {
    pub(super) fn of(memory: SealedMemory, token: [&AtomicU64; 2]) -> io::Result<Self> {
        let [pid, number] = [Pid::own().0, memory.as_fd().as_raw_fd()].map(i32::to_ne_bytes);
        let own: [u8; TOKEN_BYTES] = random()?;
        for (word, bytes) in token.iter().zip(own.as_chunks().0) {
            word.store(u64::from_ne_bytes(*bytes), Relaxed);
        }
        let mut bytes = [0; NAME_BYTES];
        let parts = pid.iter().chain(&number).chain(&own);
        bytes.iter_mut().zip(parts).for_each(|(byte, part)| *byte = *part);
        Ok(SegmentName { _memory: memory, bytes })
    }

    /// The bytes for the other members.
    pub fn as_bytes(&self) -> &[u8; NAME_BYTES] {
        &self.bytes
    }
}

/// Opens the memory that a name tells of.
pub(super) fn open(name: &[u8], length: usize) -> io::Result<SealedMemory> {
    let (numbers, token) = name.split_at_checked(8).ok_or(io::ErrorKind::InvalidData)?;
    let [pid, number] =
        [&numbers[..4], &numbers[4..]].map(|bytes| bytes.try_into().map_or(-1, i32::from_ne_bytes));
    if pid <= 0 || number < 0 || token.len() != TOKEN_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    SealedMemory::of_process(Pid(pid), number, length)
}

/// Checks that the memory has the token of the name.
pub(super) fn check(name: &[u8], token: [&AtomicU64; 2]) -> io::Result<()> {
    let is_equal = name[8..]
        .as_chunks()
        .0
        .iter()
        .zip(token)
        .all(|(bytes, word)| u64::from_ne_bytes(*bytes) == word.load(Relaxed));
    if is_equal { Ok(()) } else { Err(io::Error::other("another memory has this name")) }
}

impl std::fmt::Debug for SegmentName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SegmentName")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Segment;
    use super::*;

    #[test]
    fn a_name_opens_its_own_memory_alone() {
        let ((_one, first), (_two, second)) =
            (Segment::create(2, 0).unwrap(), Segment::create(2, 0).unwrap());
        assert!(Segment::open(first.as_bytes(), 2, 1).is_ok());
        // A name of a segment that is gone, and whose descriptor is another segment now.
        let mixed = [&first.as_bytes()[..8], &second.as_bytes()[8..]].concat();
        assert!(Segment::open(&mixed, 2, 1).is_err());
        for at in 8..NAME_BYTES {
            let mut wrong = *first.as_bytes();
            wrong[at] ^= 1;
            assert!(Segment::open(&wrong, 2, 1).is_err(), "byte {at}");
        }
        assert!(Segment::open(first.as_bytes(), 3, 1).is_err(), "it is for two members");
        assert!(Segment::open(&first.as_bytes()[..NAME_BYTES - 1], 2, 1).is_err());
        assert!(Segment::open(b"short", 2, 1).is_err());
    }
}
