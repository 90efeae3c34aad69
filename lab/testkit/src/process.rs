//! What tests ask of the kernel about processes: signals, and descriptors for a large test.

use std::fs::File;
use std::io::{Write, stderr};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

pub use rustix::process::Signal;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, kill_process, setrlimit};

/// Sends a signal to a process, as kill(1) does, which minimal systems lack.
///
/// # Panics
/// If there is no such process, or if it is another user's.
pub fn send_signal(process: u32, signal: Signal) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process id"), signal).expect("a process that takes the signal");
}

/// Whether this process can have `count` descriptors. Raises the soft limit to `count`, for all
/// tests of the process, where it is lower: it is 1024 on most machines, and the hard limit is a
/// lot higher. Where the hard limit is too low, `false`, and a line for the caller's skip.
#[must_use]
pub fn may_have_descriptors(count: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    let has = |limit: Option<u64>| limit.is_none_or(|limit| limit >= count);
    if has(limit.current) {
        return true;
    }
    let raised = Rlimit { current: Some(count), maximum: limit.maximum };
    if has(limit.maximum) && setrlimit(Resource::Nofile, raised).is_ok() {
        return true;
    }
    // The harness keeps what a test prints, unless the test fails. It doesn't keep these bytes.
    let line = format!("\nSKIPPED: needs {count} descriptors, see `ulimit -Hn`\n");
    stderr().write_all(line.as_bytes()).expect("standard error takes a line");
    false
}

/// Sets the soft limit of descriptors of this process.
///
/// # Panics
/// If the hard limit is lower.
pub fn limit_descriptors(count: u64) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let lower = Rlimit { current: Some(count), maximum };
    setrlimit(Resource::Nofile, lower).expect("a limit up to the hard one");
}

/// Raises the soft limit of descriptors as far as 4096, once: the tests of a program run beside
/// each other, and share what the process may have.
pub fn share_descriptors() {
    const WANTED: u64 = 4096;
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        if current.is_some_and(|current| current < WANTED) {
            let raised = maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
            let limit = Rlimit { current: Some(raised), maximum };
            setrlimit(Resource::Nofile, limit).expect("a limit up to the hard one");
        }
    });
}

/// The descriptors of this process, for tests that use them up. Such tests run one by one, and are
/// in a program of their own.
pub struct Descriptors {
    _alone: MutexGuard<'static, ()>,
}

impl Descriptors {
    /// The most that a process with such tests has.
    pub const MAX: u64 = 200;

    /// Waits for the other tests of the program, and lowers the soft limit to [`Descriptors::MAX`].
    ///
    /// # Panics
    /// If the limit can't be lowered.
    #[must_use]
    pub fn alone() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let limit =
            Rlimit { current: Some(Self::MAX), maximum: getrlimit(Resource::Nofile).maximum };
        setrlimit(Resource::Nofile, limit).expect("a limit that can be lowered");
        Descriptors { _alone: alone }
    }

    /// Opens descriptors until only `free` can be opened, and gives them.
    ///
    /// # Panics
    /// If fewer are free.
    #[must_use]
    pub fn leave(&self, free: usize) -> Vec<OwnedFd> {
        let mut open: Vec<OwnedFd> = Vec::new();
        // Descriptors that peers have sent are closed on another thread, which may not be done.
        loop {
            let before = open.len();
            while let Ok(another) = File::open("/proc/self/exe") {
                open.push(another.into());
            }
            if open.len() == before {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let held = open.len().checked_sub(free).expect("so many free descriptors");
        open.truncate(held);
        open
    }
}
