//! The registers that a program writes to when it has posted something: UAR pages.
//!
//! The library maps them from the descriptor of the device. The device gives it a file in memory in
//! place of that descriptor, so that it sees what the program writes without a system call. A
//! register only tells that there is something to look for: what it is stands in records in the
//! program's memory, which the library writes before (`providers/mlx5/qp.c`, `mlx5_post_send`).
//! Some posts write their record alone: the device looks for these when it needs them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{
    MemfdFlags, SealFlags, SeekFrom, fcntl_add_seals, fstat, ftruncate, memfd_create, seek,
};

/// Bytes of a page of registers.
pub(crate) const PAGE: usize = 4096;
/// Pages of a descriptor. Those that nobody writes to take no memory.
const PAGES: usize = 4096;
/// Where the registers of a page are: of completion queues, and of send queues, each of which is
/// written at two places in turn (`mlx5_bf`).
const REGISTERS: [usize; 5] = [0x20, 0x800, 0x900, 0xa00, 0xb00];

/// The registers of one open device.
#[derive(Debug)]
pub(crate) struct Doorbells {
    file: OwnedFd,
    inode: u64,
    map: MmapRaw,
    /// By page: what the registers held when they were looked at last; `None`: not in use.
    seen: Vec<Option<[u64; REGISTERS.len()]>>,
}

/// The beginning of the file's name. The number of the device follows.
pub(crate) const NAME: &str = "tagmatch-hca-uverbs";

impl Doorbells {
    /// Registers of a device with this number.
    pub(crate) fn new(number: u32) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create(format!("{NAME}{number}"), flags)?;
        ftruncate(&file, (PAGES * PAGE) as u64)?;
        // A write(2) begins at the end, where the file can't grow: it is refused, never lost.
        seek(&file, SeekFrom::End(0))?;
        // The program may not take away what the device has mapped.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let map = MmapOptions::new().len(PAGES * PAGE).map_raw(&file)?;
        let inode = fstat(&file)?.st_ino;
        Ok(Doorbells { file, inode, map, seen: Vec::new() })
    }

    /// The file, which the program gets in place of its descriptor.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The number of the file, by which it is known again.
    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    /// A page that is not in use.
    pub(crate) fn take_page(&mut self) -> Option<usize> {
        let free = self.seen.iter().position(Option::is_none);
        let page = free.unwrap_or(self.seen.len());
        if page >= PAGES {
            return None;
        }
        if page == self.seen.len() {
            self.seen.push(None);
        }
        self.seen[page] = Some(self.read(page));
        Some(page)
    }

    pub(crate) fn free_page(&mut self, page: usize) {
        if let Some(seen) = self.seen.get_mut(page) {
            *seen = None;
        }
    }

    fn read(&self, page: usize) -> [u64; REGISTERS.len()] {
        REGISTERS.map(|register| {
            let at = page * PAGE + register;
            // SAFETY: the register lies in the mapping, which lives as long as `self`, and is
            // aligned; nobody can shrink the file, and the program writes to it at any time, which
            // an atomic read allows.
            let word = unsafe { &*self.map.as_ptr().add(at).cast::<AtomicU64>() };
            word.load(Ordering::Acquire)
        })
    }

    /// Writes to the first register for requests of a page, as a program does.
    #[cfg(test)]
    pub(crate) fn write(&self, page: usize, value: u64) {
        let at = page * PAGE + REGISTERS[1];
        assert!(page < self.seen.len());
        // SAFETY: a page that is in use lies in the mapping, which lives as long as `self`; the
        // place is aligned, and an atomic write may meet any other access.
        let word = unsafe { &*self.map.as_ptr().add(at).cast::<AtomicU64>() };
        word.store(value, Ordering::Release);
    }

    /// Whether the program has written to a register since the last call.
    pub(crate) fn rang(&mut self) -> bool {
        let mut rang = false;
        for page in 0..self.seen.len() {
            if self.seen[page].is_some() {
                let now = self.read(page);
                rang |= self.seen[page] != Some(now);
                self.seen[page] = Some(now);
            }
        }
        rang
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_by_write_is_refused() {
        let doorbells = Doorbells::new(0).unwrap();
        let written = rustix::io::write(doorbells.file(), &[0; 24]);
        assert_eq!(written, Err(rustix::io::Errno::PERM));
    }

    #[test]
    fn a_register_that_is_written_to_rings_once() {
        let mut doorbells = Doorbells::new(0).unwrap();
        assert_eq!((doorbells.take_page(), doorbells.take_page()), (Some(0), Some(1)));
        assert!(!doorbells.rang());
        for register in REGISTERS {
            // As the program's own mapping of the file.
            let map = MmapOptions::new().len(2 * PAGE).map_raw(&doorbells.file()).unwrap();
            // SAFETY: within the mapping, and aligned.
            let word = unsafe { &*map.as_ptr().add(PAGE + register).cast::<AtomicU64>() };
            word.store(register as u64, Ordering::Release);
            assert!(doorbells.rang(), "{register:#x}");
            assert!(!doorbells.rang());
        }
        // A page that was given back is given again, and what was written before doesn't ring.
        doorbells.free_page(0);
        assert_eq!((doorbells.take_page(), doorbells.rang()), (Some(0), false));
        assert_eq!(doorbells.take_page(), Some(2));
    }
}
