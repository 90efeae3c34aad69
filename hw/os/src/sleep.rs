//! Sleeping until a descriptor is readable, and waking a sleeper.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

/// Blocks until one of the descriptors is readable or the time is over; `true` if one is.
///
/// Being interrupted by a signal counts as the end of the time.
pub fn sleep_until_readable(descriptors: &[BorrowedFd<'_>], time: Duration) -> io::Result<bool> {
    let watch =
        |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut watched: Vec<libc::pollfd> = descriptors.iter().map(watch).collect();
    let milliseconds = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
    let count = watched.len() as libc::nfds_t;
    // SAFETY: `watched` is an array of `count` pollfds, ours alone for the time of the call.
    let ready = unsafe { libc::poll(watched.as_mut_ptr(), count, milliseconds) };
    match ready {
        0 => Ok(false),
        1.. => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            error => Err(error),
        },
    }
}

/// An eventfd(2) that wakes a thread which sleeps on it. It is a [`Wake`], so that a request can
/// wake a sleeping thread just as it wakes a task.
#[derive(Debug)]
pub struct Nudge(OwnedFd);

impl Nudge {
    /// A new one, not readable.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just made and that nobody else owns.
        Ok(Nudge(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes it readable.
    pub fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes. The result doesn't matter: a full counter is readable too.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes it unreadable.
    pub fn reset(&self) {
        let mut count = [0u8; 8];
        // SAFETY: eight writable bytes. The result doesn't matter: an empty counter is unreadable.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsFd for Nudge {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wake for Nudge {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nudge_wakes_and_resets() {
        let nudge = Nudge::new().unwrap();
        let asleep = |time| sleep_until_readable(&[nudge.as_fd()], Duration::from_millis(time));
        assert!(!asleep(0).unwrap());
        nudge.ring();
        nudge.ring();
        assert!(asleep(60_000).unwrap());
        nudge.reset();
        assert!(!asleep(0).unwrap());
    }
}
