//! The memory into which messages arrive, before they are copied to where the NIC says.

use std::io;
use std::ptr::{NonNull, null_mut};

use tagmatch_rdma_core_sys::{self as sys, Verbs};

use crate::error::made;

/// Registered memory in parts of equal size: `count` for messages, then `fins` for FINs.
pub(crate) struct Bounce {
    verbs: &'static Verbs,
    mr: NonNull<sys::ibv_mr>,
    memory: NonNull<u8>,
    length: usize,
    part: usize,
    fins_at: usize,
}

/// Bytes between the places of two FINs.
const FIN_STEP: usize = 64;

// SAFETY: memory and registration belong to no thread; the device writes and reads only parts that
// it was given.
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
        let length = fins_at + FIN_STEP * fins as usize;
        // SAFETY: new memory, unmapped below if it can't be registered, else when it is dropped.
        unsafe {
            let memory = libc::mmap(
                null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if memory == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let access = sys::IBV_ACCESS_LOCAL_WRITE.cast_signed();
            match made((verbs.ibv_reg_mr)(pd, memory, length, access)) {
                Ok(mr) => {
                    let memory = NonNull::new_unchecked(memory.cast());
                    Ok(Bounce { verbs, mr, memory, length, part, fins_at })
                }
                Err(error) => {
                    libc::munmap(memory, length);
                    Err(error)
                }
            }
        }
    }

    fn segment(&self, offset: usize, length: usize) -> sys::ibv_sge {
        debug_assert!(offset + length <= self.length);
        let length = u32::try_from(length).unwrap_or(0);
        // SAFETY: the registration is alive.
        let lkey = unsafe { self.mr.as_ref() }.lkey;
        sys::ibv_sge { addr: self.memory.addr().get() as u64 + offset as u64, length, lkey }
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
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(offset), self.part) }
    }

    /// Writes a FIN into its place, and returns the scatter element of the FIN.
    pub(crate) fn write_fin(&mut self, index: u32, bytes: &[u8]) -> sys::ibv_sge {
        let offset = self.fins_at + FIN_STEP * index as usize;
        assert!(offset + FIN_STEP <= self.length && bytes.len() <= FIN_STEP);
        // SAFETY: a part of our memory whose last FIN has been sent.
        unsafe {
            let place = self.memory.as_ptr().add(offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
        }
        self.segment(offset, bytes.len())
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        // SAFETY: made in `new`; the queues that used it are gone.
        unsafe {
            (self.verbs.ibv_dereg_mr)(self.mr.as_ptr());
            libc::munmap(self.memory.as_ptr().cast(), self.length);
        }
    }
}
