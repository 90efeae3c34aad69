//! The memory into which messages arrive, before they are copied to where the NIC says.

use std::io;
use std::ptr::NonNull;

use tagmatch_os::memory::Mapping;
use tagmatch_rdma_core_sys::{self as sys, Verbs};

use crate::error::made;

/// Registered memory in parts of equal size for messages, and places for FINs. Memory for messages
/// is allocated and registered in pieces, when a part is first used: most queues use few parts at a
/// time, and registered memory is locked. The first piece is registered at once, so that a queue
/// which can get no memory fails when it is made.
pub(crate) struct Bounce {
    fins: Registered,
    /// By number; `None` until one of its parts is used.
    pieces: Vec<Option<Registered>>,
    parts_per_piece: usize,
    part: usize,
    verbs: &'static Verbs,
    pd: *mut sys::ibv_pd,
}

/// Memory with its registration.
struct Registered {
    verbs: &'static Verbs,
    mr: NonNull<sys::ibv_mr>,
    memory: Mapping,
}

/// Bytes between the places of two FINs.
const FIN_STEP: usize = 64;
/// Bytes of a piece, unless a single message is longer.
const PIECE: usize = 1 << 20;

// SAFETY: neither registrations nor the protection domain belong to a thread; the device writes and
// reads only parts that it was given.
unsafe impl Send for Bounce {}

impl Registered {
    /// # Safety
    /// The protection domain is alive, and outlives what is made.
    unsafe fn new(verbs: &'static Verbs, pd: *mut sys::ibv_pd, bytes: usize) -> io::Result<Self> {
        let memory = Mapping::private(bytes)?;
        let access = sys::IBV_ACCESS_LOCAL_WRITE.cast_signed();
        // SAFETY: the memory is ours, and stays mapped longer than it is registered.
        let mr = unsafe { (verbs.ibv_reg_mr)(pd, memory.start().cast(), memory.length(), access) };
        Ok(Registered { verbs, mr: made(mr)?, memory })
    }

    fn segment(&self, offset: usize, length: usize) -> sys::ibv_sge {
        debug_assert!(offset + length <= self.memory.length());
        let length = u32::try_from(length).unwrap_or(0);
        // SAFETY: the registration is alive.
        let lkey = unsafe { self.mr.as_ref() }.lkey;
        sys::ibv_sge { addr: self.memory.start().addr() as u64 + offset as u64, length, lkey }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: made in `new`; the queues that used it are gone.
        unsafe { (self.verbs.ibv_dereg_mr)(self.mr.as_ptr()) };
    }
}

impl Bounce {
    /// # Safety
    /// The protection domain is alive, and outlives what is made.
    pub(crate) unsafe fn new(
        verbs: &'static Verbs,
        pd: *mut sys::ibv_pd,
        (count, bytes): (u32, u32),
        fins: u32,
    ) -> io::Result<Self> {
        let part = (bytes as usize).next_multiple_of(64);
        let parts_per_piece = (PIECE / part).min(count as usize).max(1);
        let mut pieces = Vec::new();
        pieces.resize_with((count as usize).div_ceil(parts_per_piece), || None);
        // SAFETY: the caller keeps the promise of this function's Safety section.
        let fins = unsafe { Registered::new(verbs, pd, FIN_STEP * fins as usize) }?;
        let mut bounce = Bounce { fins, pieces, parts_per_piece, part, verbs, pd };
        bounce.piece(0)?;
        Ok(bounce)
    }

    /// The number of a part's piece, and where the part begins in it.
    fn place(&self, index: u32) -> (usize, usize) {
        let index = index as usize;
        (index / self.parts_per_piece, index % self.parts_per_piece * self.part)
    }

    /// The scatter element of a place for a message; `None` if its memory can't be allocated or
    /// registered, or if there is no such place.
    pub(crate) fn message_segment(&mut self, index: u32) -> Option<sys::ibv_sge> {
        let (number, offset) = self.place(index);
        let part = self.part;
        Some(self.piece(number).ok()?.segment(offset, part))
    }

    /// The piece of this number, which is allocated and registered unless it was before.
    fn piece(&mut self, number: usize) -> io::Result<&Registered> {
        let piece = self.pieces.get_mut(number).ok_or(io::ErrorKind::InvalidInput)?;
        match piece {
            Some(piece) => Ok(piece),
            piece => {
                let bytes = self.parts_per_piece * self.part;
                // SAFETY: the protection domain is alive, by the promise to `new`.
                Ok(piece.insert(unsafe { Registered::new(self.verbs, self.pd, bytes) }?))
            }
        }
    }

    /// The bytes in a place for a message; empty if the place was never used.
    ///
    /// # Safety
    /// The device has given the place back.
    pub(crate) unsafe fn message(&self, index: u32) -> &[u8] {
        let (number, offset) = self.place(index);
        let Some(Some(piece)) = self.pieces.get(number) else { return &[] };
        // SAFETY: a part of our memory, which nobody writes now.
        unsafe { std::slice::from_raw_parts(piece.memory.start().add(offset), self.part) }
    }

    /// Writes a FIN into its place, and returns the scatter element of the FIN.
    pub(crate) fn write_fin(&mut self, index: u32, bytes: &[u8]) -> sys::ibv_sge {
        let offset = FIN_STEP * index as usize;
        assert!(offset + FIN_STEP <= self.fins.memory.length() && bytes.len() <= FIN_STEP);
        // SAFETY: a part of our memory whose last FIN has been sent.
        unsafe {
            let place = self.fins.memory.start().add(offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
        }
        self.fins.segment(offset, bytes.len())
    }
}
