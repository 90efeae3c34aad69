//! The devices that carry bytes and leave matching to the engine, as one type: chosen when a worker
//! is made.

use std::os::fd::BorrowedFd;

use tagmatch_device::{
    Address, Buffer, Device, DeviceError, Event, EventDescriptor, Exposure, ExposureId, Flush,
    Limits, Network, Outgoing, PeerId, RawMemory, ReadError, ReadMode, ReadRequest, Refused,
    Registered, TagList,
};
#[cfg(feature = "model")]
use tagmatch_model::Model;
#[cfg(all(feature = "shm", any(feature = "tcp", feature = "verbs")))]
use tagmatch_routed::Routed;
#[cfg(feature = "shm")]
use tagmatch_shm::ShmConfig;
#[cfg(feature = "tcp")]
use tagmatch_tcp::{Secret, Tcp, TcpConfig};
#[cfg(feature = "verbs")]
use tagmatch_verbs::{Verbs, VerbsConfig};

#[cfg(all(feature = "shm", any(feature = "tcp", feature = "verbs")))]
use crate::auto::AutoConfig;
#[cfg(any(feature = "verbs", all(feature = "shm", feature = "tcp")))]
use crate::config::Config;
use crate::config::HwTags;
#[cfg(feature = "shm")]
use crate::sync::Shm;

/// A worker's device.
#[allow(clippy::large_enum_variant, reason = "stored in place, since every message uses it")]
// With `repr(u8)`, reading the variant takes one instruction; as a niche of a field it would take
// three.
#[repr(u8)]
pub(crate) enum WorkerDevice {
    /// Shared memory; software matches.
    #[cfg(feature = "shm")]
    Shm(Shm),
    /// Shared memory, and networks for the peers that it doesn't reach.
    #[cfg(all(feature = "shm", any(feature = "tcp", feature = "verbs")))]
    Routed(Routed<Shm>),
    /// Shared memory under the model of a tag-matching NIC.
    #[cfg(all(feature = "shm", feature = "model"))]
    ShmModel(Box<Model<Shm>>),
    /// Verbs; its NIC matches, or software.
    #[cfg(feature = "verbs")]
    Verbs(Box<Verbs>),
    /// Verbs under the model of a tag-matching NIC.
    #[cfg(all(feature = "verbs", feature = "model"))]
    VerbsModel(Box<Model<Verbs>>),
    /// TCP; software matches.
    #[cfg(feature = "tcp")]
    Tcp(Box<Tcp>),
    /// TCP under the model of a tag-matching NIC.
    #[cfg(all(feature = "tcp", feature = "model"))]
    TcpModel(Box<Model<Tcp>>),
}

impl WorkerDevice {
    #[cfg(feature = "shm")]
    pub(crate) fn on_shm(shm: &ShmConfig, hw_tags: &HwTags) -> Result<Self, DeviceError> {
        #[cfg(feature = "emu")]
        if let HwTags::Emu = hw_tags {
            let (what, why) = ("HwTags::Emu", "shared memory has no verbs; HwTags::Model does it");
            return Err(DeviceError::Unsupported { what, why });
        }
        Ok(match hw_tags {
            #[cfg(feature = "model")]
            HwTags::Model(model) => {
                // Fragments would come past the list of the NIC.
                let shm = Shm::new(ShmConfig { fragments: false, ..shm.clone() })?;
                WorkerDevice::ShmModel(Box::new(Model::new(shm, model)?))
            }
            _ => WorkerDevice::Shm(Shm::new(shm.clone())?),
        })
    }

    /// Shared memory, with the networks that there are. Wrong settings of a network are errors; a
    /// network that can't be opened is left out.
    // Not inlined: devices need much of the stack.
    #[cfg(all(feature = "shm", any(feature = "tcp", feature = "verbs")))]
    #[inline(never)]
    pub(crate) fn on_auto(auto: &AutoConfig, config: &Config) -> Result<Self, DeviceError> {
        let mut networks = Vec::new();
        for (network, opened) in auto.open(config) {
            match opened {
                Ok(device) => networks.push(device),
                Err(error @ DeviceError::BadSetting { .. }) => return Err(error),
                #[cfg(feature = "emu")]
                Err(error)
                    if network == Network::Verbs && matches!(config.hw_tags, HwTags::Emu) =>
                {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
        if networks.is_empty() {
            return Self::on_shm(&auto.shm, &config.hw_tags);
        }
        // Fragments would come past the list of a NIC.
        let has_list = networks.iter_mut().any(|network| network.tags().is_some());
        let fragments = auto.shm.fragments && !has_list;
        let shm = Shm::new(ShmConfig { fragments, ..auto.shm.clone() })?;
        Ok(WorkerDevice::Routed(Routed::new(shm, networks)?))
    }

    // Not inlined: a device and its model need much of the stack.
    #[cfg(feature = "verbs")]
    #[inline(never)]
    pub(crate) fn on_verbs(verbs: &VerbsConfig, config: &Config) -> Result<Self, DeviceError> {
        let verbs = Verbs::new(config.of_verbs(verbs))?;
        Ok(match &config.hw_tags {
            #[cfg(feature = "model")]
            HwTags::Model(model) => WorkerDevice::VerbsModel(Box::new(Model::new(verbs, model)?)),
            _ => WorkerDevice::Verbs(Box::new(verbs)),
        })
    }

    // Not inlined: a device and its model need much of the stack.
    #[cfg(feature = "tcp")]
    #[inline(never)]
    pub(crate) fn on_tcp(
        tcp: &TcpConfig,
        secret: &Option<Secret>,
        hw_tags: &HwTags,
    ) -> Result<Self, DeviceError> {
        #[cfg(feature = "emu")]
        if let HwTags::Emu = hw_tags {
            let (what, why) = ("HwTags::Emu", "TCP has no verbs; HwTags::Model does it");
            return Err(DeviceError::Unsupported { what, why });
        }
        let mut tcp = tcp.clone();
        tcp.secret = secret.clone().or(tcp.secret);
        let tcp = Tcp::new(tcp)?;
        Ok(match hw_tags {
            #[cfg(feature = "model")]
            HwTags::Model(model) => WorkerDevice::TcpModel(Box::new(Model::new(tcp, model)?)),
            _ => WorkerDevice::Tcp(Box::new(tcp)),
        })
    }
}

impl WorkerDevice {
    /// See [`Counters::sent_beyond`](tagmatch_fallback::Counters).
    pub(crate) fn sent_beyond(&self) -> u64 {
        match self {
            #[cfg(all(feature = "shm", any(feature = "tcp", feature = "verbs")))]
            WorkerDevice::Routed(routed) => routed.sent_beyond(),
            _ => 0,
        }
    }
}

/// Makes one call on the device, whichever it is.
macro_rules! on {
    ($device:expr, $each:ident => $call:expr) => {
        match $device {
            #[cfg(feature = "shm")]
            WorkerDevice::Shm($each) => $call,
            #[cfg(all(feature = "shm", any(feature = "tcp", feature = "verbs")))]
            WorkerDevice::Routed($each) => $call,
            #[cfg(all(feature = "shm", feature = "model"))]
            WorkerDevice::ShmModel($each) => $call,
            #[cfg(feature = "verbs")]
            WorkerDevice::Verbs($each) => $call,
            #[cfg(all(feature = "verbs", feature = "model"))]
            WorkerDevice::VerbsModel($each) => $call,
            #[cfg(feature = "tcp")]
            WorkerDevice::Tcp($each) => $call,
            #[cfg(all(feature = "tcp", feature = "model"))]
            WorkerDevice::TcpModel($each) => $call,
        }
    };
}

/// Every device but shared memory: kept out of the short way of a message.
#[cfg(any(feature = "tcp", feature = "verbs", feature = "model"))]
impl WorkerDevice {
    #[inline(never)]
    fn send_otherwise(&mut self, peer: PeerId, message: &Outgoing<'_>) -> Result<(), Refused> {
        on!(self, device => device.send(peer, *message))
    }

    #[inline(never)]
    fn poll_otherwise(&mut self) -> Option<Event<'_>> {
        on!(self, device => device.poll())
    }
}

impl Device for WorkerDevice {
    fn limits(&self) -> Limits {
        on!(self, device => device.limits())
    }

    fn address(&self) -> Address {
        on!(self, device => device.address())
    }

    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        on!(self, device => device.connect(address))
    }

    fn peer_address(&self, peer: PeerId) -> Option<Address> {
        on!(self, device => device.peer_address(peer))
    }

    fn read_mode(&self, peer: PeerId) -> ReadMode {
        on!(self, device => device.read_mode(peer))
    }

    #[inline(always)]
    fn send(&mut self, peer: PeerId, message: Outgoing<'_>) -> Result<(), Refused> {
        match self {
            #[cfg(feature = "shm")]
            WorkerDevice::Shm(shm) => shm.send(peer, message),
            #[cfg(any(feature = "tcp", feature = "verbs", feature = "model"))]
            _ => {
                // A copy: taking the header's own address would force it out of registers.
                let mut header = [0; Outgoing::HEADER_MAX];
                let copy = header.get_mut(..message.header.len()).ok_or(Refused::TooLong)?;
                copy.copy_from_slice(message.header);
                self.send_otherwise(peer, &Outgoing { header: copy, ..message })
            }
        }
    }

    fn allocate(&mut self, length: usize) -> Option<Buffer> {
        on!(self, device => device.allocate(length))
    }

    fn register(&mut self, memory: RawMemory) -> Result<Registered, DeviceError> {
        on!(self, device => device.register(memory))
    }

    fn expose(
        &mut self,
        reader: PeerId,
        buffer: Buffer,
    ) -> Result<Exposure, (Buffer, DeviceError)> {
        on!(self, device => device.expose(reader, buffer))
    }

    fn withdraw(&mut self, reader: PeerId, id: ExposureId) -> Option<Buffer> {
        on!(self, device => device.withdraw(reader, id))
    }

    fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        on!(self, device => device.read(request))
    }

    #[inline(always)]
    fn poll(&mut self) -> Option<Event<'_>> {
        match self {
            #[cfg(feature = "shm")]
            WorkerDevice::Shm(shm) => shm.poll(),
            #[cfg(any(feature = "tcp", feature = "verbs", feature = "model"))]
            _ => self.poll_otherwise(),
        }
    }

    fn tags(&mut self) -> Option<&mut dyn TagList> {
        on!(self, device => device.tags())
    }

    fn flush(&mut self, peer: PeerId, mark: &mut Option<u64>) -> Flush {
        on!(self, device => device.flush(peer, mark))
    }

    fn forget(&mut self, peer: PeerId) -> bool {
        on!(self, device => device.forget(peer))
    }

    fn disconnect(&mut self, peer: PeerId) {
        on!(self, device => device.disconnect(peer));
    }

    fn close(&mut self) {
        on!(self, device => device.close());
    }

    fn arm(&mut self, waiting_to_send: &[PeerId]) -> bool {
        on!(self, device => device.arm(waiting_to_send))
    }

    #[inline(always)]
    fn has_work(&self) -> bool {
        on!(self, device => device.has_work())
    }

    fn disarm(&mut self) {
        on!(self, device => device.disarm());
    }
}

impl EventDescriptor for WorkerDevice {
    fn event_descriptor(&self) -> BorrowedFd<'_> {
        on!(self, device => device.event_descriptor())
    }
}

#[cfg(all(test, not(loom), feature = "shm", any(feature = "tcp", feature = "verbs")))]
mod tests {
    use tagmatch_device::contents::Contents;

    use super::*;
    use crate::config::DeviceConfig;

    /// A test machine may have an RDMA device, or a secret in its environment.
    #[test]
    fn where_no_network_opens_the_default_device_is_shared_memory_itself() {
        let config = Config::default();
        let DeviceConfig::Auto(auto) = &config.device else { panic!("{config:?}") };
        let probed = auto.probe(&config).into_iter().filter(|(_, found)| found.is_ok());
        let beyond: Vec<Network> = probed.map(|(network, _)| network).collect();
        let device = WorkerDevice::on_auto(auto, &config).unwrap();
        assert_eq!(matches!(device, WorkerDevice::Shm(_)), beyond.is_empty());
        let address = device.address();
        let announced: Vec<_> = Contents::of(&address).unwrap().networks().iter().collect();
        assert_eq!(announced, [&[Network::Shm], &*beyond].concat());
    }
}
