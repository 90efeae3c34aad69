//! A file of records of three words. It is mapped while it is written: so a record costs three
//! stores, and all records are in the file whatever ends the process, SIGKILL included. (A machine
//! that crashes loses what the kernel has not written back.)
//!
//! The first word of a record is stored last and is never 0, and the file's space is zeros before:
//! a record whose first word is 0 was never finished, and is the end.
//!
//! The space of each part is allocated before it is mapped, as a write to a mapped page for which
//! the disk has no room would raise SIGBUS. SIGBUS is also raised if somebody shortens the file
//! meanwhile.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{Ordering, compiler_fence};

use memmap2::{Advice, MmapOptions, MmapRaw};

use super::check;

/// A record. Its first word is not 0.
pub type Record = [u64; 3];
/// The bytes of a record.
pub const RECORD_BYTES: usize = size_of::<Record>();
/// The bytes that are mapped at a time: a multiple of a page and of a record. Mapping a part takes
/// some 20 us, which is the longest time that a record can take.
const PART_BYTES: usize = 4 * 4096 * 3;

/// A file of records, open for appending.
#[derive(Debug)]
pub struct Journal {
    file: File,
    part: MmapRaw,
    /// Where `part` begins in the file.
    part_at: u64,
    /// Where the next record goes, from the start of `part`.
    at: usize,
    bytes_max: u64,
    /// The last record of a part that another one follows.
    link: Record,
    process: u32,
}

impl Journal {
    /// Makes a file, in place of any other one of this name: an old file stays whole for whoever
    /// has it open. `header` stands before the records; it is as long as some records are. `link`
    /// is a record that is put between parts of the file. The file grows to about `bytes_max`
    /// bytes.
    ///
    /// # Errors
    /// The file can't be made or mapped, or there is no space for it.
    pub fn create(path: &Path, header: &[u8], link: Record, bytes_max: u64) -> io::Result<Self> {
        if !header.len().is_multiple_of(RECORD_BYTES) || header.len() >= PART_BYTES / 2 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        file.write_all(header)?;
        let part = map(&file, 0)?;
        let (process, at) = (std::process::id(), header.len());
        Ok(Journal { file, part, part_at: 0, at, bytes_max, link, process })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// There is no space for further records, or the file is as long as it may be. Nothing is
    /// appended, and [`Journal::finish`] is all that can still be done.
    #[inline]
    pub fn append(&mut self, record: Record) -> io::Result<()> {
        if self.at >= PART_BYTES - RECORD_BYTES {
            self.next_part()?;
        }
        self.store(record);
        Ok(())
    }

    /// Appends the last record: there is always room for it. The file ends behind it.
    pub fn finish(mut self, record: Record) {
        self.store(record);
    }

    /// Stores a record at `self.at`, which has room for it.
    #[inline]
    fn store(&mut self, record: Record) {
        debug_assert!(self.at + RECORD_BYTES <= PART_BYTES && record[0] != 0);
        let [first, second, third] = record.map(u64::to_le);
        // SAFETY: the part has room for a record here; its start is aligned to a page, and `at` to
        // 8 bytes. Nothing in this process reads the memory.
        unsafe {
            let to = self.part.as_mut_ptr().add(self.at).cast::<u64>();
            to.add(1).write_volatile(second);
            to.add(2).write_volatile(third);
            compiler_fence(Ordering::Release);
            to.write_volatile(first);
        }
        self.at += RECORD_BYTES;
    }

    #[cold]
    #[inline(never)]
    fn next_part(&mut self) -> io::Result<()> {
        let part_at = self.part_at + PART_BYTES as u64;
        if part_at + PART_BYTES as u64 > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let part = map(&self.file, part_at)?;
        self.store(self.link);
        (self.part, self.part_at, self.at) = (part, part_at, 0);
        Ok(())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // A forked child must not shorten the file that its parent goes on writing.
        if self.process == std::process::id() {
            // The zeros at the end do no harm.
            let _ = self.file.set_len(self.part_at + self.at as u64);
        }
    }
}

/// Allocates and maps a part of the file.
fn map(file: &File, at: u64) -> io::Result<MmapRaw> {
    allocate(file, at)?;
    let part = MmapOptions::new().offset(at).len(PART_BYTES).map_raw(file)?;
    // One call instead of a page fault for each page. Kernels before 5.14 don't know it.
    let _ = part.advise(Advice::PopulateWrite);
    Ok(part)
}

fn allocate(file: &File, at: u64) -> io::Result<()> {
    let at_signed = i64::try_from(at).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // SAFETY: no pointers. The length is small.
    let answer = unsafe { libc::fallocate(file.as_raw_fd(), 0, at_signed, PART_BYTES as i64) };
    match check(answer) {
        // A file system without this call allocates what is written.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            let used = if at == 0 { file.metadata()?.len() } else { 0 };
            let zeros = vec![0; PART_BYTES - usize::try_from(used).unwrap_or(PART_BYTES)];
            file.write_all_at(&zeros, at + used)
        }
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Record = [9, 0, 0];

    fn records(path: &Path, header: usize) -> Vec<Record> {
        let bytes = std::fs::read(path).unwrap();
        let (records, rest) = bytes[header..].as_chunks::<RECORD_BYTES>();
        assert!(rest.is_empty());
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        records.iter().map(|r| [word(&r[..8]), word(&r[8..16]), word(&r[16..])]).collect()
    }

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("tagmatch-journal-{name}-{}", std::process::id()))
    }

    #[test]
    fn what_is_appended_is_in_the_file_over_several_parts() {
        let path = path("parts");
        let mut journal = Journal::create(&path, &[b'#'; 48], LINK, u64::MAX).unwrap();
        let wanted = (1..10_000).map(|n| [n + 100, n, !n]);
        wanted.clone().for_each(|record| journal.append(record).unwrap());
        // All of it is there before the file is closed, and zeros behind it.
        let here = records(&path, 48);
        let has = |here: Vec<Record>| here.into_iter().filter(|r| *r != LINK).collect::<Vec<_>>();
        let zeros = here.iter().rev().take_while(|record| **record == [0; 3]).count();
        assert!(zeros > 0);
        assert_eq!(has(here[..here.len() - zeros].to_vec()), wanted.clone().collect::<Vec<_>>());
        drop(journal);
        assert_eq!(has(records(&path, 48)), wanted.collect::<Vec<_>>());
        assert_eq!(std::fs::metadata(&path).unwrap().len() % RECORD_BYTES as u64, 0);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_full_file_takes_a_last_record_and_an_old_file_stays_whole() {
        let path = path("full");
        let mut journal = Journal::create(&path, &[], LINK, 2 * PART_BYTES as u64).unwrap();
        let mut appended = 0;
        while journal.append([1, 2, 3]).is_ok() {
            appended += 1;
        }
        let old = File::open(&path).unwrap();
        drop(Journal::create(&path, &[], LINK, 0).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        journal.finish([7, 7, 7]);
        let length = usize::try_from(old.metadata().unwrap().len()).unwrap();
        assert_eq!(length, (appended + 2) * RECORD_BYTES);
        let mut last = [0; RECORD_BYTES];
        old.read_exact_at(&mut last, (length - RECORD_BYTES) as u64).unwrap();
        assert_eq!(last[..9], [7, 0, 0, 0, 0, 0, 0, 0, 7]);
        std::fs::remove_file(&path).unwrap();
    }
}
