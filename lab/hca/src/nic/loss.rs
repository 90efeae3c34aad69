//! The loss of a device, as when its firmware fails and the driver resets it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::fault::{DeviceLoss, Fuse};

/// How often a device was lost, when it comes back, and at which operation it is lost next.
#[derive(Debug, Default)]
pub(super) struct LossState {
    times: AtomicU32,
    /// When programs can open the device again, in microseconds since the start.
    back_at: AtomicU64,
    /// How long the device is away after the next loss, in microseconds.
    lasts: AtomicU64,
    /// Operations until the next loss, that one included; 0: none is to come.
    requests: AtomicU32,
    commands: AtomicU32,
}

/// What a device does for a program, and may be lost at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceOperation {
    Request,
    Command,
}

impl LossState {
    /// Prepares a loss. `now`: the time since the start, in microseconds.
    pub(super) fn prepare(&self, loss: DeviceLoss, now: u64) {
        let lasts = u64::try_from(loss.lasts.as_micros()).unwrap_or(u64::MAX);
        self.lasts.store(lasts, Ordering::Relaxed);
        match loss.fuse {
            Fuse::Now | Fuse::Requests(0) | Fuse::Commands(0) => self.lose(now),
            Fuse::Requests(count) => self.requests.store(count, Ordering::Release),
            Fuse::Commands(count) => self.commands.store(count, Ordering::Release),
        }
    }

    fn lose(&self, now: u64) {
        let until = now.saturating_add(self.lasts.load(Ordering::Relaxed));
        self.back_at.store(until, Ordering::Relaxed);
        self.times.fetch_add(1, Ordering::Release);
    }

    /// An operation begins; whether the device is lost with it.
    pub(super) fn begin(&self, operation: DeviceOperation, now: impl Fn() -> u64) -> bool {
        let left = match operation {
            DeviceOperation::Request => &self.requests,
            DeviceOperation::Command => &self.commands,
        };
        if left.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let count = |left: u32| left.checked_sub(1);
        let is_last = left.fetch_update(Ordering::AcqRel, Ordering::Relaxed, count) == Ok(1);
        if is_last {
            self.lose(now());
        }
        is_last
    }

    pub(super) fn times(&self) -> u32 {
        self.times.load(Ordering::Acquire)
    }

    pub(super) fn is_back(&self, now: u64) -> bool {
        self.back_at.load(Ordering::Relaxed) <= now
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_device_is_lost_with_the_operation_that_was_chosen_and_once() {
        let state = LossState::default();
        let request = |now| state.begin(DeviceOperation::Request, || now);
        assert!(!request(1));
        let lasts = Duration::from_micros(10);
        state.prepare(DeviceLoss { lasts, fuse: Fuse::Requests(2) }, 2);
        assert!(!state.begin(DeviceOperation::Command, || 3));
        assert_eq!([request(3), request(5), request(6)], [false, true, false]);
        assert_eq!((state.times(), state.is_back(14), state.is_back(15)), (1, false, true));
        state.prepare(DeviceLoss { lasts, fuse: Fuse::Now }, 20);
        assert_eq!((state.times(), state.is_back(29), state.is_back(30)), (2, false, true));
        state.prepare(DeviceLoss { lasts, fuse: Fuse::Commands(1) }, 40);
        assert!(state.begin(DeviceOperation::Command, || 50));
    }
}
