//! The memory into which messages arrive, before they are copied to where the NIC says.

use std::io;
use std::ptr::NonNull;

use tagmatch_os::memory::Mapping;
use tagmatch_rdma_core_sys::{self as sys, Verbs};

use crate::error::made;

/// Registered memory in parts of equal size: `count` for messages, then `fins` for FINs.
pub(crate) struct Bounce {
    verbs: &'static Verbs,
    mr: NonNull<sys::ibv_mr>,
    memory: Mapping,
    part: usize,
    fins_at: usize,
}

/// Bytes between the places of two FINs.
const FIN_STEP: usize = 64;

// SAFETY: the registration belongs to no thread; the device writes and reads only parts that it was
// given.
unsafe impl Send for Bounce {}

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
        let fins_at = part * count as usize;
        let memory = Mapping::private(fins_at + FIN_STEP * fins as usize)?;
        let access = sys::IBV_ACCESS_LOCAL_WRITE.cast_signed();
        // SAFETY: the memory is ours, and stays mapped longer than it is registered.
        let mr = unsafe { (verbs.ibv_reg_mr)(pd, memory.start().cast(), memory.length(), access) };
        Ok(Bounce { verbs, mr: made(mr)?, memory, part, fins_at })
    }

    fn segment(&self, offset: usize, length: usize) -> sys::ibv_sge {
        debug_assert!(offset + length <= self.memory.length());
        let length = u32::try_from(length).unwrap_or(0);
        // SAFETY: the registration is alive.
        let lkey = unsafe { self.mr.as_ref() }.lkey;
        sys::ibv_sge { addr: self.memory.start().addr() as u64 + offset as u64, length, lkey }
    }

    /// The scatter element of a place for a message.
    pub(crate) fn message_segment(&self, index: u32) -> sys::ibv_sge {
        self.segment(self.part * index as usize, self.part)
    }

    /// The bytes in a place for a message; empty if there is no such place.
    ///
    /// # Safety
    /// The device has given the place back.
    pub(crate) unsafe fn message(&self, index: u32) -> &[u8] {
        let offset = self.part * index as usize;
        if offset >= self.fins_at {
            return &[];
        }
        // SAFETY: a part of our memory, which nobody writes now.
        unsafe { std::slice::from_raw_parts(self.memory.start().add(offset), self.part) }
    }

    /// Writes a FIN into its place, and returns the scatter element of the FIN.
    pub(crate) fn write_fin(&mut self, index: u32, bytes: &[u8]) -> sys::ibv_sge {
        let offset = self.fins_at + FIN_STEP * index as usize;
        assert!(offset + FIN_STEP <= self.memory.length() && bytes.len() <= FIN_STEP);
        // SAFETY: a part of our memory whose last FIN has been sent.
        unsafe {
            let place = self.memory.start().add(offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
        }
        self.segment(offset, bytes.len())
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        // SAFETY: made in `new`; the queues that used it are gone.
        unsafe { (self.verbs.ibv_dereg_mr)(self.mr.as_ptr()) };
    }
}
