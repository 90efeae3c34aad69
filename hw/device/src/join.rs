//! Devices that can be one of several of a worker.

use crate::{Address, Device, EventDescriptor, Network, PeerNumbers};

/// A device that can be one of several of a worker: all share the worker's address, and the numbers
/// of its peers.
pub trait Join: Device {
    /// The network that this device is on.
    fn network(&self) -> Network;

    /// The part of the worker's address about this network. A part whose length varies has at most
    /// `room` bytes.
    fn section(&self, room: usize) -> Vec<u8>;

    /// Makes this device one of several. `address` is that of the worker, and contains
    /// [`Join::section`]. From now on the peers get their numbers from `numbers`. To be called
    /// before [`Device::connect`] and [`Device::poll`].
    ///
    /// [`PeerId::ONESELF`](crate::PeerId::ONESELF) stays what it was, a peer of each device.
    fn join(&mut self, address: Address, numbers: &PeerNumbers);
}

/// A device that can be one of several, and that a thread can sleep on.
pub trait JoinAndSleep: Join + EventDescriptor {}

impl<D: Join + EventDescriptor + ?Sized> JoinAndSleep for D {}
