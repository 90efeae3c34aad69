//! Words for the person who runs a program, on standard error.
//!
//! A library must not fail because nobody can read its words: `eprintln!` panics if standard error
//! is a full disk or a pipe without a reader, and blocks if it is a full pipe. Here, what can't be
//! written is dropped.

use std::time::{Duration, Instant};

/// How long a notice waits for room in a pipe.
const PATIENCE: Duration = Duration::from_millis(100);

/// A pipe that is ready takes so many bytes at once, without blocking (`PIPE_BUF`).
const PORTION: usize = 4096;

/// Writes a line to standard error. Blocks for a tenth of a second at most, if that is a full pipe.
pub fn tell(line: &str) {
    print(&format!("{line}\n"), PATIENCE);
}

/// Writes a text to standard error. Blocks for `patience` at most, if that is a full pipe.
pub fn print(text: &str, patience: Duration) {
    let began = Instant::now();
    let mut rest = text.as_bytes();
    while !rest.is_empty() && is_writable(patience.saturating_sub(began.elapsed())) {
        let portion = &rest[..rest.len().min(PORTION)];
        // SAFETY: the portion is readable.
        let written =
            unsafe { libc::write(libc::STDERR_FILENO, portion.as_ptr().cast(), portion.len()) };
        match usize::try_from(written) {
            Ok(count) if count > 0 => rest = rest.get(count..).unwrap_or_default(),
            _ => return,
        }
    }
}

/// Whether standard error takes bytes, within this time. A pipe without a reader doesn't: the write
/// would end a program that is written in C (SIGPIPE).
fn is_writable(time: Duration) -> bool {
    let mut poll = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    let time_ms = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one pollfd, which nothing else refers to.
    unsafe { libc::poll(&raw mut poll, 1, time_ms) > 0 && poll.revents == libc::POLLOUT }
}
