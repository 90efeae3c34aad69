//! What tests ask of the kernel about processes: signals, and descriptors for a large test.

use std::io::{Write, stderr};

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
