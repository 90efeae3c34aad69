//! Sleeping until the device has something to do.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::Ucx;
use super::connect::Doors;
use tagmatch_device::DeviceError;
use tagmatch_os::event::{Epoll, Timer};

/// How often to look where UCX can't wake, or while a peer's end is under way.
const PERIOD: Duration = Duration::from_millis(1);

/// One descriptor over the handshake's sockets, UCX's own descriptor and a timer.
pub(super) struct Alarm {
    epoll: Epoll,
    timer: Timer,
    is_armed: bool,
    is_stirred: bool,
}

impl Alarm {
    pub(super) fn new(doors: &Doors, ucx: Option<BorrowedFd<'_>>) -> Result<Self, DeviceError> {
        let open = || -> io::Result<Alarm> {
            let (epoll, timer) = (Epoll::new()?, Timer::new()?);
            epoll.watch(doors.descriptor(), 0)?;
            epoll.watch(timer.as_fd(), 0)?;
            if let Some(descriptor) = ucx {
                epoll.watch(descriptor, 0)?;
            }
            Ok(Alarm { epoll, timer, is_armed: false, is_stirred: false })
        };
        open().map_err(DeviceError::system("make a descriptor to sleep on", ""))
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Something was begun, of which the descriptor may not tell.
    #[inline]
    pub(super) fn stir(&mut self) {
        self.is_stirred = self.is_armed;
    }

    /// Ends what arming began.
    pub(super) fn rest(&mut self) {
        self.timer.set(None);
        self.is_armed = false;
        self.is_stirred = false;
    }
}

impl Ucx {
    /// See [`MatchingDevice::arm`](tagmatch_device::matching::MatchingDevice::arm).
    pub(super) fn fall_asleep(&mut self) -> bool {
        self.look(Instant::now());
        let has_work = |ucx: &Ucx| !ucx.events.is_empty() || ucx.operations.has_ends();
        if has_work(self) || self.worker.progress() || has_work(self) {
            return false;
        }
        if self.operations.ends().faults.get() > 0 {
            return false;
        }
        let wakes = self.worker.descriptor().is_some();
        if wakes && !self.worker.arm() {
            return false;
        }
        let is_ending = !self.peers.leaving.is_empty() || !self.closing.is_empty();
        let now = Instant::now();
        let due = self.next_due().map(|due| due.saturating_duration_since(now));
        let period = (is_ending || !wakes).then_some(PERIOD);
        self.alarm.timer.set(due.into_iter().chain(period).min());
        self.alarm.is_armed = true;
        self.alarm.is_stirred = false;
        true
    }

    /// See [`MatchingDevice::has_work`](tagmatch_device::matching::MatchingDevice::has_work). Who doesn't sleep learns
    /// also whether ends are under way, of which the timer tells a sleeper.
    pub(super) fn is_busy(&self) -> bool {
        let is_ending = !self.peers.leaving.is_empty() || !self.closing.is_empty();
        let has_begun = if self.alarm.is_armed { self.alarm.is_stirred } else { is_ending };
        has_begun || !self.events.is_empty() || self.operations.has_ends()
    }
}
