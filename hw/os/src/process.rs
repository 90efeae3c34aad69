//! Other processes: whether they have ended, reading their memory, and memory barriers on them.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use super::{check, check_count, descriptor, part_of};

/// Number of a process in this process' pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pid(pub i32);

impl Pid {
    /// The number of this process.
    pub fn own() -> Self {
        // SAFETY: no pointers. The call can't fail.
        Pid(unsafe { libc::getpid() })
    }
}

/// The effective user of this process: the one that peers see on a socket.
pub fn own_uid() -> u32 {
    // SAFETY: no pointers. The call can't fail.
    unsafe { libc::geteuid() }
}

/// Whether a peer's user, as the kernel gives it, is certainly the user of this process.
///
/// In a user namespace, all users without a number there appear as one, the overflow user. If this
/// process itself runs as the overflow user, it can't tell other users from its own; the answer is
/// `false` then.
pub fn is_own_user(uid: u32) -> bool {
    uid == own_uid() && (uid != overflow_uid() || has_all_users())
}

/// Reads what [`is_own_user`] needs to know about this process, so that it has the answer when no
/// descriptor is left to read it with.
pub fn learn_own_user() {
    is_own_user(own_uid());
}

/// The number that stands for all users without a number in a namespace, see user_namespaces(7). It
/// is the same in all namespaces; it is read once.
fn overflow_uid() -> u32 {
    static NUMBER: OnceLock<u32> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        let text = fs::read_to_string("/proc/sys/kernel/overflowuid");
        text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(65534)
    })
}

/// Whether every user has a number in this process' user namespace. It is read once: a process that
/// enters another namespace later has made its workers in this one.
fn has_all_users() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    if let Some(answer) = ANSWER.get() {
        return *answer;
    }
    let map = fs::read_to_string("/proc/self/uid_map");
    map.is_ok_and(|map| *ANSWER.get_or_init(|| maps_all_users(&map)))
}

/// Whether a uid_map, the text of /proc/PID/uid_map, covers all of the 2^32 - 1 users.
fn maps_all_users(map: &str) -> bool {
    let counts = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    counts.sum::<u64>() >= u64::from(u32::MAX)
}

/// A pidfd: a descriptor that becomes readable when the process ends.
pub fn open(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: no pointers. The descriptor is close-on-exec from the start, see pidfd_open(2).
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.0, 0) };
    let fd = i32::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: a new descriptor.
    unsafe { descriptor(fd) }
}

/// The inode number of a pidfd. Since Linux 6.9 no other process has the same number until a
/// reboot; before, all pidfds have the same number. 0 if it can't be read.
pub fn inode(pidfd: BorrowedFd<'_>) -> u64 {
    // SAFETY: all zeros is a valid `stat`, which lives through the call.
    let (answer, inode) = unsafe {
        let mut about: libc::stat = std::mem::zeroed();
        (libc::fstat(pidfd.as_raw_fd(), &raw mut about), about.st_ino)
    };
    if answer == 0 { inode } else { 0 }
}

/// Whether the process behind a pidfd has ended.
pub fn has_ended(pidfd: BorrowedFd<'_>) -> bool {
    super::event::is_readable(pidfd)
}

/// Whether the process behind a pidfd has ended, or the other end of a connected socket was shut
/// down or closed, even if bytes are left to read. One system call finds out both.
pub fn has_ended_or_hung_up(pidfd: BorrowedFd<'_>, socket: BorrowedFd<'_>) -> bool {
    let entry =
        |fd: BorrowedFd<'_>, events| libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    let mut polls = [entry(pidfd, libc::POLLIN), entry(socket, libc::POLLRDHUP)];
    // SAFETY: two entries, which live through the call.
    unsafe { libc::poll(polls.as_mut_ptr(), 2, 0) > 0 }
}

/// A part of another process' memory.
fn remote_part(address: u64, length: usize) -> io::Result<libc::iovec> {
    let address =
        usize::try_from(address).map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))?;
    Ok(libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: length })
}

/// Reads another process' memory into `into` by process_vm_readv(2), and returns how many bytes
/// were read, which may be fewer than `into` has.
///
/// The call blocks while the other process withholds a page (userfaultfd(2), a mapped file of
/// FUSE). `pid` may have come to mean another process: the caller checks what was read.
pub fn read_memory(pid: Pid, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let local = part_of(into);
    let remote = remote_part(address, into.len())?;
    // SAFETY: the local part is a slice that nothing else refers to; the kernel checks the remote
    // part against the other process' memory.
    check_count(unsafe {
        libc::process_vm_readv(pid.0, &raw const local, 1, &raw const remote, 1, 0)
    })
}

/// Bytes of a nonce, which tells that a process still has what was read before.
pub const NONCE_BYTES: usize = 16;

/// Bytes of another process' memory, and where they go.
pub struct ReadPart<'a> {
    /// Where they begin in the other process.
    pub address: u64,
    /// As many bytes as are read.
    pub into: &'a mut [MaybeUninit<u8>],
}

/// Most parts that [`read_memory_then_nonce`] takes.
pub const READ_PARTS_MAX: usize = 8;

/// As [`read_memory`], several parts one behind the other, into memory that needn't be initialised;
/// then reads the nonce at `nonce_at` in the same call. Returns how many bytes were read before it,
/// and the nonce, which has zeros where it was not read. The kernel reads the parts in their order
/// (process_vm_readv(2)). Parts beyond the first [`READ_PARTS_MAX`] are not read.
pub fn read_memory_then_nonce<'a>(
    pid: Pid,
    parts: impl IntoIterator<Item = ReadPart<'a>>,
    nonce_at: u64,
) -> io::Result<(usize, [u8; NONCE_BYTES])> {
    let mut nonce = [0; NONCE_BYTES];
    let mut local = [part_of::<u8>(&mut []); READ_PARTS_MAX + 1];
    let mut remote = local;
    let mut length = 0;
    let mut count = 0;
    for ReadPart { address, into } in parts.into_iter().take(READ_PARTS_MAX) {
        remote[count] = remote_part(address, into.len())?;
        local[count] = part_of(into);
        length += into.len();
        count += 1;
    }
    remote[count] = remote_part(nonce_at, NONCE_BYTES)?;
    local[count] = part_of(&mut nonce);
    let parts = count as libc::c_ulong + 1;
    // SAFETY: the local parts are slices and an array that nothing else refers to; the kernel
    // checks the remote parts against the other process' memory.
    let read = check_count(unsafe {
        libc::process_vm_readv(pid.0, local.as_ptr(), parts, remote.as_ptr(), parts, 0)
    })?;
    Ok((read.min(length), nonce))
}

/// Writes `from` into another process' memory by process_vm_writev(2), and returns how many bytes
/// were written, which may be fewer than `from` has.
///
/// The call blocks as [`read_memory`] does. `pid` may have come to mean another process: the caller
/// checks before that it doesn't.
pub fn write_memory(pid: Pid, address: u64, from: &[u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let remote = remote_part(address, from.len())?;
    // SAFETY: the kernel reads the local part, which is a slice, and checks the remote part against
    // the other process' memory.
    check_count(unsafe {
        libc::process_vm_writev(pid.0, &raw const local, 1, &raw const remote, 1, 0)
    })
}

/// Lets any process of this user read this process' memory (`PR_SET_PTRACER_ANY`) where Yama's
/// scope 1 would allow that to its ancestors only. Fails where there is no Yama.
pub fn allow_readers() -> io::Result<()> {
    // SAFETY: prctl(2) with PR_SET_PTRACER takes a number. `PR_SET_PTRACER_ANY` is -1 as a long.
    check(unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) }).map(drop)
}

/// Whether the kernel lets other processes of this user read this process' memory at all, see
/// `PR_SET_DUMPABLE` in prctl(2).
pub fn is_dumpable() -> bool {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) == 1 }
}

fn membarrier(command: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: no pointers.
    let answer = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    check(i32::try_from(answer).map_err(|_| io::ErrorKind::InvalidData)?)
}

/// Registers this process, so that [`barrier_everywhere`] in any process reaches it.
pub fn register_for_barriers() -> io::Result<()> {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED).map(drop)
}

/// Puts a full memory barrier on every running thread of every registered process, by membarrier(2)
/// (`MEMBARRIER_CMD_GLOBAL_EXPEDITED`).
pub fn barrier_everywhere() -> io::Result<()> {
    membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED).map(drop)
}

/// The number below which this process's descriptors are (`RLIMIT_NOFILE`); `None` for no limit.
pub fn descriptor_limit() -> Option<u64> {
    limit(libc::RLIMIT_NOFILE)
}

/// Bytes that a file of this process may have, one of memory as well (`RLIMIT_FSIZE`); `None` for
/// no limit.
pub fn file_size_limit() -> Option<u64> {
    limit(libc::RLIMIT_FSIZE)
}

/// Looks whether this process may make a file so long. To go beyond the limit raises SIGXFSZ, which
/// ends a process that doesn't expect it.
///
/// # Errors
/// `EFBIG`: it may not.
pub fn check_file_size(bytes: u64) -> io::Result<()> {
    if file_size_limit().is_some_and(|limit| bytes > limit) {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    Ok(())
}

/// Bytes of memory that this process may lock (`RLIMIT_MEMLOCK`); `None` for no limit.
pub fn locked_memory_limit() -> Option<u64> {
    limit(libc::RLIMIT_MEMLOCK)
}

/// How often the scheduler has let another thread run while this thread could have gone on: also in
/// calls of sched_yield(2). See getrusage(2), `ru_nivcsw`. Takes a fifth of a microsecond.
pub fn switches() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` lives through the call, which fills it. Zeros are a value of it.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nivcsw.try_into().unwrap_or(0)
}

/// A limit of this process, see getrlimit(2); `None` for no limit.
pub(crate) fn limit(of: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` lives through the call, which fills it.
    let answer = unsafe { libc::getrlimit(of, &raw mut limit) };
    (answer == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_yield_to_another_thread_counts_as_a_switch() {
        use std::sync::atomic::{AtomicBool, Ordering};
        // Both threads run on the processor of this one.
        // SAFETY: zeros are the empty set.
        let mut set = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
        let size = size_of::<libc::cpu_set_t>();
        // SAFETY: plain data, of the size that is given; the set has at least one processor.
        let is_pinned = unsafe {
            libc::CPU_SET(usize::try_from(libc::sched_getcpu()).unwrap_or(0), &mut set);
            libc::sched_setaffinity(0, size, &raw const set)
        };
        assert_eq!(is_pinned, 0);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let busy = || {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            scope.spawn(busy);
            let before = switches();
            while switches() < before + 3 {
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn the_end_of_a_process_and_of_a_socket_are_both_noticed() {
        use std::io::Write;
        use std::os::fd::AsFd;
        use std::os::unix::net::UnixStream;
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pidfd = open(Pid(child.id().cast_signed())).unwrap();
        let (socket, there) = UnixStream::pair().unwrap();
        let is_gone = || has_ended_or_hung_up(pidfd.as_fd(), socket.as_fd());
        assert!(!is_gone());
        // A wake that waits in the socket is no end.
        (&there).write_all(b"w").unwrap();
        assert!(!is_gone());
        there.shutdown(std::net::Shutdown::Both).unwrap();
        assert!(is_gone());
        let (other, _there) = UnixStream::pair().unwrap();
        assert!(!has_ended_or_hung_up(pidfd.as_fd(), other.as_fd()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_ended_or_hung_up(pidfd.as_fd(), other.as_fd()));
    }

    #[test]
    fn a_namespace_that_lacks_users_is_told_from_one_that_has_all() {
        assert!(maps_all_users("         0          0 4294967295\n"));
        assert!(maps_all_users("0 0 1000\n1000 1000 4294966295\n"));
        assert!(!maps_all_users("0 1000 1\n"));
        assert!(!maps_all_users(""));
        assert!(is_own_user(own_uid()) && !is_own_user(own_uid() ^ 1));
    }
}
