//! Memory that two processes share: a memfd, sealed so that neither can shrink it.
//!
//! Reading a mapped page beyond the end of its file raises SIGBUS. The seals keep a peer from
//! shrinking the file, so they are checked before a peer's memory is mapped.

#![cfg_attr(all(loom, test), allow(dead_code, reason = "the model brings its own memory"))]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use memmap2::{Advice, MmapMut, MmapOptions, MmapRaw, UncheckedAdvice};

use super::background_close::UncheckedDescriptors;
use super::process::{self, Pid};
use super::{check, descriptor};

const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// What peers do with memory that they map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryUse {
    /// They read it.
    Read,
    /// They read and write it.
    Write,
}

/// A memfd of fixed size, which can be sent to another process.
pub struct SealedMemory {
    fd: OwnedFd,
    length: usize,
}

impl SealedMemory {
    /// `length` zero bytes. The name is shown in /proc/PID/maps; it is in no file system.
    ///
    /// # Errors
    /// A system call failed. `EFBIG`: files of this process may not be so long (`RLIMIT_FSIZE`).
    pub fn new(name: &CStr, length: usize) -> io::Result<Self> {
        let memory = Self::unsealed(name, length)?;
        memory.seal(SEALS)?;
        Ok(memory)
    }

    /// As [`SealedMemory::new`], and the mapping through which this process writes. With
    /// `MemoryUse::Read`, nobody can map the memory for writing again, or write it in another way
    /// (`F_SEAL_FUTURE_WRITE`).
    ///
    /// The memory may be much longer than what is used of it. It is in no core dump: the kernel
    /// would take a page for each that was never used.
    pub fn for_peers(
        name: &CStr,
        length: usize,
        by_peers: MemoryUse,
    ) -> io::Result<(Self, Mapping)> {
        let memory = Self::unsealed(name, length)?;
        let mapping = memory.map()?;
        mapping.raw.advise(Advice::DontDump)?;
        let seal = if by_peers == MemoryUse::Read { libc::F_SEAL_FUTURE_WRITE } else { 0 };
        memory.seal(SEALS | seal)?;
        Ok((memory, mapping))
    }

    fn unsealed(name: &CStr, length: usize) -> io::Result<Self> {
        process::check_file_size(length as u64)?;
        let create = |flags| {
            // SAFETY: `name` ends in a zero byte, and the descriptor is new.
            unsafe { descriptor(libc::memfd_create(name.as_ptr(), flags)) }
        };
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // If the sysctl `vm.memfd_noexec` is 2, memfd_create(2) fails without MFD_NOEXEC_SEAL.
        // Before Linux 6.3 there is no MFD_NOEXEC_SEAL, and it fails with that flag (EINVAL).
        let fd = match create(flags | libc::MFD_NOEXEC_SEAL) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => create(flags)?,
            other => other?,
        };
        let size = i64::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: no pointers.
        check(unsafe { libc::ftruncate(fd.as_raw_fd(), size) })?;
        Ok(SealedMemory { fd, length })
    }

    fn seal(&self, seals: libc::c_int) -> io::Result<()> {
        // SAFETY: no pointers.
        check(unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_ADD_SEALS, seals) }).map(drop)
    }

    /// Takes descriptors from a peer, if there is one for each length and they are memfds of these
    /// lengths whose size can't change.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub fn from_peer(
        fds: UncheckedDescriptors,
        lengths: &[usize],
    ) -> Result<impl Iterator<Item = Self>, &'static str> {
        for (fd, length) in fds.0.iter().zip(lengths) {
            check_sealed(fd, *length)?;
        }
        if fds.0.len() != lengths.len() {
            return Err("a packet has too few or too many descriptors");
        }
        // All of them are memfds, and closing a memfd doesn't block.
        let fds = fds.into_checked().into_iter();
        Ok(fds.zip(lengths).map(|(fd, length)| SealedMemory { fd, length: *length }))
    }

    /// Opens a memfd that another process of this user has, by the number of its descriptor there.
    /// The kernel allows this to processes that may read the other one's state, see
    /// proc_pid_fd(5). Nothing says yet that the process is the right one: pid namespaces differ.
    ///
    /// # Errors
    /// There is no such descriptor, it may not be opened, or it is no memfd of this length whose
    /// size can't change.
    pub fn of_process(pid: Pid, number: RawFd, length: usize) -> io::Result<Self> {
        // The first descriptor only names the file, so opening it can't block. All memfds are on
        // one file system of the kernel. A file of any other one, which might block, is not opened.
        let named = open(&format!("/proc/{}/fd/{number}", pid.0), libc::O_PATH)?;
        let own = SealedMemory::new(c"tagmatch-compare", 0)?;
        if file_system(&named)? != file_system(&own.fd)? {
            return Err(io::Error::other("the descriptor is not a memfd"));
        }
        let fd = open(&format!("/proc/self/fd/{}", named.as_raw_fd()), libc::O_RDWR)?;
        check_sealed(&fd, length).map_err(io::Error::other)?;
        Ok(SealedMemory { fd, length })
    }

    /// Maps the whole memory for reading and writing.
    pub fn map(&self) -> io::Result<Mapping> {
        let raw = MmapOptions::new().len(self.length).map_raw(&self.fd)?;
        Ok(Mapping { raw })
    }

    /// Maps the whole memory of a peer, for writing if its maker allows that. The mapping is in no
    /// core dump.
    pub fn map_of_peer(&self) -> io::Result<PeerMapping> {
        let by_peers = if seals(&self.fd) & libc::F_SEAL_FUTURE_WRITE == 0 {
            MemoryUse::Write
        } else {
            MemoryUse::Read
        };
        let mut options = MmapOptions::new();
        let options = options.len(self.length);
        let raw = match by_peers {
            MemoryUse::Read => options.map_raw_read_only(&self.fd)?,
            MemoryUse::Write => options.map_raw(&self.fd)?,
        };
        raw.advise(Advice::DontDump)?;
        Ok(PeerMapping { raw, by_peers })
    }
}

/// The seals of a memfd; none of a file that can't be sealed.
fn seals(fd: &OwnedFd) -> libc::c_int {
    // SAFETY: no pointers. The call fails with EINVAL for files that can't be sealed.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) }.max(0)
}

fn open(path: &str, flags: libc::c_int) -> io::Result<OwnedFd> {
    let path = CString::new(path).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `path` ends in a zero byte, and the descriptor is new.
    unsafe { descriptor(libc::open(path.as_ptr(), flags | libc::O_CLOEXEC)) }
}

/// The number of a file's file system. A file system of another process is not asked.
fn file_system(fd: &OwnedFd) -> io::Result<(u32, u32)> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: all zeros is a valid `statx`, which lives through the call; the path is empty.
    unsafe {
        let mut about: libc::statx = std::mem::zeroed();
        check(libc::statx(fd.as_raw_fd(), c"".as_ptr(), flags, libc::STATX_TYPE, &raw mut about))?;
        Ok((about.stx_dev_major, about.stx_dev_minor))
    }
}

/// Checks that a descriptor is a memfd of `length` bytes whose size can't change.
fn check_sealed(fd: &OwnedFd, length: usize) -> Result<(), &'static str> {
    if seals(fd) & SEALS != SEALS {
        return Err("a descriptor is not a sealed memfd");
    }
    // A memfd of huge pages can be sealed, too, but touching it raises SIGBUS when no huge page is
    // free.
    // SAFETY: all zeros is a valid `statfs`, which lives through the call.
    let (answer, file_system) = unsafe {
        let mut about: libc::statfs = std::mem::zeroed();
        (libc::fstatfs(fd.as_raw_fd(), &raw mut about), about.f_type)
    };
    if answer != 0 || file_system != libc::TMPFS_MAGIC {
        return Err("a memfd is not made of ordinary pages");
    }
    // SAFETY: all zeros is a valid `stat`, which lives through the call.
    let (answer, size) = unsafe {
        let mut about: libc::stat = std::mem::zeroed();
        (libc::fstat(fd.as_raw_fd(), &raw mut about), about.st_size)
    };
    if answer != 0 || usize::try_from(size) != Ok(length) {
        return Err("a memfd does not have the announced size");
    }
    Ok(())
}

impl AsFd for SealedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Bytes of a page of this machine, which is what the kernel gives at least: 4 KiB on x86-64; 4, 16
/// or 64 KiB on AArch64.
pub fn page_bytes() -> usize {
    // SAFETY: no pointers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // There is no error of a name that is known (POSIX).
    usize::try_from(bytes).unwrap_or(4096)
}

/// Mapped memory: page-aligned and zeroed at first. Another process may write it at any time.
pub struct Mapping {
    raw: MmapRaw,
}

impl Mapping {
    /// Memory that no other process maps.
    pub fn private(length: usize) -> io::Result<Self> {
        let raw = MmapRaw::from(MmapMut::map_anon(length)?);
        Ok(Mapping { raw })
    }

    /// Start of the memory. It is readable and writable, and doesn't move, as long as `self` lives.
    #[inline]
    pub fn start(&self) -> *mut u8 {
        self.raw.as_mut_ptr()
    }

    /// Its length in bytes.
    #[inline]
    pub fn length(&self) -> usize {
        self.raw.len()
    }

    /// Gives whole pages of a memfd back to the machine: they are zero then, for all processes.
    ///
    /// # Errors
    /// The range is not inside the mapping, or the memory is private.
    pub fn give_back(&self, offset: usize, length: usize) -> io::Result<()> {
        // SAFETY: the bytes become zero, as another process could make them at any time: so there
        // are no references to plain data.
        unsafe { self.raw.unchecked_advise_range(UncheckedAdvice::Remove, offset, length) }
    }
}

/// Mapped memory of a peer. The peer may write it at any time.
pub struct PeerMapping {
    raw: MmapRaw,
    by_peers: MemoryUse,
}

impl PeerMapping {
    /// Start of the memory, aligned to a page. It is readable, and doesn't move, as long as `self`
    /// lives.
    #[inline]
    pub fn start(&self) -> *const u8 {
        self.raw.as_ptr()
    }

    /// As [`PeerMapping::start`], of memory that can be written; `None` if it can't.
    #[inline]
    pub fn start_mut(&self) -> Option<*mut u8> {
        (self.by_peers == MemoryUse::Write).then(|| self.raw.as_mut_ptr())
    }

    /// Its length in bytes.
    #[inline]
    pub fn length(&self) -> usize {
        self.raw.len()
    }
}

/// Why this process should not map more memory than it uses; `None` if it may. The pages of a memfd
/// are taken at the first access, and an access for which there is no memory raises SIGBUS.
pub fn sparse_memory_obstacle() -> Option<&'static str> {
    let policy = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    if policy.trim() == "2" {
        return Some("vm.overcommit_memory is 2, so a first access to shared memory may fail");
    }
    let is_limited = process::limit(libc::RLIMIT_AS).is_some();
    is_limited.then_some("the address space of this process is limited (ulimit -v)")
}

#[cfg(test)]
mod tests {
    use super::super::fork::tests::in_forked_child;
    use super::*;

    /// The signal that the kernel sends would end the child.
    #[test]
    fn memory_beyond_the_limit_of_files_is_an_error_and_no_signal() {
        in_forked_child(|| {
            let limit = libc::rlimit { rlim_cur: 8192, rlim_max: 8192 };
            // SAFETY: `limit` lives through the call.
            unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
            let made = |length| SealedMemory::new(c"tagmatch-test", length).map(drop);
            let errno = made(8193).map_err(|error| error.raw_os_error());
            made(8192).is_ok() && errno == Err(Some(libc::EFBIG))
        });
    }

    #[test]
    fn only_sealed_memory_of_the_right_size_is_taken() {
        let own = |length| SealedMemory::new(c"tagmatch-test", length).unwrap().fd;
        let take = |fds, lengths: [usize; 2]| {
            SealedMemory::from_peer(UncheckedDescriptors(fds), &lengths)
                .map(|all| all.map(|memory| memory.map().unwrap().length()).collect::<Vec<_>>())
        };
        assert_eq!(take(vec![own(8192), own(4096)], [8192, 4096]).unwrap(), [8192, 4096]);
        assert!(take(vec![own(8192), own(4096)], [4096, 4096]).is_err());
        assert!(take(vec![own(8192), own(4096)], [8192, 8192]).is_err());
        assert!(take(vec![own(4096)], [4096, 4096]).is_err());
        assert!(take(vec![own(4096), own(4096), own(4096)], [4096, 4096]).is_err());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(take(vec![own(4096), file.into()], [4096, 4096]).is_err());
    }

    #[test]
    fn memory_for_peers_is_written_by_them_only_if_they_may() {
        for by_peers in [MemoryUse::Read, MemoryUse::Write] {
            let (memory, mapping) =
                SealedMemory::for_peers(c"tagmatch-peers", 8192, by_peers).unwrap();
            // SAFETY: inside the mapping, and nothing else accesses it at the same time.
            unsafe { mapping.start().write(7) };
            let there = memory.map_of_peer().unwrap();
            // SAFETY: as above.
            assert_eq!((unsafe { there.start().read() }, there.length()), (7, 8192));
            let may_write = by_peers == MemoryUse::Write;
            assert_eq!([memory.map().is_ok(), there.start_mut().is_some()], [may_write; 2]);
            if let Some(start) = there.start_mut() {
                // SAFETY: as above.
                assert_eq!(unsafe { (start.write(8), mapping.start().read()).1 }, 8);
            }
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let of_both: Vec<_> = maps.split("VmFlags:").collect();
            let is_dumped = |pair: &[&str]| !pair[1].lines().next().unwrap().contains(" dd");
            let both = of_both.windows(2).filter(|pair| pair[0].contains("tagmatch-peers"));
            assert_eq!(both.map(is_dumped).collect::<Vec<_>>(), [false; 2]);
            let length = std::fs::File::from(memory.fd.try_clone().unwrap());
            assert!(length.set_len(4096).is_err() && length.set_len(16384).is_err());
        }
    }

    #[test]
    fn pages_that_are_given_back_are_zero_for_all() {
        let memory = SealedMemory::new(c"tagmatch-test", 3 * (64 << 10)).unwrap();
        let one = memory.map().unwrap();
        let other = memory.map().unwrap();
        // SAFETY: inside the mappings, and nothing else accesses them at the same time.
        let at = |page: usize| unsafe { other.start().add(page * (64 << 10)) };
        for page in 0..3 {
            // SAFETY: as above.
            unsafe { at(page).write(7) };
        }
        one.give_back(64 << 10, 64 << 10).unwrap();
        // SAFETY: as above.
        assert_eq!([0, 1, 2].map(|page| unsafe { at(page).read() }), [7, 0, 7]);
        assert!(one.give_back(4 * (64 << 10), 64 << 10).is_err());
        assert!(Mapping::private(64 << 10).unwrap().give_back(0, 64 << 10).is_err());
    }

    #[test]
    fn memory_is_opened_by_its_number_in_its_process() {
        let memory = SealedMemory::new(c"tagmatch-test", 4096).unwrap();
        let number = memory.fd.as_raw_fd();
        let of = |number, length| SealedMemory::of_process(Pid::own(), number, length);
        assert!(of(number, 4096).unwrap().map().unwrap().length() == 4096);
        assert!(of(number, 8192).is_err());
        assert!(of(-1, 4096).is_err());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(of(file.as_raw_fd(), 4096).is_err());
        let (_reader, writer) = io::pipe().unwrap();
        assert!(of(writer.as_raw_fd(), 4096).is_err());
    }

    #[test]
    fn a_memfd_without_seals_is_refused() {
        // SAFETY: the name ends in a zero byte; the descriptor is new.
        let fd = unsafe {
            descriptor(libc::memfd_create(c"test".as_ptr(), libc::MFD_ALLOW_SEALING)).unwrap()
        };
        std::fs::File::from(fd.try_clone().unwrap()).set_len(4096).unwrap();
        assert!(SealedMemory::from_peer(UncheckedDescriptors(vec![fd]), &[4096]).is_err());
    }
}
