//! A process that can start no thread for a while, since it may have no more memory. The limit is
//! the process's, so the test is alone in its program.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use tagmatch_os::background_close::{UncheckedDescriptors, is_busy};
use tagmatch_os::memory::page_bytes;

/// Sets the most bytes of memory that this process may have (`RLIMIT_AS`), and returns the number
/// before.
fn limit_memory(bytes: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives through both calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_AS, &raw mut limit), 0);
        let before = limit.rlim_cur;
        limit.rlim_cur = bytes.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &raw const limit), 0);
        before
    }
}

/// Bytes of memory that this process has (proc_pid_statm(5)).
fn memory_bytes() -> u64 {
    let sizes = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = sizes.split(' ').next().unwrap().parse().unwrap();
    pages * page_bytes() as u64
}

#[test]
fn descriptors_that_no_thread_could_close_keep_connections_away_and_are_closed_later() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    assert!(!is_busy());
    let before = limit_memory(memory_bytes());
    drop(UncheckedDescriptors(vec![theirs.into()]));
    let was_busy = is_busy();
    let was_open = ours.read(&mut [0]).is_err();
    limit_memory(before);
    assert!(was_open && was_busy, "{was_open} {was_busy}");
    let start = Instant::now();
    while is_busy() || ours.read(&mut [0]).is_err() {
        assert!(start.elapsed() < Duration::from_secs(20), "a descriptor is open");
        std::thread::yield_now();
    }
}
