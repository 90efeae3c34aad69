//! The memory of a program.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Once;

use tagmatch_os::notice;

/// Why bytes of a program could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryError {
    /// Nothing is mapped there, or not for this access.
    Fault,
    /// The process has ended, or may not be looked at.
    Gone,
}

/// The memory of one process. A call may wait as long as the process withholds a page.
pub(crate) trait Memory: Send + 'static {
    /// Reads all bytes, or fails.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MemoryError>;

    /// Writes pieces, one after the other: a reader that sees the last piece sees all others. Some
    /// pieces may be written though the call fails.
    fn write(&self, pieces: &[(u64, &[u8])]) -> Result<(), MemoryError>;

    /// Reads words in pairs, so many at once; `None` where nothing is mapped.
    fn pairs(&self, places: &[u64], into: &mut Vec<Option<[u32; 2]>>) -> Result<(), MemoryError>;

    /// Whether all pages of a span are there, and may be written if `writable`.
    fn is_mapped(&self, at: u64, length: u64, writable: bool) -> Result<bool, MemoryError>;

    /// Bytes that the process may lock: `RLIMIT_MEMLOCK`, or no limit with `CAP_IPC_LOCK`.
    fn lockable(&self) -> u64;
}

/// The memory of a process of this machine, by process_vm_readv(2).
#[derive(Debug)]
pub(crate) struct ProcessMemory {
    pid: libc::pid_t,
}

/// Spans that one call may name: `IOV_MAX`.
const SPANS_MAX: usize = 1024;
const PAGE: u64 = 4096;

/// The error of the last call. That the system forbids all such calls is told once.
fn error() -> MemoryError {
    static TOLD: Once = Once::new();
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EFAULT) => MemoryError::Fault,
        Some(libc::EPERM) => {
            TOLD.call_once(|| {
                notice::tell(
                    "tagmatch-hca: this system forbids to read and write the memory of the \
                     program: a container must allow process_vm_readv(2) and \
                     process_vm_writev(2), and kernel.yama.ptrace_scope must be 0 or 1",
                );
            });
            MemoryError::Gone
        }
        _ => MemoryError::Gone,
    }
}

fn local(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

fn remote(at: u64, length: usize) -> libc::iovec {
    libc::iovec { iov_base: std::ptr::without_provenance_mut(at as usize), iov_len: length }
}

impl ProcessMemory {
    pub(crate) fn new(pid: i32) -> Self {
        ProcessMemory { pid }
    }

    /// Bytes that were read into `into` from spans of the process, up to the first bad one.
    fn gather(&self, into: &mut [u8], from: &[libc::iovec]) -> Result<usize, MemoryError> {
        let into = [local(into)];
        // SAFETY: the local span is a slice that is borrowed for the call; remote ones are checked
        // by the kernel.
        let count = unsafe {
            let locals = into.as_ptr();
            let remotes = from.as_ptr();
            libc::process_vm_readv(self.pid, locals, 1, remotes, from.len() as libc::c_ulong, 0)
        };
        usize::try_from(count).map_err(|_| error())
    }

    fn status(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default()
    }
}

impl Memory for ProcessMemory {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        if into.is_empty() {
            return Ok(());
        }
        let length = into.len();
        match self.gather(into, &[remote(at, length)])? {
            all if all == length => Ok(()),
            _ => Err(MemoryError::Fault),
        }
    }

    fn write(&self, pieces: &[(u64, &[u8])]) -> Result<(), MemoryError> {
        for pieces in pieces.chunks(SPANS_MAX) {
            let wanted: usize = pieces.iter().map(|(_, bytes)| bytes.len()).sum();
            let span = |bytes: &[u8]| libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            };
            let locals: Vec<_> = pieces.iter().map(|(_, bytes)| span(bytes)).collect();
            let remotes: Vec<_> =
                pieces.iter().map(|(at, bytes)| remote(*at, bytes.len())).collect();
            let count = locals.len() as libc::c_ulong;
            if wanted == 0 {
                continue;
            }
            // SAFETY: the local spans are slices that are borrowed for the call, and the call only
            // reads them; remote ones are checked by the kernel.
            let written = unsafe {
                let locals = locals.as_ptr();
                let remotes = remotes.as_ptr();
                libc::process_vm_writev(self.pid, locals, count, remotes, count, 0)
            };
            match usize::try_from(written) {
                Ok(all) if all == wanted => {}
                Ok(_) => return Err(MemoryError::Fault),
                Err(_) => return Err(error()),
            }
        }
        Ok(())
    }

    fn pairs(&self, places: &[u64], into: &mut Vec<Option<[u32; 2]>>) -> Result<(), MemoryError> {
        // Records lie close together (`mlx5_alloc_dbrec`), and a page costs less than a few spans.
        let mut pages: Vec<u64> = places.iter().map(|at| at & !(PAGE - 1)).collect();
        pages.sort_unstable();
        pages.dedup();
        let mut bytes = vec![0; pages.len() * PAGE as usize];
        let mut is_read = vec![false; pages.len()];
        let mut done = 0;
        while done < pages.len() {
            let some = &pages[done..pages.len().min(done + SPANS_MAX)];
            let from: Vec<_> = some.iter().map(|at| remote(*at, PAGE as usize)).collect();
            let room = done * PAGE as usize..(done + some.len()) * PAGE as usize;
            let got = match self.gather(&mut bytes[room], &from) {
                Err(MemoryError::Fault) => 0,
                other => other? / PAGE as usize,
            };
            is_read[done..done + got].fill(true);
            // The page after the last one that was read can't be read.
            done += got + usize::from(got < some.len());
        }
        into.extend(places.iter().map(|at| {
            let page =
                pages.binary_search(&(at & !(PAGE - 1))).ok().filter(|page| is_read[*page])?;
            let at = page * PAGE as usize + (at & (PAGE - 1)) as usize;
            let word = |at: usize| Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
            Some([word(at)?, word(at + 4)?])
        }));
        Ok(())
    }

    fn is_mapped(&self, at: u64, length: u64, writable: bool) -> Result<bool, MemoryError> {
        let Some(end) = at.checked_add(length) else { return Ok(false) };
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid))
            .map_err(|_| MemoryError::Gone)?;
        let mut covered = at;
        for line in maps.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(span), Some(access)) = (words.next(), words.next()) else { continue };
            let Some((from, to)) = span.split_once('-') else { continue };
            let parse = |text| u64::from_str_radix(text, 16).unwrap_or_default();
            let from = parse(from);
            let to = parse(to);
            if to <= covered || from > covered {
                continue;
            }
            if !access.starts_with('r') || writable && access.as_bytes().get(1) != Some(&b'w') {
                return Ok(false);
            }
            covered = to;
            if covered >= end {
                break;
            }
        }
        if covered < end {
            return Ok(false);
        }
        // A page of a file may lie beyond the file's end: only a look tells.
        let first = at & !(PAGE - 1);
        let mut pages = (first..end).step_by(PAGE as usize).map(|page| page.max(at));
        let mut bytes = [0; SPANS_MAX];
        loop {
            let some: Vec<_> = pages.by_ref().take(SPANS_MAX).map(|page| remote(page, 1)).collect();
            if some.is_empty() {
                return Ok(true);
            }
            match self.gather(&mut bytes[..some.len()], &some) {
                Ok(got) if got == some.len() => {}
                Ok(_) | Err(MemoryError::Fault) => return Ok(false),
                Err(gone) => return Err(gone),
            }
        }
    }

    fn lockable(&self) -> u64 {
        const CAP_IPC_LOCK: u64 = 1 << 14;
        let status = self.status();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let bits = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
        if bits.is_some_and(|bits| bits & CAP_IPC_LOCK != 0) {
            return u64::MAX;
        }
        let mut limit = MaybeUninit::<libc::rlimit64>::uninit();
        // SAFETY: the kernel writes the whole structure if the call succeeds, and it is read only
        // then.
        unsafe {
            let none = std::ptr::null();
            match libc::prlimit64(self.pid, libc::RLIMIT_MEMLOCK, none, limit.as_mut_ptr()) {
                0 => limit.assume_init().rlim_cur,
                _ => u64::MAX,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use memmap2::MmapMut;

    use super::*;

    /// The records lie in more pages than one call may name, and some pages are not there.
    #[test]
    fn records_are_read_by_pages_and_those_that_are_not_there_are_told() {
        const PAGES: usize = 2 * SPANS_MAX;
        let page = PAGE as usize;
        let mut map = MmapMut::map_anon(PAGES * page).unwrap();
        let base = map.as_ptr().addr() as u64;
        let place = |at: usize| at * page + at % 500 * 8;
        for at in 0..PAGES {
            let words = [at as u32, !(at as u32)].map(u32::to_be_bytes).concat();
            map[place(at)..place(at) + 8].copy_from_slice(&words);
        }
        // Nothing is ever mapped in the first page.
        let absent = [0, 7, PAGES];
        let mut places: Vec<u64> = (0..PAGES).map(|at| base + place(at) as u64).collect();
        for at in absent {
            places.insert(at, 64);
        }
        let mut found = Vec::new();
        ProcessMemory::new(std::process::id() as i32).pairs(&places, &mut found).unwrap();
        for at in absent {
            assert_eq!(found[at], None);
        }
        let there: Vec<[u32; 2]> = found.into_iter().flatten().collect();
        assert_eq!(there, (0..PAGES as u32).map(|at| [at, !at]).collect::<Vec<_>>());
    }

    fn own() -> ProcessMemory {
        ProcessMemory::new(std::process::id() as i32)
    }

    /// Nothing is ever mapped here.
    const NOWHERE: u64 = 64;

    #[test]
    fn bytes_are_read_and_written_or_a_fault_is_told() {
        let mut bytes = vec![0_u8; 3000];
        let at = bytes.as_mut_ptr().expose_provenance() as u64;
        // More pieces than one call may name.
        let pieces: Vec<(u64, &[u8])> =
            (0..2500).map(|place| (at + place, &[1, 2, 3][..])).collect();
        own().write(&pieces).unwrap();
        let mut seen = [9; 6];
        own().read(at + 2498, &mut seen).unwrap();
        assert_eq!(seen, [1, 1, 2, 3, 0, 0]);
        own().write(&[(NOWHERE, &[]), (at, &[5])]).unwrap();
        own().read(at, &mut seen[..2]).unwrap();
        assert_eq!((seen[..2].to_vec(), own().read(NOWHERE, &mut [])), (vec![5, 1], Ok(())));
        assert_eq!(own().read(NOWHERE, &mut seen), Err(MemoryError::Fault));
        assert_eq!(own().write(&[(NOWHERE, &[1])]), Err(MemoryError::Fault));
        assert_eq!(own().write(&[(at, &[1]), (NOWHERE, &[1])]), Err(MemoryError::Fault));
        assert!(bytes.iter().any(|byte| *byte != 0));
    }

    #[test]
    fn a_process_that_has_ended_has_no_memory() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let memory = ProcessMemory::new(child.id() as i32);
        let mut words = Vec::new();
        assert_eq!(memory.read(NOWHERE, &mut [0]), Err(MemoryError::Gone));
        assert_eq!(memory.write(&[(NOWHERE, &[0])]), Err(MemoryError::Gone));
        assert_eq!(memory.pairs(&[NOWHERE], &mut words), Err(MemoryError::Gone));
        assert_eq!(memory.is_mapped(NOWHERE, 1, false), Err(MemoryError::Gone));
    }

    #[test]
    fn what_is_mapped_may_be_written_or_not_and_ends_with_its_file() {
        let is_mapped = |at: &[u8], length: usize, writable| {
            own().is_mapped(at.as_ptr().addr() as u64, length as u64, writable).unwrap()
        };
        let page = PAGE as usize;
        // More pages than one call may name.
        let map = MmapMut::map_anon((SPANS_MAX + 2) * page).unwrap();
        assert!(is_mapped(&map, map.len(), true) && is_mapped(&map[5..], 1, true));
        let map = map.make_read_only().unwrap();
        assert!(is_mapped(&map, map.len(), false) && !is_mapped(&map, 1, true));
        for (at, length) in [(NOWHERE, 1), (u64::MAX, 1), (map.as_ptr().addr() as u64, 1 << 46)] {
            assert_eq!(own().is_mapped(at, length, false), Ok(false), "{at}");
        }
        let file = rustix::fs::memfd_create("", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, PAGE).unwrap();
        // SAFETY: nobody changes the file, and beyond its end nothing is read.
        let map = unsafe { memmap2::MmapOptions::new().len(3 * page).map(&file) }.unwrap();
        assert!(is_mapped(&map, page, false) && !is_mapped(&map, page + 1, false));
        assert!(!is_mapped(&map[page - 1..], 2, false) && is_mapped(&map[page - 1..], 1, false));
    }
}
