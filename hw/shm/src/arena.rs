//! The memory of this worker's device: buffers that peers read without a system call, and regions
//! that they write and change.
//!
//! It is one memfd. Each peer gets its descriptor with the hello and maps it: for reading alone, if
//! peers do nothing with regions by themselves. They write nothing but regions that grant it. The
//! kernel gives pages to the parts that were used, and keeps them until the memfd is gone with the
//! worker, the last buffer and the last peer's mapping.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use tagmatch_device::Buffer;
use tagmatch_device::buffer::LentMemory;
use tagmatch_os::memory::{Mapping, MemoryUse, SealedMemory};
use tagmatch_os::process::{self, Pid};

use super::doorbell::{self, DoorbellBit};
use super::free_ranges::FreeRanges;
use super::generation;
use super::region_names::{self, NamedRecord};
use super::sync::AtomicU64;

/// Where the table of regions with names begins: behind the generation of a connection for each bit
/// of the owner's doorbell.
pub(crate) const NAMES_AT: usize = doorbell::BITS * size_of::<u64>();
/// Bytes before the buffers.
pub const HEADER_BYTES: usize = NAMES_AT + region_names::TABLE_BYTES;
/// Buffers begin and end at multiples of this: with a page where pages have 4 KiB. Where they are
/// larger, short buffers share one, which peers may read as a whole anyway.
const BUFFER_STEP_BYTES: usize = 4096;

/// The memory of this worker's device. Clones share it.
#[derive(Clone)]
pub(crate) struct Arena(Arc<ArenaMemory>);

struct ArenaMemory {
    memory: SealedMemory,
    mapping: Mapping,
    start: NonNull<u8>,
    free: Mutex<FreeRanges>,
    /// A forked child has the same memory, and must not give any of it back.
    owner: Pid,
}

// SAFETY: the mapping belongs to the process, not to a thread. `start` points to it, and is used
// for the words of the header, which are atomics, and for the addresses of buffers.
unsafe impl Send for ArenaMemory {}
// SAFETY: as above.
unsafe impl Sync for ArenaMemory {}

impl Drop for ArenaMemory {
    /// In a build with debug assertions: panics unless all buffers have come back.
    fn drop(&mut self) {
        if cfg!(debug_assertions) && self.owner == Pid::own() && !std::thread::panicking() {
            let free = self.free.get_mut().unwrap_or_else(PoisonError::into_inner);
            let all = HEADER_BYTES..self.mapping.length();
            assert!(free.is_all(all), "buffers of a worker's memory were not given back");
        }
    }
}

impl Arena {
    /// Most bytes.
    pub(crate) const BYTES_MAX: u64 = 16 << 30;
    /// Fewest bytes.
    pub(crate) const BYTES_MIN: u64 = 1 << 20;

    /// Memory of at least so many bytes, or of as many as a file of this process may have
    /// (`RLIMIT_FSIZE`), if these are enough. None of them takes a page yet.
    pub(crate) fn new(bytes: u64, by_peers: MemoryUse) -> io::Result<Self> {
        let limit = process::file_size_limit().filter(|limit| *limit >= Self::BYTES_MIN);
        let bytes = bytes.next_multiple_of(BUFFER_STEP_BYTES as u64);
        let bytes = bytes.min(limit.unwrap_or(u64::MAX));
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let length = length / BUFFER_STEP_BYTES * BUFFER_STEP_BYTES;
        let (memory, mapping) = SealedMemory::for_peers(c"tagmatch-memory", length, by_peers)?;
        let start = NonNull::new(mapping.start()).ok_or(io::ErrorKind::OutOfMemory)?;
        let free = Mutex::new(FreeRanges::new(HEADER_BYTES..length));
        Ok(Arena(Arc::new(ArenaMemory { memory, mapping, start, free, owner: Pid::own() })))
    }

    /// Address of the first byte in this process.
    pub(crate) fn address(&self) -> u64 {
        self.0.start.as_ptr().expose_provenance() as u64
    }

    pub(crate) fn length(&self) -> usize {
        self.0.mapping.length()
    }

    /// A buffer of `length` bytes, which may contain bytes of an earlier buffer; `None` if so many
    /// are not free in one run.
    pub(crate) fn allocate(&self, length: usize) -> Option<Buffer> {
        let taken = length.max(1).checked_next_multiple_of(BUFFER_STEP_BYTES)?;
        let mut free = self.0.free.lock().unwrap_or_else(PoisonError::into_inner);
        let at = free.take(taken)?;
        drop(free);
        let arena = Arc::clone(&self.0);
        Some(Buffer::lent(Box::new(ArenaBuffer { arena, at, taken, length })))
    }

    /// The generation of the connection for which peers set this bit of the doorbell.
    pub(crate) fn generation(&self, bit: DoorbellBit) -> u64 {
        self.word(bit).load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Tells the peer of a connection that buffers are let go from now on.
    pub(crate) fn end_generation(&self, bit: DoorbellBit) {
        generation::end(self.word(bit));
    }

    /// A line of the table of regions with names.
    ///
    /// # Panics
    /// If the table has no such line.
    pub(crate) fn named(&self, line: usize) -> &NamedRecord {
        assert!(line < region_names::LINES);
        // SAFETY: the table is in the header, behind the generations; no buffer is there. A line
        // consists of atomics, and `NAMES_AT` is a multiple of their size. The mapping is aligned
        // to a page and lives as long as `self`.
        unsafe { self.0.start.add(NAMES_AT).cast::<NamedRecord>().add(line).as_ref() }
    }

    fn word(&self, bit: DoorbellBit) -> &AtomicU64 {
        // SAFETY: the index is below `doorbell::BITS`, so the word is in the header; no buffer is
        // there. The mapping is aligned to a page and lives as long as `self`.
        unsafe { self.0.start.cast::<AtomicU64>().add(bit.index()).as_ref() }
    }
}

impl AsFd for Arena {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.memory.as_fd()
    }
}

/// Whether a buffer is memory of a device.
pub(crate) fn is_of_device(buffer: &Buffer) -> bool {
    buffer.lent_memory().is_some_and(<dyn Any>::is::<ArenaBuffer>)
}

/// A part of the memory that a buffer uses.
struct ArenaBuffer {
    arena: Arc<ArenaMemory>,
    at: usize,
    /// Bytes that belong to it.
    taken: usize,
    /// Bytes that the buffer shows.
    length: usize,
}

// SAFETY: `taken` bytes from `at` on are inside the mapping, which lives as long as `arena`, and
// they belong to this value alone until it puts them back. Peers only read them, but while they are
// a region that grants more. They were zero, or were written by earlier owners.
unsafe impl LentMemory for ArenaBuffer {
    fn memory(&self) -> (NonNull<u8>, usize) {
        // SAFETY: inside the mapping.
        (unsafe { self.arena.start.add(self.at) }, self.length)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for ArenaBuffer {
    fn drop(&mut self) {
        if self.arena.owner == Pid::own() {
            let mut free = self.arena.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.put(self.at, self.taken);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn buffers_have_bytes_of_their_own_and_come_back() {
        let arena = Arena::new(Arena::BYTES_MIN, MemoryUse::Read).unwrap();
        let room = arena.length() - HEADER_BYTES;
        let mut first = arena.allocate(5000).unwrap();
        let mut rest = arena.allocate(room - 8192).unwrap();
        assert!(first.iter().chain(&rest[..]).all(|byte| *byte == 0));
        first.as_mut_slice().unwrap().fill(1);
        rest.as_mut_slice().unwrap().fill(2);
        assert!(first[..] == [1; 5000] && rest.iter().all(|byte| *byte == 2));
        assert_eq!((first.len(), rest.len()), (5000, room - 8192));
        assert!(arena.allocate(1).is_none() && arena.allocate(usize::MAX).is_none());
        std::thread::spawn(|| drop(first)).join().unwrap();
        assert_eq!(arena.allocate(8192).unwrap()[4999..5001], [1, 0]);
        // A buffer keeps the memory.
        drop(arena);
        assert!(rest.iter().all(|byte| *byte == 2));
    }

    #[test]
    fn each_connection_has_a_generation() {
        let arena = Arena::new(Arena::BYTES_MIN, MemoryUse::Read).unwrap();
        let bits = [0, 1, 4095].map(|number| DoorbellBit::new(number).unwrap());
        arena.end_generation(bits[2]);
        arena.end_generation(bits[2]);
        assert_eq!(bits.map(|bit| arena.generation(bit)), [0, 0, 2]);
        assert!(arena.allocate(4096).unwrap().iter().all(|byte| *byte == 0));
    }
}
