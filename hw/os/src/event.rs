//! Epoll descriptors and timers: what a device watches, and what wakes a thread that sleeps on it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::{check, descriptor, exit_audit};

/// Most descriptors that one call of [`Epoll::ready`] reports.
pub const BATCH: usize = 32;

/// A set of watched descriptors. The caller gives each a number, by which it is reported.
pub struct Epoll(OwnedFd);

impl Epoll {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        exit_audit::begin();
        // SAFETY: no pointers, and a new descriptor.
        unsafe { descriptor(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }.map(Epoll)
    }

    /// Watches `fd`: it is reported while it is readable or at its end.
    pub fn watch(&self, fd: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, number)
    }

    /// Stops reporting that a watched descriptor is readable, or resumes.
    pub fn mute(&self, fd: BorrowedFd<'_>, number: u64, muted: bool) -> io::Result<()> {
        let interest = if muted { 0 } else { libc::EPOLLIN };
        self.control(libc::EPOLL_CTL_MOD, fd, interest, number)
    }

    /// Also reports a watched descriptor while it is writable, or stops doing so.
    pub fn watch_room(&self, fd: BorrowedFd<'_>, number: u64, wanted: bool) -> io::Result<()> {
        let room = if wanted { libc::EPOLLOUT } else { 0 };
        self.control(libc::EPOLL_CTL_MOD, fd, libc::EPOLLIN | room, number)
    }

    /// Reports a watched descriptor while it is writable, and no longer while it is readable.
    pub fn watch_room_alone(&self, fd: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, libc::EPOLLOUT, number)
    }

    /// Stops watching a descriptor. Needed before it is closed: if a forked child has it open as
    /// well, the kernel would go on reporting it.
    pub fn forget(&self, fd: BorrowedFd<'_>) {
        // The call fails only if the descriptor isn't watched, and then there is nothing to do.
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    fn control(&self, what: i32, fd: BorrowedFd<'_>, interest: i32, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest.cast_unsigned(), u64: number };
        // SAFETY: `event` lives through the call.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), what, fd.as_raw_fd(), &raw mut event) })
            .map(drop)
    }

    /// Stores the numbers of the descriptors that are ready now and returns how many there are.
    /// Doesn't block. The next call reports those for which there was no room.
    pub fn ready(&self, numbers: &mut [u64; BATCH]) -> usize {
        let mut ready = [ReadyDescriptor::default(); BATCH];
        let count = self.ready_with_room(&mut ready);
        for (number, ready) in numbers.iter_mut().zip(&ready[..count]) {
            *number = ready.number;
        }
        count
    }

    /// As [`Epoll::ready`], and tells whether each descriptor can be written to.
    pub fn ready_with_room(&self, ready: &mut [ReadyDescriptor; BATCH]) -> usize {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        let room = i32::try_from(BATCH).unwrap_or(1);
        // SAFETY: `events` has room for `room` entries.
        let answer = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), room, 0) };
        // EINTR is the only error that can happen here. It counts as nothing ready.
        let count = usize::try_from(answer).unwrap_or(0);
        for (ready, event) in ready.iter_mut().zip(&events[..count]) {
            let found = event.events.cast_signed();
            *ready = ReadyDescriptor {
                number: event.u64,
                is_readable: found & !libc::EPOLLOUT != 0,
                has_room: found & libc::EPOLLOUT != 0,
            };
        }
        count
    }
}

/// A descriptor that is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadyDescriptor {
    /// The number under which it is watched.
    pub number: u64,
    /// There are bytes to receive, or the connection has ended or failed.
    pub is_readable: bool,
    /// There is room for bytes to send.
    pub has_room: bool,
}

impl From<OwnedFd> for Epoll {
    /// Takes over an epoll descriptor.
    fn from(fd: OwnedFd) -> Self {
        Epoll(fd)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A timerfd(2), which becomes readable when its time is over.
pub struct Timer(OwnedFd);

impl Timer {
    /// A timer that is not set.
    pub fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no pointers, and a new descriptor.
        unsafe { descriptor(libc::timerfd_create(libc::CLOCK_MONOTONIC, flags)) }.map(Timer)
    }

    /// Makes the timer readable after `delay`, or never. The earlier setting is replaced, and a
    /// timer that was readable is unreadable again.
    pub fn set(&self, delay: Option<Duration>) {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = delay.map_or(zero, |delay| libc::timespec {
            tv_sec: i64::try_from(delay.as_secs()).unwrap_or(i64::MAX),
            // Zero would stop the timer.
            tv_nsec: i64::from(delay.subsec_nanos().max(1)),
        });
        let setting = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: `setting` lives through the call, and the old setting is not asked for. The call
        // can't fail: the descriptor is a timer and the values are in range.
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

/// Whether `fd` is readable or at its end now.
pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives through the call.
    unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
}
