//! A file of records of one to four words, which is whole whatever ends the process, SIGKILL
//! included. (A machine that crashes loses what its kernel has not written back.)
//!
//! The file begins with a header of [`HEADER_BYTES`]. The next [`BLOCK_BYTES`], the *window*, are
//! mapped: a record costs a few stores there, and memory of a file outlives the process. A full
//! window is appended to the file as a block, and used again. So the kernel copies whole blocks,
//! and no page is mapped or written back for a few records.
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

use super::process;

/// The words of the longest record.
pub const WORDS_MAX: usize = 4;
/// What stands before the window. Where pages are larger, the window begins inside one.
pub const HEADER_BYTES: usize = 4096;
/// The bytes of a block.
pub const BLOCK_BYTES: usize = 8 * 4096;
/// A record may begin up to here, so another one always has room behind it.
const LAST_BYTES: usize = BLOCK_BYTES - 2 * WORDS_MAX * 8;

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
        process::check_file_size(start.len() as u64)?;
        start[..header.len()].copy_from_slice(header);
        file.write_all_at(&start, 0)?;
        let window =
            MmapOptions::new().offset(HEADER_BYTES as u64).len(BLOCK_BYTES).map_raw(&file)?;
        let mut journal = Journal { file, window, at: 0, block: 0, first, bytes_max };
        journal.store([first, 0]);
        Ok(journal)
    }

    /// Appends a record of at most [`WORDS_MAX`] words, the first of which is not 0.
    ///
    /// # Errors
    /// There is no space for further records, or the file is as long as it may be
    /// ([`io::ErrorKind::FileTooLarge`]). Nothing is appended, and [`Journal::finish`] is all that
    /// can still be done.
    #[inline]
    pub fn append<const WORDS: usize>(&mut self, record: [u64; WORDS]) -> io::Result<()> {
        if self.at > LAST_BYTES {
            self.next_block()?;
        }
        self.store(record);
        Ok(())
    }

    /// Appends the last record: there is always room for it.
    pub fn finish<const WORDS: usize>(mut self, record: [u64; WORDS]) {
        self.store(record);
    }

    /// Changes with each record that is appended, and is never again as it was.
    #[inline]
    pub fn position(&self) -> u64 {
        self.block * BLOCK_BYTES as u64 + self.at as u64
    }

    /// Replaces the last word of the record that was appended last, which has two at least.
    pub fn amend(&mut self, word: u64) {
        assert!(self.at >= 16, "a block begins with a record of two words");
        // SAFETY: the word before `at` is inside the window, and aligned as `at` is. Nothing else
        // uses the memory.
        unsafe {
            self.window.as_mut_ptr().add(self.at - 8).cast::<u64>().write_volatile(word.to_le());
        }
    }

    /// Stores a record at `self.at`, which has room for it.
    #[inline]
    fn store<const WORDS: usize>(&mut self, record: [u64; WORDS]) {
        const { assert!(WORDS > 0 && WORDS <= WORDS_MAX) };
        debug_assert!(self.at + WORDS_MAX * 8 <= BLOCK_BYTES && record[0] != 0);
        // SAFETY: the window has room for a record here; its start is aligned to [`HEADER_BYTES`],
        // and `at` to 8 bytes. Nothing else in this process uses the memory.
        unsafe {
            let to = self.window.as_mut_ptr().add(self.at).cast::<u64>();
            for (at, word) in record.iter().enumerate().skip(1) {
                to.add(at).write_volatile(word.to_le());
            }
            compiler_fence(Ordering::Release);
            to.write_volatile(record[0].to_le());
        }
        self.at += WORDS * 8;
    }

    /// Appends the window to the file, and empties it.
    #[cold]
    #[inline(never)]
    fn next_block(&mut self) -> io::Result<()> {
        let to = HEADER_BYTES as u64 + (self.block + 1) * BLOCK_BYTES as u64;
        if to + BLOCK_BYTES as u64 > self.bytes_max && self.block > 0 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        process::check_file_size(to + BLOCK_BYTES as u64)?;
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
        self.store([self.first, self.block]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Window and blocks, as lists of words, without the zeros at their ends.
    fn blocks(path: &Path) -> Vec<Vec<u64>> {
        let bytes = std::fs::read(path).unwrap();
        let words = |block: &[u8]| {
            let words = block.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
            let mut words: Vec<_> = words.collect();
            let used = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
            words.truncate(used);
            words
        };
        bytes[HEADER_BYTES..].chunks(BLOCK_BYTES).map(words).collect()
    }

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("tagmatch-journal-{name}-{}", std::process::id()))
    }

    #[test]
    fn what_is_appended_is_in_the_file_at_once() {
        let path = path("blocks");
        let mut journal = Journal::create(&path, b"of a test", 9, u64::MAX).unwrap();
        let mut wanted = Vec::new();
        for n in 1..10_000 {
            let position = journal.position();
            let words = match n % 3 {
                0 => journal.append([n]).map(|()| 1),
                1 => journal.append([n, n]).map(|()| 2),
                _ => journal.append([n, n, n, n]).map(|()| 4),
            };
            assert!(journal.position() > position);
            wanted.extend([n; 4].iter().take(words.unwrap()));
            if n % 3 == 1 {
                journal.amend(n + 1);
                wanted.pop();
                wanted.push(n + 1);
            }
            if n % 900 != 1 {
                continue;
            }
            let mut blocks = blocks(&path);
            blocks.rotate_left(1);
            // Each block begins with its number; the zero of the first one is not the block's end.
            let numbers = blocks.iter().map(|block| [block[0], block[1]]);
            assert!(numbers.eq((0..blocks.len() as u64).map(|number| [9, number])));
            assert!(blocks.iter().flat_map(|block| &block[2..]).eq(&wanted));
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
        journal.finish([7, 7, 7, 7]);
        let blocks = blocks(&path);
        assert_eq!((blocks.len(), &blocks[0][blocks[0].len() - 5..]), (3, &[3, 7, 7, 7, 7][..]));
        let words = blocks.iter().map(Vec::len).sum::<usize>();
        assert_eq!(words, 3 * appended + 3 * 2 + 4);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), most);
        let old = File::open(&path).unwrap();
        drop(Journal::create(&path, &[], 9, 0).unwrap());
        assert!(std::fs::metadata(&path).unwrap().len() < most);
        assert_eq!(old.metadata().unwrap().len(), most);
        std::fs::remove_file(&path).unwrap();
    }
}
