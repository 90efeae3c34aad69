//! Sleeping: one epoll descriptor covers the descriptors of all devices.

use std::os::fd::{AsFd, BorrowedFd};

use tagmatch_device::{DeviceError, EventDescriptor, InCall, JoinAndSleep};
use tagmatch_os::event::Epoll;

use super::device::Routed;

impl<L: JoinAndSleep> Routed<L> {
    /// Makes one device of a local one and of networks, each of another kind. No peer knows their
    /// addresses yet.
    ///
    /// # Errors
    /// [`DeviceError::System`] if the system has no descriptors left; [`DeviceError::BadAddress`]
    /// if what the networks have to say doesn't fit into an address.
    pub fn new(local: L, devices: Vec<Box<dyn JoinAndSleep + Send>>) -> Result<Self, DeviceError> {
        let epoll = Epoll::new().in_call("epoll_create1")?;
        epoll.watch(local.event_descriptor(), 0).in_call("epoll_ctl")?;
        for device in &devices {
            epoll.watch(device.event_descriptor(), 0).in_call("epoll_ctl")?;
        }
        Self::with_sleep(local, devices, epoll)
    }
}

impl<L> EventDescriptor for Routed<L> {
    fn event_descriptor(&self) -> BorrowedFd<'_> {
        self.sleep.as_fd()
    }
}
