//! Registered memory for users' buffers, and the regions through which the device accesses buffers.
//!
//! Registering memory costs system calls and locks pages, so it is worth keeping. A cache of
//! registrations of the user's memory would have to learn when that memory is freed or mapped anew,
//! and nothing in Rust reports that. So it is the other way round: a user that wants registered
//! memory gets it from the device ([`Pool::allocate`]), as an ordinary [`Buffer`], and it returns
//! to the device when the buffer is dropped. Or the user registers memory of its own ([`register`])
//! and promises to keep it. Any other buffer is registered for one operation only.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tagmatch_device::buffer::LentMemory;
use tagmatch_device::{Buffer, RawMemory, Registered};
use tagmatch_os::memory::{Mapping, page_bytes};
use tagmatch_rdma_core_sys as sys;

use super::object::{Mr, Pd};

/// The accesses to memory that stays registered from one operation to the next.
const KEPT_ACCESS: sys::ibv_access_flags =
    sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_REMOTE_READ | OF_PAYLOADS;
/// The bytes of a payload may reach memory in any order, where device and machine can do that:
/// nothing looks at them before the completion, which is written after them. On some machines this
/// doubles the bandwidth of long messages. The buffers of short messages are registered without it.
const OF_PAYLOADS: sys::ibv_access_flags = sys::IBV_ACCESS_RELAXED_ORDERING;

/// A piece of registered memory. Its length is a power of two, and a page at least: what it takes
/// of the machine, and of the memory that the process may lock.
struct Piece {
    // Drop order: the region is unregistered before the memory is freed.
    mr: Mr,
    memory: Mapping,
}

/// Pieces that no buffer uses, by their length.
#[derive(Default)]
struct Free {
    by_length: BTreeMap<usize, Vec<Piece>>,
    bytes: u64,
    /// The most bytes that are kept; none once the device is dropped.
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

/// Bytes of the piece for a buffer of so many, on a machine with pages of `page` bytes; `None` if
/// there is no such number.
fn piece_bytes(length: usize, page: usize) -> Option<usize> {
    length.max(page).checked_next_power_of_two()
}

/// The pool of registered memory for buffers.
pub(super) struct Pool {
    pd: Arc<Pd>,
    free: Arc<Mutex<Free>>,
}

impl Pool {
    /// Creates a pool that keeps at most `idle_max` unused bytes.
    pub(super) fn new(pd: Arc<Pd>, idle_max: u64) -> Self {
        let free = Free { bytes_max: idle_max, ..Free::default() };
        Pool { pd, free: Arc::new(Mutex::new(free)) }
    }

    /// Returns a buffer of registered memory.
    ///
    /// # Errors
    /// The memory can't be allocated or registered.
    pub(super) fn allocate(&self, length: usize) -> io::Result<Buffer> {
        let rounded = piece_bytes(length, page_bytes()).ok_or(io::ErrorKind::OutOfMemory)?;
        let kept = self.free.lock().unwrap_or_else(PoisonError::into_inner).take(rounded);
        let piece = match kept {
            Some(piece) => piece,
            None => self.register(rounded)?,
        };
        let free = Arc::clone(&self.free);
        let is_retired = AtomicBool::new(false);
        Ok(Buffer::lent(Box::new(Lent { piece: Some(piece), length, free, is_retired })))
    }

    fn register(&self, length: usize) -> io::Result<Piece> {
        let memory = Mapping::private(length)?;
        // SAFETY: the memory is freed after the region. The device writes it only for an operation
        // that owns the buffer meanwhile; peers only read it.
        let mr = unsafe { Mr::new(self.pd.clone(), memory.start(), length, KEPT_ACCESS) }?;
        Ok(Piece { mr, memory })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        *free = Free::default();
    }
}

/// A piece that a buffer uses.
struct Lent {
    /// `Some` until the value is dropped.
    piece: Option<Piece>,
    /// Bytes of the piece that the buffer shows.
    length: usize,
    free: Arc<Mutex<Free>>,
    /// The piece is freed when the buffer is dropped, and no buffer uses it again.
    is_retired: AtomicBool,
}

// SAFETY: the mapping has at least `length` bytes, doesn't move, and belongs to this value alone,
// since pieces are moved out of the list of free ones.
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
        if let Some(piece) = self.piece.take()
            && !*self.is_retired.get_mut()
        {
            self.free.lock().unwrap_or_else(PoisonError::into_inner).put(piece);
        }
    }
}

/// The registration of memory of the caller's own.
struct Registration(Mr);

/// Registers memory of the caller's own for all operations on its parts.
///
/// # Errors
/// The error of ibv_reg_mr(3).
pub(super) fn register(pd: &Arc<Pd>, memory: RawMemory) -> io::Result<Registered> {
    // SAFETY: the memory stays allocated until the last part is gone, by the promise of
    // `RawMemory::new`, and the registration with it. The device writes it only for an operation
    // that owns the part meanwhile; peers only read it.
    let mr = unsafe { Mr::new(pd.clone(), memory.start().as_ptr(), memory.len(), KEPT_ACCESS) }?;
    Ok(memory.registered(Box::new(Registration(mr))))
}

/// The region through which the device accesses a buffer.
pub(super) struct Region {
    pub(super) lkey: u32,
    pub(super) rkey: u32,
    /// A registration of its own, which ends with the operation. `None` if the buffer lies in
    /// memory that stays registered.
    _own: Option<Mr>,
}

impl Region {
    /// Registers `length` bytes from the buffer's start, unless the buffer lies in memory that is
    /// registered with this domain already: a pool's, or the caller's own.
    ///
    /// # Safety
    /// As for [`Mr::new`]. The buffer must be kept until the region is dropped.
    pub(super) unsafe fn new(
        pd: &Arc<Pd>,
        buffer: &Buffer,
        length: usize,
        access: sys::ibv_access_flags,
    ) -> io::Result<Self> {
        if let Some(mr) = registration(buffer).filter(|mr| mr.is_of(pd)) {
            return Ok(Region::kept(mr.lkey(), mr.rkey()));
        }
        if access & sys::IBV_ACCESS_LOCAL_WRITE != 0 && !buffer.is_writable() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: the caller's promise.
        let mr = unsafe {
            Mr::new(pd.clone(), buffer.as_ptr().cast_mut(), length, access | OF_PAYLOADS)
        }?;
        Ok(Region { lkey: mr.lkey(), rkey: mr.rkey(), _own: Some(mr) })
    }

    /// A region of memory that stays registered.
    pub(super) fn kept(lkey: u32, rkey: u32) -> Self {
        Region { lkey, rkey, _own: None }
    }
}

fn lent(buffer: &Buffer) -> Option<&Lent> {
    buffer.lent_memory()?.downcast_ref()
}

/// The registration that a buffer's memory has already.
fn registration(buffer: &Buffer) -> Option<&Mr> {
    let of_caller = || Some(&buffer.lent_memory()?.downcast_ref::<Registration>()?.0);
    let of_pool = || Some(&lent(buffer)?.piece.as_ref()?.mr);
    of_pool().or_else(of_caller)
}

/// Whether a buffer's memory is registered with this domain already, and stays so.
pub(super) fn is_kept(pd: &Arc<Pd>, buffer: &Buffer) -> bool {
    registration(buffer).is_some_and(|mr| mr.is_of(pd))
}

/// Makes memory of a pool leave the pool: it is unregistered and freed when its buffer is dropped.
/// Returns whether the buffer is memory of a pool.
pub(super) fn retire(buffer: &Buffer) -> bool {
    let lent = lent(buffer);
    if let Some(lent) = lent {
        lent.is_retired.store(true, Ordering::Relaxed);
    }
    lent.is_some()
}

#[cfg(test)]
mod tests {
    use super::piece_bytes;

    #[test]
    fn a_piece_is_a_power_of_two_and_takes_whole_pages_of_any_size() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            for length in [0, 1, 4096, 4097, page - 1, page, page + 1, 1 << 20, (1 << 20) + 1] {
                let bytes = piece_bytes(length, page).unwrap();
                assert!(bytes >= length && bytes.is_power_of_two(), "{length}: {bytes}");
                assert!(bytes.is_multiple_of(page) && bytes < 2 * length.max(page), "{length}");
            }
            assert_eq!(piece_bytes(usize::MAX, page), None);
        }
    }
}
