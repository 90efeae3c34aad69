//! Receive queues: of one queue pair, and shared ones.

use super::receive::Receive;
use super::tags::TagQueue;
use crate::memory::{Memory, MemoryError};
use crate::wqe::receive_segments;

/// Bytes of the longest receive: `max_rq_desc_sz`.
pub(crate) const RECEIVE_MAX: usize = 512;

/// Reads a receive. In a queue that the program has unmapped it has no room.
fn read_receive(memory: &impl Memory, at: u64, bytes: &mut [u8]) -> Result<(), MemoryError> {
    match memory.read(at, bytes) {
        Err(MemoryError::Gone) => Err(MemoryError::Gone),
        Ok(()) | Err(MemoryError::Fault) => Ok(()),
    }
}

/// The receive queue of one queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Rq {
    at: u64,
    /// Receives: a power of two, or 0.
    size: u32,
    shift: u32,
    taken: u16,
    posted: u16,
}

impl Rq {
    pub(crate) fn new(at: u64, size: u32, shift: u32) -> Self {
        Rq { at, size, shift, taken: 0, posted: 0 }
    }

    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// The program's record: receives posted.
    pub(crate) fn hear(&mut self, posted: u32) {
        self.posted = (posted & 0xffff) as u16;
    }

    pub(crate) fn reset(&mut self) {
        (self.taken, self.posted) = (0, 0);
    }

    /// The number of receives that were posted and not taken.
    pub(crate) fn available(&self) -> u32 {
        u32::from(self.posted.wrapping_sub(self.taken)).min(self.size)
    }

    /// Takes the next receive. An error: the process has ended.
    pub(crate) fn take(&mut self, memory: &impl Memory) -> Result<Option<Receive>, MemoryError> {
        if self.available() == 0 {
            return Ok(None);
        }
        let index = self.taken;
        let mut bytes = [0; RECEIVE_MAX];
        let bytes = &mut bytes[..1 << self.shift];
        let place = self.at + (u64::from(u32::from(index) & (self.size - 1)) << self.shift);
        read_receive(memory, place, bytes)?;
        self.taken = self.taken.wrapping_add(1);
        Ok(Some(Receive { index, segments: receive_segments(bytes) }))
    }

    /// The number of the next receive, which is flushed.
    pub(crate) fn flush(&mut self) -> Option<u16> {
        (self.available() > 0).then(|| {
            let index = self.taken;
            self.taken = self.taken.wrapping_add(1);
            index
        })
    }
}

/// Where a shared receive queue is, and of what size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SrqPlace {
    pub(crate) at: u64,
    pub(crate) record: u64,
    /// Receives: a power of two.
    pub(crate) size: u32,
    pub(crate) shift: u32,
}

/// A shared receive queue, with or without a list of tags.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) place: SrqPlace,
    pub(crate) pd: u32,
    pub(crate) context: i32,
    pub(crate) user_handle: u64,
    pub(crate) user_index: u32,
    pub(crate) segments_max: u32,
    /// Receives that the program has asked for, which it is told.
    pub(crate) max_wr: u32,
    /// An event comes once fewer receives are there; 0: none.
    pub(crate) limit: u32,
    pub(crate) tags: Option<Box<TagQueue>>,
    pub(crate) pages: u64,
    pub(crate) async_events: u32,
    /// An error of the queue: it gives no receives any more.
    pub(crate) is_broken: bool,
    pub(crate) cursor: SrqCursor,
}

/// How far the program and the device have come: the place of the next receive, and the numbers of
/// those that were taken and posted.
#[derive(Debug, Default)]
pub(crate) struct SrqCursor {
    next: u16,
    taken: u16,
    posted: u16,
}

impl Srq {
    /// The program's record: receives posted.
    pub(crate) fn hear(&mut self, posted: u32) {
        self.cursor.posted = (posted & 0xffff) as u16;
    }

    pub(crate) fn available(&self) -> u32 {
        if self.is_broken {
            return 0;
        }
        u32::from(self.cursor.posted.wrapping_sub(self.cursor.taken)).min(self.place.size)
    }

    /// Takes the next receive. Each names the place of the one after it. An error: the process has
    /// ended.
    pub(crate) fn take(&mut self, memory: &impl Memory) -> Result<Option<Receive>, MemoryError> {
        if self.available() == 0 {
            return Ok(None);
        }
        let SrqPlace { at, size, shift, .. } = self.place;
        let index = self.cursor.next;
        let mut bytes = [0; RECEIVE_MAX];
        let bytes = &mut bytes[..1 << shift];
        read_receive(memory, at + (u64::from(index) << shift), bytes)?;
        let next = u16::from_be_bytes([bytes[2], bytes[3]]);
        self.cursor.next = next & (size - 1) as u16;
        self.cursor.taken = self.cursor.taken.wrapping_add(1);
        let mut segments = receive_segments(&bytes[16..]);
        segments.truncate(self.segments_max as usize);
        Ok(Some(Receive { index, segments }))
    }

    /// Whether the program is to be told that few receives are left; once.
    pub(crate) fn is_below_limit(&mut self) -> bool {
        let is_below = self.limit > 0 && self.available() < self.limit;
        if is_below {
            self.limit = 0;
        }
        is_below
    }
}
