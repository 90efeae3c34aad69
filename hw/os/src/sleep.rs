//! Sleeping until a descriptor is readable, and waking a sleeper.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

use super::{check, descriptor, safety};

/// Of so many calls here, one pauses in tests.
const SHAKES: u32 = 8;

/// Blocks until one of the descriptors is readable or the time is over. Returns `true` if one is
/// readable, `false` at the end of the time and when a signal interrupts the call.
pub fn sleep_until_readable(descriptors: &[BorrowedFd<'_>], time: Duration) -> io::Result<bool> {
    safety::shake(SHAKES);
    let watch =
        |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut watched: Vec<libc::pollfd> = descriptors.iter().map(watch).collect();
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    let count = watched.len() as libc::nfds_t;
    // SAFETY: `watched` is an array of `count` pollfds that nothing else refers to. `time` lives
    // through the call. Without a mask the call leaves the thread's signals as they are.
    match check(unsafe { libc::ppoll(watched.as_mut_ptr(), count, &raw const time, ptr::null()) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        ready => ready.map(|count| count > 0),
    }
}

/// An eventfd(2) that wakes a sleeping thread: the thread sleeps until the descriptor is readable,
/// and other threads make it readable with [`EventFd::signal`]. It implements [`Wake`], so a
/// request wakes a sleeping thread in the same way as it wakes a task.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new eventfd, not readable.
    pub fn new() -> io::Result<Self> {
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        // SAFETY: no pointers, and a new descriptor.
        unsafe { descriptor(libc::eventfd(0, flags)) }.map(EventFd)
    }

    /// Makes the descriptor readable.
    pub fn signal(&self) {
        safety::shake(SHAKES);
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes. The call fails only if the counter is full, and then the
        // descriptor is readable already.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes the descriptor unreadable until the next signal.
    pub fn clear(&self) {
        safety::shake(SHAKES);
        let mut count = [0u8; 8];
        // SAFETY: eight writable bytes. The call fails only if the counter is zero, and then the
        // descriptor is unreadable already.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl From<OwnedFd> for EventFd {
    /// Takes over an eventfd.
    fn from(fd: OwnedFd) -> Self {
        EventFd(fd)
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wake for EventFd {
    fn wake(self: Arc<Self>) {
        self.signal();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn an_eventfd_wakes_until_it_is_cleared() {
        let eventfd = EventFd::new().unwrap();
        let asleep = |time| sleep_until_readable(&[eventfd.as_fd()], Duration::from_millis(time));
        assert!(!asleep(0).unwrap());
        eventfd.signal();
        eventfd.signal();
        assert!(asleep(60_000).unwrap());
        eventfd.clear();
        assert!(!asleep(0).unwrap());
    }

    #[test]
    fn a_sleep_shorter_than_a_millisecond_is_a_sleep() {
        let eventfd = EventFd::new().unwrap();
        let start = Instant::now();
        let time = Duration::from_micros(300);
        assert!(!sleep_until_readable(&[eventfd.as_fd()], time).unwrap());
        assert!(start.elapsed() >= time);
    }
}
