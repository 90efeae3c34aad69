//! A file of records of three words, which is whole whatever ends the process, SIGKILL included. (A
//! machine that crashes loses what its kernel has not written back.)
//!
//! The file begins with a header of [`HEADER_BYTES`]. The next [`BLOCK_BYTES`], the *window*, are
//! mapped: a record costs three stores there, and memory of a file outlives the process. A full
//! window is appended to the file as a block, and used again. So the kernel copies whole blocks, and
//! no page is mapped or written back for a few records.
//!
//! A block, also that in the window, begins with a record that has the block's number in its second
//! word, from 0 on. The first word of a record is stored last and is never 0, and the window is
//! zeros before: the first record whose first word is 0 is the block's end. What the window holds
//! is behind the last whole block, if it has the number that this calls for; otherwise the process
//! was ended when it had appended the window and not yet emptied it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{Ordering, compiler_fence};

use memmap2::{MmapOptions, MmapRaw};

/// A record. Its first word is not 0.
pub type Record = [u64; 3];
/// The bytes of a record.
pub const RECORD_BYTES: usize = size_of::<Record>();
/// What stands before the window: a page.
pub const HEADER_BYTES: usize = 4096;
/// The bytes of a block: a multiple of a page and of a record.
pub const BLOCK_BYTES: usize = 3 * 3 * 4096;

/// A file of records, open for appending.
#[derive(Debug)]
pub struct Journal {
    file: File,
    window: MmapRaw,
    /// Where the next record goes in the window.
    at: usize,
    /// The number of the block in the window.
    block: u64,
    /// The first word of each block.
    first: u64,
    bytes_max: u64,
}

impl Journal {
    /// Makes a file, in place of any other one of this name: an old file stays whole for whoever
    /// has it open. `first` is the first word of each block. The file grows to at most `bytes_max`
    /// bytes, though a header and two blocks always fit.
    ///
    /// # Errors
    /// The header is too long, or the file can't be made or mapped, or there is no space for it.
    pub fn create(path: &Path, header: &[u8], first: u64, bytes_max: u64) -> io::Result<Self> {
        if header.len() > HEADER_BYTES || first == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        // Zeros are written, as a write to a mapped page for which the disk has no room would raise
        // SIGBUS.
        let mut start = vec![0; HEADER_BYTES + BLOCK_BYTES];
        start[..header.len()].copy_from_slice(header);
        file.write_all_at(&start, 0)?;
        let window =
            MmapOptions::new().offset(HEADER_BYTES as u64).len(BLOCK_BYTES).map_raw(&file)?;
        let mut journal = Journal { file, window, at: 0, block: 0, first, bytes_max };
        journal.store([first, 0, 0]);
        Ok(journal)
    }

    /// Appends a record.
    ///
    /// # Errors
    /// There is no space for further records, or the file is as long as it may be
    /// ([`io::ErrorKind::FileTooLarge`]). Nothing is appended, and [`Journal::finish`] is all that
    /// can still be done.
    #[inline]
    pub fn append(&mut self, record: Record) -> io::Result<()> {
        if self.at >= BLOCK_BYTES - RECORD_BYTES {
            self.next_block()?;
        }
        self.store(record);
        Ok(())
    }

    /// Appends the last record: there is always room for it.
    pub fn finish(mut self, record: Record) {
        self.store(record);
    }

    /// Stores a record at `self.at`, which has room for it.
    #[inline]
    fn store(&mut self, record: Record) {
        debug_assert!(self.at + RECORD_BYTES <= BLOCK_BYTES && record[0] != 0);
        let [first, second, third] = record.map(u64::to_le);
        // SAFETY: the window has room for a record here; its start is aligned to a page, and `at` to
        // 8 bytes. Nothing else in this process uses the memory.
        unsafe {
            let to = self.window.as_mut_ptr().add(self.at).cast::<u64>();
            to.add(1).write_volatile(second);
            to.add(2).write_volatile(third);
            compiler_fence(Ordering::Release);
            to.write_volatile(first);
        }
        self.at += RECORD_BYTES;
    }

    /// Appends the window to the file, and empties it. Its last record stays free.
    #[cold]
    #[inline(never)]
    fn next_block(&mut self) -> io::Result<()> {
        let to = HEADER_BYTES as u64 + (self.block + 1) * BLOCK_BYTES as u64;
        if to + BLOCK_BYTES as u64 > self.bytes_max && self.block > 0 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        // SAFETY: the window is as long as that, and nothing writes it meanwhile.
        let window = unsafe { std::slice::from_raw_parts(self.window.as_ptr(), BLOCK_BYTES) };
        self.file.write_all_at(window, to)?;
        let start = self.window.as_mut_ptr();
        // SAFETY: inside the window, which nothing else refers to. Without its first word, the
        // window holds no block.
        unsafe {
            start.cast::<u64>().write_volatile(0);
            compiler_fence(Ordering::Release);
            start.add(8).write_bytes(0, BLOCK_BYTES - 8);
            compiler_fence(Ordering::Release);
        }
        self.block += 1;
        self.at = 0;
        self.store([self.first, self.block, 0]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Window and blocks, as lists of records.
    fn blocks(path: &Path) -> Vec<Vec<Record>> {
        let bytes = std::fs::read(path).unwrap();
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let record = |r: &[u8; 24]| [word(&r[..8]), word(&r[8..16]), word(&r[16..])];
        let blocks = bytes[HEADER_BYTES..].chunks(BLOCK_BYTES);
        let used = |block: &[u8]| {
            let records = block.as_chunks().0.iter().map(record);
            records.take_while(|record| record[0] != 0).collect()
        };
        blocks.map(used).collect()
    }

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("tagmatch-journal-{name}-{}", std::process::id()))
    }

    #[test]
    fn what_is_appended_is_in_the_file_at_once() {
        let path = path("blocks");
        let mut journal = Journal::create(&path, b"of a test", 9, u64::MAX).unwrap();
        let wanted: Vec<Record> = (1..5_000).map(|n| [n + 100, n, !n]).collect();
        for (n, record) in wanted.iter().enumerate() {
            journal.append(*record).unwrap();
            if n % 700 != 0 {
                continue;
            }
            let mut blocks = blocks(&path);
            blocks.rotate_left(1);
            let numbers: Vec<_> = blocks.iter().map(|block| block[0]).collect();
            assert_eq!(numbers, (0..blocks.len() as u64).map(|n| [9, n, 0]).collect::<Vec<_>>());
            let records = blocks.iter().flat_map(|block| &block[1..]);
            assert!(records.eq(&wanted[..=n]));
        }
        assert!(std::fs::read(&path).unwrap().starts_with(b"of a test\0"));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_full_file_takes_a_last_record_and_an_old_file_stays_whole() {
        let path = path("full");
        let most = (HEADER_BYTES + 3 * BLOCK_BYTES) as u64;
        let mut journal = Journal::create(&path, &[], 9, most).unwrap();
        let mut appended = 0;
        while journal.append([1, 2, 3]).is_ok() {
            appended += 1;
        }
        journal.finish([7, 7, 7]);
        let blocks = blocks(&path);
        assert_eq!((blocks.len(), blocks[0].last()), (3, Some(&[7, 7, 7])));
        assert_eq!(blocks.iter().map(Vec::len).sum::<usize>(), appended + 3 + 1);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), most);
        let old = File::open(&path).unwrap();
        drop(Journal::create(&path, &[], 9, 0).unwrap());
        assert!(std::fs::metadata(&path).unwrap().len() < most);
        assert_eq!(old.metadata().unwrap().len(), most);
        std::fs::remove_file(&path).unwrap();
    }
}
