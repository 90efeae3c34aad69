//! The device: passes each call to the device of the peer.

use std::fmt;

use tagmatch_device::contents::{Contents, route};
use tagmatch_device::{
    AccessLimits, Address, Buffer, Device, DeviceError, Event, Exposure, ExposureId, Flush, Join,
    JoinAndSleep, LearnedChoice, Limits, Network, Outgoing, PeerId, PeerNumbers, PublishedRegion,
    QuickAccess, RawMemory, ReadError, ReadMode, ReadRequest, Refused, RegionAccess, RegionPlace,
    RegionSpan, Registered, TagList,
};
use tagmatch_os::event::Epoll;

use super::networks::NetworkDevices;

/// While the local device always has something, the networks are polled once in so many polls: a
/// power of two.
const POLLS_PER_TURN: u32 = 64;

/// A local device, and networks for the peers that the local device doesn't reach. See the
/// [crate](crate) for how it works.
///
/// `N` is the type of all networks, and `S` what a thread sleeps on: `()` for a worker that doesn't
/// sleep, such as a simulated one.
#[derive(Clone)]
pub struct Routed<L, N: ?Sized = dyn JoinAndSleep + Send, S = Epoll> {
    /// Shared memory.
    pub(crate) local: L,
    pub(crate) networks: NetworkDevices<N>,
    address: Address,
    limits: Limits,
    polls: u32,
    sent_beyond: u64,
    pub(crate) sleep: S,
}

/// Makes one call on the device of a peer, known or not.
macro_rules! on_device_of {
    ($routed:ident, $peer:expr, $device:ident => $call:expr) => {
        match $routed.networks.of_mut($peer) {
            Some($device) => $call,
            None => {
                let $device = &mut $routed.local;
                $call
            }
        }
    };
}

impl<L: Join, N: Join + ?Sized> Routed<L, N, ()> {
    /// Makes one device of a local one and of networks, each of another kind, on which no thread
    /// sleeps. No peer knows their addresses yet.
    ///
    /// # Errors
    /// [`DeviceError::BadAddress`] if what the networks have to say doesn't fit into an address.
    pub fn sleepless(local: L, devices: Vec<Box<N>>) -> Result<Self, DeviceError> {
        Self::with_sleep(local, devices, ())
    }
}

impl<L: Join, N: Join + ?Sized, S> Routed<L, N, S> {
    pub(crate) fn with_sleep(
        mut local: L,
        devices: Vec<Box<N>>,
        sleep: S,
    ) -> Result<Self, DeviceError> {
        let mut networks = NetworkDevices::new(devices);
        let address = address_of(&local, &networks)?;
        let numbers = PeerNumbers::of_several_devices();
        local.join(address, &numbers);
        networks.devices_mut().for_each(|device| device.join(address, &numbers));
        let of_list = networks.devices_mut().find_map(|device| {
            let limits = device.limits();
            device.tags().map(|_| limits)
        });
        let limits = of_list.unwrap_or_else(|| local.limits());
        Ok(Routed { local, networks, address, limits, polls: 0, sent_beyond: 0, sleep })
    }

    /// The local device. Its events must be polled through this device.
    pub fn local_mut(&mut self) -> &mut L {
        &mut self.local
    }

    /// The networks, in the order in which they were given.
    pub fn networks(&self) -> impl Iterator<Item = &N> {
        self.networks.devices()
    }

    /// The networks. Their events must be polled through this device.
    pub fn networks_mut(&mut self) -> impl Iterator<Item = &mut N> {
        self.networks.devices_mut()
    }

    /// The network over which a peer is reached.
    pub fn network_of(&self, peer: PeerId) -> Option<Network> {
        route(&self.address, &self.peer_address(peer)?).ok()
    }

    #[cold]
    #[inline(never)]
    fn send_by_network(&mut self, peer: PeerId, message: &Outgoing<'_>) -> Result<(), Refused> {
        match self.networks.of_mut(peer) {
            Some(device) => device.send(peer, *message).inspect(|()| self.sent_beyond += 1),
            None => Err(Refused::Down),
        }
    }
}

/// The address of a worker with these devices. Its name is that of the local device.
fn address_of<L: Join, N: Join + ?Sized>(
    local: &L,
    networks: &NetworkDevices<N>,
) -> Result<Address, DeviceError> {
    let address = local.address();
    let mut contents = Contents::new(Contents::of(&address)?.name);
    let mut sections = Vec::new();
    let mut room = Contents::ROOM;
    // TCP comes last, and takes what is left.
    for network in Network::ALL {
        let section = if network == local.network() {
            local.section(room)
        } else {
            let device = networks.devices().find(|device| device.network() == network);
            let Some(device) = device else { continue };
            device.section(room)
        };
        room = room.saturating_sub(section.len());
        sections.push((network, section));
    }
    for (network, section) in &sections {
        contents = contents.with(*network, section);
    }
    contents.address()
}

impl<L: fmt::Debug, N: ?Sized, S> fmt::Debug for Routed<L, N, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routed")
            .field("address", &self.address)
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}

impl<L: Join, N: Join + ?Sized, S> Device for Routed<L, N, S> {
    /// The limits of the device that has a NIC's list, or else the limits of the local device.
    fn limits(&self) -> Limits {
        self.limits
    }

    fn address(&self) -> Address {
        self.address
    }

    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        if *address == self.address {
            return Ok(PeerId::ONESELF);
        }
        let network = route(&self.address, address)?;
        if network == self.local.network() {
            return self.local.connect(address);
        }
        let none = DeviceError::BadAddress { why: "this worker has no device for its network" };
        self.networks.connect(network, none, |device| device.connect(address))
    }

    fn peer_address(&self, peer: PeerId) -> Option<Address> {
        match self.networks.of(peer) {
            Some(device) => device.peer_address(peer),
            None => self.local.peer_address(peer),
        }
    }

    fn read_mode(&self, peer: PeerId) -> ReadMode {
        match self.networks.of(peer) {
            Some(device) => device.read_mode(peer),
            None => self.local.read_mode(peer),
        }
    }

    fn sends_fragments(&self, peer: PeerId, length: usize) -> bool {
        match self.networks.of(peer) {
            Some(device) => device.sends_fragments(peer, length),
            None => self.local.sends_fragments(peer, length),
        }
    }

    fn note_sent(&mut self, peer: PeerId, length: usize) {
        match self.networks.of_mut(peer) {
            Some(device) => device.note_sent(peer, length),
            None => self.local.note_sent(peer, length),
        }
    }

    fn learned(&self, peer: PeerId) -> Vec<LearnedChoice> {
        match self.networks.of(peer) {
            Some(device) => device.learned(peer),
            None => self.local.learned(peer),
        }
    }

    #[inline(always)]
    fn send(&mut self, peer: PeerId, message: Outgoing<'_>) -> Result<(), Refused> {
        match self.local.send(peer, message) {
            Err(Refused::Down) => {
                // A copy: taking the header's own address would force it out of registers.
                let mut header = [0; Outgoing::HEADER_MAX];
                let copy = header.get_mut(..message.header.len()).ok_or(Refused::TooLong)?;
                copy.copy_from_slice(message.header);
                self.send_by_network(peer, &Outgoing { header: copy, ..message })
            }
            answer => answer,
        }
    }

    /// Memory of the local device.
    fn allocate(&mut self, length: usize) -> Option<Buffer> {
        self.local.allocate(length)
    }

    /// Registers memory with the first network: at most one of them has to register memory.
    fn register(&mut self, memory: RawMemory) -> Result<Registered, DeviceError> {
        match self.networks.devices_mut().next() {
            Some(device) => device.register(memory),
            None => self.local.register(memory),
        }
    }

    fn expose(
        &mut self,
        reader: PeerId,
        buffer: Buffer,
    ) -> Result<Exposure, (Buffer, DeviceError)> {
        on_device_of!(self, reader, device => device.expose(reader, buffer))
    }

    fn withdraw(&mut self, reader: PeerId, id: ExposureId) -> Option<Buffer> {
        on_device_of!(self, reader, device => device.withdraw(reader, id))
    }

    fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        on_device_of!(self, request.peer, device => device.read(request))
    }

    /// A token has one place: the local device's, if that device publishes the region. Networks
    /// find regions by their keys alone.
    fn publish(&mut self, region: &PublishedRegion<'_>) -> RegionPlace {
        let mut place = self.local.publish(region);
        for network in self.networks.devices_mut() {
            let of_network = network.publish(region);
            if place.is_none() {
                place = of_network;
            }
        }
        place
    }

    fn unpublish(&mut self, key: u64) -> bool {
        let mut is_left_alone = self.local.unpublish(key);
        for network in self.networks.devices_mut() {
            is_left_alone &= network.unpublish(key);
        }
        is_left_alone
    }

    fn access_limits(&self, peer: PeerId) -> AccessLimits {
        let network = self.networks.of(peer).map(|network| network.access_limits(peer));
        network.unwrap_or_else(|| self.local.access_limits(peer))
    }

    fn note_one_sided(&mut self, peer: PeerId) {
        on_device_of!(self, peer, device => device.note_one_sided(peer));
    }

    fn access(&mut self, access: RegionAccess) -> Result<(), Buffer> {
        on_device_of!(self, access.peer, device => device.access(access))
    }

    fn access_at_once(&mut self, peer: PeerId, of: RegionSpan, access: QuickAccess<'_>) -> bool {
        self.networks.of(peer).is_none() && self.local.access_at_once(peer, of, access)
    }

    #[inline(always)]
    fn poll(&mut self) -> Option<Event<'_>> {
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(POLLS_PER_TURN) {
            self.networks.poll().or_else(|| self.local.poll())
        } else {
            self.local.poll().or_else(|| self.networks.poll())
        }
    }

    fn sent_beyond(&self) -> u64 {
        self.sent_beyond
    }

    fn unregistered(&self) -> u64 {
        self.networks.devices().map(|device| device.unregistered()).sum()
    }

    fn tags(&mut self) -> Option<&mut dyn TagList> {
        self.networks.devices_mut().find_map(|device| device.tags())
    }

    fn flush(&mut self, peer: PeerId, mark: &mut Option<u64>) -> Flush {
        on_device_of!(self, peer, device => device.flush(peer, mark))
    }

    fn disconnect(&mut self, peer: PeerId) {
        on_device_of!(self, peer, device => device.disconnect(peer));
    }

    fn forget(&mut self, peer: PeerId) -> bool {
        let is_forgotten = on_device_of!(self, peer, device => device.forget(peer));
        if is_forgotten {
            self.networks.forget(peer);
        }
        is_forgotten
    }

    fn close(&mut self) {
        self.audit();
        self.local.close();
        self.networks.devices_mut().for_each(|device| device.close());
    }

    fn arm(&mut self, waiting_to_send: &[PeerId]) -> bool {
        self.audit();
        let are_armed = self.local.arm(waiting_to_send)
            && self.networks.devices_mut().all(|device| device.arm(waiting_to_send));
        if !are_armed {
            self.disarm();
        }
        are_armed
    }

    #[inline]
    fn has_work(&self) -> bool {
        self.local.has_work() || self.networks.devices().any(|device| device.has_work())
    }

    fn disarm(&mut self) {
        self.local.disarm();
        self.networks.devices_mut().for_each(|device| device.disarm());
    }
}
