//! Waiting: an epoll descriptor and a timer.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::check;

/// How many descriptors one look at an [`Epoll`] reports.
pub const BATCH: usize = 32;

/// A set of descriptors, each with a number that says what it is.
pub struct Epoll(OwnedFd);

impl Epoll {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel has just given us this descriptor.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Watches `fd` for something to read, or an end.
    pub fn watch(&self, fd: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, number)
    }

    /// Stops or resumes looking at a watched descriptor.
    pub fn mute(&self, fd: BorrowedFd<'_>, number: u64, muted: bool) -> io::Result<()> {
        let interest = if muted { 0 } else { libc::EPOLLIN };
        self.control(libc::EPOLL_CTL_MOD, fd, interest, number)
    }

    /// Watches a descriptor for room to write as well, or no longer.
    pub fn watch_room(&self, fd: BorrowedFd<'_>, number: u64, wanted: bool) -> io::Result<()> {
        let room = if wanted { libc::EPOLLOUT } else { 0 };
        self.control(libc::EPOLL_CTL_MOD, fd, libc::EPOLLIN | room, number)
    }

    /// Forgets a descriptor. Needed before closing it: a forked child may hold it open, and then
    /// the kernel would go on reporting it.
    pub fn forget(&self, fd: BorrowedFd<'_>) {
        // Fails only if the descriptor isn't watched, and then there is nothing to do.
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    fn control(&self, what: i32, fd: BorrowedFd<'_>, interest: i32, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest.cast_unsigned(), u64: number };
        // SAFETY: `event` lives through the call.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), what, fd.as_raw_fd(), &raw mut event) })
            .map(drop)
    }

    /// The numbers of what is ready now, without waiting. At most [`BATCH`]; the rest next time.
    pub fn ready(&self, numbers: &mut [u64; BATCH]) -> usize {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        let room = i32::try_from(BATCH).unwrap_or(1);
        // SAFETY: `events` has room for as many as said.
        let answer = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), room, 0) };
        // EINTR is the only error that can happen here: then there is nothing ready this time.
        let count = usize::try_from(answer).unwrap_or(0);
        for (number, event) in numbers.iter_mut().zip(&events[..count]) {
            *number = event.u64;
        }
        count
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A timer that becomes readable.
pub struct Timer(OwnedFd);

impl Timer {
    /// A timer that is not set.
    pub fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no pointers.
        let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        // SAFETY: the kernel has just given us this descriptor.
        Ok(Timer(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Becomes readable after `delay`, or never. Forgets what it was set to, and that it went off.
    pub fn set(&self, delay: Option<Duration>) {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = delay.map_or(zero, |delay| libc::timespec {
            tv_sec: i64::try_from(delay.as_secs()).unwrap_or(i64::MAX),
            // Zero would stop the timer.
            tv_nsec: i64::from(delay.subsec_nanos().max(1)),
        });
        let setting = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: `setting` lives through the call; no old setting is asked for. It can't fail: the
        // descriptor is a timer and the values are in range.
        unsafe {
            libc::timerfd_settime(self.0.as_raw_fd(), 0, &raw const setting, std::ptr::null_mut())
        };
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether `fd` is readable, or at its end, now.
pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, as said, that lives through the call.
    unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
}

/// Whether the other end of a connected socket has hung up, whatever is still to be read.
pub fn is_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one entry, as said, that lives through the call.
    let count = unsafe { libc::poll(&raw mut poll, 1, 0) };
    count > 0 && poll.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
}
