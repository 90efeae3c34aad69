//! Threads that have a descriptor table of their own.
//!
//! `RLIMIT_NOFILE` bounds each descriptor table, and threads of a process usually share one. What a
//! thread with a table of its own holds open takes no descriptor of the program. A child that
//! another thread forks doesn't get it, nor does a program that is started by exec(3).
//!
//! Such a thread runs no signal handler of the program, since the descriptors that a handler writes
//! to mean something else in its table.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc;
use std::thread;

use super::signals::AllSignalsBlocked;

/// `CLOSE_RANGE_UNSHARE`, since Linux 5.9: the calling thread gets a table of its own first.
const UNSHARE: libc::c_uint = 2;

/// Starts a thread whose descriptor table has the descriptors of `kept` alone, and runs `body`
/// there with its own references to them. `stack_bytes`: the size of the thread's stack.
///
/// The thread must close its descriptors itself: elsewhere their numbers mean other descriptors.
///
/// # Errors
/// No thread can be started, or the kernel is older than 5.9 or forbids close_range(2). `body`
/// doesn't run then.
///
/// # Safety
/// `body` neither gives a descriptor to another thread, nor calls code that closes descriptors on
/// another thread.
pub unsafe fn spawn<const N: usize>(
    name: &str,
    stack_bytes: usize,
    kept: [BorrowedFd<'_>; N],
    body: impl FnOnce([OwnedFd; N]) + Send + 'static,
) -> io::Result<()> {
    let numbers = kept.map(|fd| fd.as_raw_fd());
    let (sender, receiver) = mpsc::sync_channel(1);
    // The thread inherits the mask, so that there is no moment without it.
    let _blocked = AllSignalsBlocked::new();
    thread::Builder::new().name(name.into()).stack_size(stack_bytes).spawn(move || {
        let alone = keep_alone(numbers);
        let is_alone = alone.is_ok();
        // The caller keeps the descriptors open until it was receiver.
        if sender.send(alone).is_ok() && is_alone {
            // SAFETY: the numbers are those of this thread's table, in which nothing else uses
            // them.
            body(numbers.map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
        }
    })?;
    receiver.recv().map_err(|_| io::ErrorKind::BrokenPipe)?
}

/// Gives this thread a table of its own that has only these descriptors.
fn keep_alone<const N: usize>(kept: [RawFd; N]) -> io::Result<()> {
    let mut kept = kept.map(RawFd::cast_unsigned);
    // From the last one on: what is above all of them is not copied into the new table at all.
    kept.sort_unstable();
    let mut last = libc::c_uint::MAX;
    for number in kept.into_iter().rev() {
        if number < last {
            close_range(number + 1, last)?;
        }
        last = number.saturating_sub(1);
    }
    if kept.first().is_some_and(|first| *first > 0) { close_range(0, last) } else { Ok(()) }
}

/// Closes a range of descriptors, in a table of this thread alone: the first call makes the table.
fn close_range(first: libc::c_uint, last: libc::c_uint) -> io::Result<()> {
    // SAFETY: no pointers. Other threads keep their descriptors, since the table is this thread's.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, first, last, UNSHARE) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sleep::EventFd;
    use std::os::fd::AsFd;

    /// The signals that this thread blocks, as bits (proc(5), `SigBlk`).
    fn blocked_signals() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(blocked.trim(), 16).unwrap()
    }

    #[test]
    fn a_thread_has_the_descriptors_that_it_was_given_and_no_other() {
        let given = [EventFd::new().unwrap(), EventFd::new().unwrap()];
        let other = EventFd::new().unwrap();
        let kept = given.each_ref().map(AsFd::as_fd);
        let (sender, receiver) = mpsc::channel();
        // SAFETY: the thread gives no descriptor away.
        let started = unsafe {
            spawn("test", 1 << 16, kept, move |given| {
                let open = std::fs::read_dir("/proc/thread-self/fd").unwrap().count();
                let given = given.each_ref().map(AsRawFd::as_raw_fd);
                sender.send((given, open, blocked_signals())).unwrap();
            })
        };
        started.unwrap();
        let (numbers, open, blocked) = receiver.recv().unwrap();
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1, libc::SIGALRM, libc::SIGCHLD] {
            assert!(blocked >> (signal - 1) & 1 == 1 && blocked_signals() >> (signal - 1) & 1 == 0);
        }
        assert_eq!(numbers, kept.map(|fd| fd.as_raw_fd()));
        // One is open for reading the directory.
        assert_eq!(open, 3);
        // The thread has closed its own: those of this thread are open still.
        while std::fs::read_dir("/proc/self/task").unwrap().any(|task| {
            std::fs::read_to_string(task.unwrap().path().join("comm"))
                .is_ok_and(|name| name == "test\n")
        }) {
            thread::yield_now();
        }
        for eventfd in given.iter().chain([&other]) {
            eventfd.signal();
            assert!(crate::event::is_readable(eventfd.as_fd()));
        }
    }
}
