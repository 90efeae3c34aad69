//! Registered memory.

use std::ptr::null_mut;

use tagmatch_rdma_core_sys::{self as sys, Verbs};

/// Registered memory, of which both sides and the device read and write parts.
pub(crate) struct Memory {
    verbs: &'static Verbs,
    start: *mut u8,
    length: usize,
    mr: *mut sys::ibv_mr,
}

impl Memory {
    pub(crate) fn new(
        verbs: &'static Verbs,
        pd: *mut sys::ibv_pd,
        length: usize,
        access: u32,
    ) -> Self {
        // SAFETY: new memory; the domain is alive.
        unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let start = libc::mmap(null_mut(), length, prot, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            let mr = (verbs.ibv_reg_mr)(pd, start, length, access.cast_signed());
            assert!(!mr.is_null(), "{}", std::io::Error::last_os_error());
            Memory { verbs, start: start.cast(), length, mr }
        }
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.length);
        // SAFETY: within our memory.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.start.add(offset), bytes.len()) };
    }

    pub(crate) fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.length);
        let mut bytes = vec![0; length];
        // SAFETY: within our memory.
        unsafe { std::ptr::copy(self.start.add(offset), bytes.as_mut_ptr(), length) };
        bytes
    }

    pub(crate) fn address(&self) -> u64 {
        self.start.addr() as u64
    }

    pub(crate) fn sge(&self, offset: usize, length: usize) -> sys::ibv_sge {
        // SAFETY: alive.
        let lkey = unsafe { (*self.mr).lkey };
        sys::ibv_sge { addr: self.address() + offset as u64, length: length as u32, lkey }
    }

    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: alive.
        unsafe { (*self.mr).rkey }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: made in `new`.
        unsafe {
            assert_eq!((self.verbs.ibv_dereg_mr)(self.mr), 0);
            libc::munmap(self.start.cast(), self.length);
        }
    }
}
