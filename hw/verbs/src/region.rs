//! Registered memory that users hold, and the regions of buffers that the device is to reach.
//!
//! Registering memory costs system calls and locks pages, so it is worth keeping. A cache beside the user's
//! memory would have to learn when that is freed or mapped anew, which nothing in Rust tells. So it is the
//! other way round: who wants registered memory gets it from the device ([`Pool::allocate`]), as a [`Buffer`]
//! like any other, and it goes back to the device when the buffer is dropped. What stands for an operation in
//! memory of the user's own is registered for that operation alone.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use tagmatch_device::Buffer;
use tagmatch_device::buffer::LentMemory;
use tagmatch_os::memory::Mapping;
use tagmatch_rdma_core_sys as sys;

use super::object::{Mr, Pd};

/// The least that is registered: a page.
const PIECE_MIN: usize = 4096;

/// Memory and its registration, by the power of two that is its length.
struct Piece {
    // Before the memory: it is unregistered first.
    mr: Mr,
    memory: Mapping,
}

/// Pieces that nobody has.
#[derive(Default)]
struct Free {
    by_length: BTreeMap<usize, Vec<Piece>>,
    bytes: u64,
    /// The most that is kept; none once the device is gone.
    bytes_max: u64,
}

impl Free {
    fn take(&mut self, length: usize) -> Option<Piece> {
        let piece = self.by_length.get_mut(&length)?.pop()?;
        self.bytes -= length as u64;
        Some(piece)
    }

    fn put(&mut self, piece: Piece) {
        let length = piece.memory.length();
        if self.bytes + length as u64 <= self.bytes_max {
            self.bytes += length as u64;
            self.by_length.entry(length).or_default().push(piece);
        }
    }
}

/// Registered memory for buffers.
pub(super) struct Pool {
    pd: Arc<Pd>,
    free: Arc<Mutex<Free>>,
}

impl Pool {
    /// Keeps at most `idle_max` bytes that nobody has.
    pub(super) fn new(pd: Arc<Pd>, idle_max: u64) -> Self {
        let free = Free { bytes_max: idle_max, ..Free::default() };
        Pool { pd, free: Arc::new(Mutex::new(free)) }
    }

    /// A buffer of registered memory.
    ///
    /// # Errors
    /// The memory can't be had, or not be registered.
    pub(super) fn allocate(&self, length: usize) -> io::Result<Buffer> {
        let rounded = length.max(PIECE_MIN).checked_next_power_of_two();
        let rounded = rounded.ok_or(io::ErrorKind::OutOfMemory)?;
        let kept = self.free.lock().unwrap_or_else(PoisonError::into_inner).take(rounded);
        let piece = match kept {
            Some(piece) => piece,
            None => self.register(rounded)?,
        };
        let free = Arc::clone(&self.free);
        Ok(Buffer::lent(Box::new(Lent { piece: Some(piece), length, free })))
    }

    fn register(&self, length: usize) -> io::Result<Piece> {
        let memory = Mapping::private(length)?;
        let access = sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_REMOTE_READ;
        // SAFETY: the memory is dropped after the region. The device writes it for whoever holds the buffer
        // that it is part of, which an operation does meanwhile; peers only read.
        let mr = unsafe { Mr::new(self.pd.clone(), memory.start(), length, access) }?;
        Ok(Piece { mr, memory })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        *free = Free::default();
    }
}

/// A piece that somebody has.
struct Lent {
    /// There until it is dropped.
    piece: Option<Piece>,
    /// Bytes of it that the buffer shows.
    length: usize,
    free: Arc<Mutex<Free>>,
}

// SAFETY: the mapping is as long, stays where it is and is this value's alone: pieces are moved out of the
// list of free ones.
unsafe impl LentMemory for Lent {
    fn memory(&self) -> (NonNull<u8>, usize) {
        let start = self.piece.as_ref().and_then(|piece| NonNull::new(piece.memory.start()));
        start.map_or((NonNull::dangling(), 0), |start| (start, self.length))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(piece) = self.piece.take() {
            self.free.lock().unwrap_or_else(PoisonError::into_inner).put(piece);
        }
    }
}

/// How the device reaches a buffer.
pub(super) enum Region {
    /// Through a registration of its own, which ends with the operation.
    Own(Mr),
    /// Through that of its memory.
    Pooled { lkey: u32, rkey: u32 },
}

impl Region {
    /// Registers `length` bytes from the buffer's start, unless its memory is registered with this domain.
    ///
    /// # Safety
    /// As for [`Mr::new`]; and the buffer is kept until the region is gone.
    pub(super) unsafe fn new(
        pd: &Arc<Pd>,
        buffer: &mut Buffer,
        length: usize,
        access: sys::ibv_access_flags,
    ) -> io::Result<Self> {
        let lent = buffer.lent_memory().and_then(|any| any.downcast_ref::<Lent>());
        if let Some(Piece { mr, .. }) = lent.and_then(|lent| lent.piece.as_ref())
            && mr.is_of(pd)
        {
            return Ok(Region::Pooled { lkey: mr.lkey(), rkey: mr.rkey() });
        }
        let start = buffer.as_mut_slice().map(<[u8]>::as_mut_ptr);
        let start = match start {
            Some(start) => start,
            None if access & sys::IBV_ACCESS_LOCAL_WRITE == 0 => buffer.as_ptr().cast_mut(),
            None => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        // SAFETY: the caller's promise.
        unsafe { Mr::new(pd.clone(), start, length, access) }.map(Region::Own)
    }

    pub(super) fn lkey(&self) -> u32 {
        match self {
            Region::Own(mr) => mr.lkey(),
            Region::Pooled { lkey, .. } => *lkey,
        }
    }

    pub(super) fn rkey(&self) -> u32 {
        match self {
            Region::Own(mr) => mr.rkey(),
            Region::Pooled { rkey, .. } => *rkey,
        }
    }
}
