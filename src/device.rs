//! The devices that carry bytes and leave matching to the engine, as one type: chosen when a worker
//! is made.

use std::os::fd::BorrowedFd;

use tagmatch_device::{
    AccessLimits, Address, Buffer, Device, DeviceError, Event, EventDescriptor, EventSink,
    Exposure, ExposureId, Flush, JoinAndSleep, LearnedChoice, Limits, Network, Outgoing, PeerId,
    Polled, PublishedRegion, QuickAccess, RawMemory, ReadError, ReadMode, ReadRequest, Refused,
    RegionAccess, RegionPlace, RegionSpan, Registered, TagList, hand_on,
};
#[cfg(feature = "model")]
use tagmatch_model::Model;
use tagmatch_routed::Routed;
use tagmatch_shm::ShmConfig;
#[cfg(feature = "tcp")]
use tagmatch_tcp::{Tcp, TcpConfig};
#[cfg(feature = "verbs")]
use tagmatch_verbs::{Verbs, VerbsConfig};

use crate::auto::AutoConfig;
use crate::config::{Config, HwTags};
use crate::sync::Shm;

/// A device other than shared memory alone.
pub(crate) trait OtherDevice: Device + EventDescriptor + Send {}

impl<D: Device + EventDescriptor + Send> OtherDevice for D {}

/// A worker's device.
#[allow(clippy::large_enum_variant, reason = "stored in place, since every message uses it")]
// With `repr(u8)`, reading the variant takes one instruction; as a niche of a field it would take
// three.
#[repr(u8)]
pub(crate) enum WorkerDevice {
    /// Shared memory; software matches.
    Shm(Shm),
    /// Any other: networks, shared memory beside networks, or a device under the model of a
    /// tag-matching NIC.
    Other(Box<dyn OtherDevice>),
}

// Not inlined: a device and its model need much of the stack.
impl WorkerDevice {
    #[inline(never)]
    pub(crate) fn on_shm(shm: &ShmConfig, hw_tags: &HwTags) -> Result<Self, DeviceError> {
        check_hw_tags(hw_tags, "shared memory has no verbs; HwTags::Model does it")?;
        let shm = Shm::new(beside(hw_tags.is_model(), shm))?;
        if hw_tags.is_model() {
            return Self::other(shm, hw_tags);
        }
        Ok(WorkerDevice::Shm(shm))
    }

    /// Shared memory, with the networks that there are. Wrong settings of a network are errors; a
    /// network that can't be opened is left out.
    #[inline(never)]
    pub(crate) fn on_auto(auto: &AutoConfig, config: &Config) -> Result<Self, DeviceError> {
        let mut networks = Vec::new();
        for (network, opened) in auto.open(config) {
            match opened {
                Ok(device) => networks.push(device),
                Err(error) if error.is_wrong_setting() => return Err(error),
                Err(error) if network == Network::Verbs && config.hw_tags.is_emu() => {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
        if networks.is_empty() {
            return Self::on_shm(&auto.shm, &config.hw_tags);
        }
        let has_list = networks.iter_mut().any(|network| network.tags().is_some());
        let shm = Shm::new(beside(has_list, &auto.shm))?;
        Ok(WorkerDevice::Other(Box::new(Routed::new(shm, networks)?)))
    }

    #[cfg(feature = "verbs")]
    #[inline(never)]
    pub(crate) fn on_verbs(verbs: &VerbsConfig, config: &Config) -> Result<Self, DeviceError> {
        Self::other(Verbs::new(config.of_verbs(verbs))?, &config.hw_tags)
    }

    #[cfg(feature = "tcp")]
    #[inline(never)]
    pub(crate) fn on_tcp(tcp: &TcpConfig, config: &Config) -> Result<Self, DeviceError> {
        check_hw_tags(&config.hw_tags, "TCP has no verbs; HwTags::Model does it")?;
        Self::other(Tcp::new(config.of_tcp(tcp))?, &config.hw_tags)
    }

    /// A device, under the model of a NIC if there is to be one.
    fn other<D>(device: D, hw_tags: &HwTags) -> Result<Self, DeviceError>
    where
        D: JoinAndSleep + Send + 'static,
    {
        Ok(WorkerDevice::Other(match hw_tags {
            #[cfg(feature = "model")]
            HwTags::Model(model) => Box::new(Model::new(device, model)?),
            _ => Box::new(device),
        }))
    }
}

/// The settings of shared memory, where the worker has the list of a NIC or not: fragments would
/// come past the list.
fn beside(has_list: bool, shm: &ShmConfig) -> ShmConfig {
    shm.clone().fragments(shm.fragments && !has_list)
}

/// Whether a worker without verbs can have the NIC that is asked for; `why` not.
fn check_hw_tags(hw_tags: &HwTags, why: &'static str) -> Result<(), DeviceError> {
    if hw_tags.is_emu() {
        return Err(DeviceError::Unsupported { what: "HwTags::Emu", why });
    }
    Ok(())
}

/// Makes one call on the device, whichever it is.
macro_rules! on {
    ($device:expr, $each:ident => $call:expr) => {
        match $device {
            WorkerDevice::Shm($each) => $call,
            WorkerDevice::Other($each) => $call,
        }
    };
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

    fn sends_fragments(&self, peer: PeerId, length: usize) -> bool {
        on!(self, device => device.sends_fragments(peer, length))
    }

    fn note_sent(&mut self, peer: PeerId, length: usize) {
        on!(self, device => device.note_sent(peer, length));
    }

    fn learned(&self, peer: PeerId) -> Vec<LearnedChoice> {
        on!(self, device => device.learned(peer))
    }

    #[inline(always)]
    fn send(&mut self, peer: PeerId, message: Outgoing<'_>) -> Result<(), Refused> {
        match self {
            WorkerDevice::Shm(shm) => shm.send(peer, message),
            WorkerDevice::Other(device) => {
                // A copy: taking the header's own address would force it out of registers.
                let mut header = [0; Outgoing::HEADER_MAX];
                let copy = header.get_mut(..message.header.len()).ok_or(Refused::TooLong)?;
                copy.copy_from_slice(message.header);
                device.send(peer, Outgoing { header: copy, ..message })
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

    fn publish(&mut self, region: &PublishedRegion<'_>) -> RegionPlace {
        on!(self, device => device.publish(region))
    }

    fn unpublish(&mut self, key: u64) -> bool {
        on!(self, device => device.unpublish(key))
    }

    fn access_limits(&self, peer: PeerId) -> AccessLimits {
        on!(self, device => device.access_limits(peer))
    }

    fn note_one_sided(&mut self, peer: PeerId) {
        on!(self, device => device.note_one_sided(peer));
    }

    fn access(&mut self, access: RegionAccess) -> Result<(), Buffer> {
        on!(self, device => device.access(access))
    }

    fn access_at_once(&mut self, peer: PeerId, of: RegionSpan, access: QuickAccess<'_>) -> bool {
        on!(self, device => device.access_at_once(peer, of, access))
    }

    #[inline(always)]
    fn poll(&mut self) -> Option<Event<'_>> {
        on!(self, device => device.poll())
    }

    #[inline(always)]
    fn poll_into(&mut self, sink: impl EventSink) -> Polled {
        match self {
            WorkerDevice::Shm(shm) => shm.poll_into(sink),
            WorkerDevice::Other(device) => hand_on(device.poll(), sink),
        }
    }

    fn sent_beyond(&self) -> u64 {
        on!(self, device => device.sent_beyond())
    }

    fn unregistered(&self) -> u64 {
        on!(self, device => device.unregistered())
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

#[cfg(all(test, not(loom)))]
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

    #[test]
    fn fragments_come_past_no_list() {
        for (fragments, has_list) in [(true, true), (true, false), (false, true), (false, false)] {
            let of = ShmConfig::default().fragments(fragments).ring_bytes(1 << 20);
            let shm = beside(has_list, &of);
            assert_eq!((shm.fragments, shm.ring_bytes), (fragments && !has_list, 1 << 20));
        }
    }

    /// A thread that begins work while others sleep has to carry it on itself.
    #[test]
    fn a_connection_that_was_begun_is_work_until_it_is_made() {
        let shm = || Shm::new(ShmConfig::default()).unwrap();
        for mut device in [WorkerDevice::Shm(shm()), WorkerDevice::Other(Box::new(shm()))] {
            let mut peer = shm();
            while device.poll().is_some() {}
            assert!(device.arm(&[]) && !device.has_work());
            device.connect(&peer.address()).unwrap();
            assert!(device.has_work());
            device.disarm();
            while !matches!(device.poll(), Some(Event::PeerUp { .. })) {
                peer.poll();
            }
            assert!(!device.has_work());
        }
    }

    /// TCP opens here, so the worker could do without verbs.
    #[cfg(all(feature = "emu", feature = "tcp"))]
    #[test]
    fn a_nic_in_software_that_was_asked_for_is_not_left_out_silently() {
        let secret = tagmatch_secret::Secret::from_bytes(&[7; 16]).unwrap();
        let config = Config { hw_tags: HwTags::Emu, secret: Some(secret), ..Config::default() };
        let DeviceConfig::Auto(auto) = &config.device else { panic!("{config:?}") };
        let probed = auto.probe(&config);
        let opens = |network| probed.iter().any(|(of, found)| *of == network && found.is_ok());
        assert!(opens(Network::Tcp));
        assert_eq!(WorkerDevice::on_auto(auto, &config).is_ok(), opens(Network::Verbs));
    }

    #[cfg(all(feature = "emu", feature = "tcp"))]
    #[test]
    fn networks_without_verbs_have_no_nic_in_software() {
        let secret = tagmatch_secret::Secret::from_bytes(&[7; 16]).unwrap();
        let config = Config { hw_tags: HwTags::Emu, secret: Some(secret), ..Config::default() };
        for refused in [
            WorkerDevice::on_tcp(&TcpConfig::default(), &config),
            WorkerDevice::on_shm(&ShmConfig::default(), &config.hw_tags),
        ] {
            let error = refused.map(drop).unwrap_err();
            assert!(
                matches!(error, DeviceError::Unsupported { what: "HwTags::Emu", .. }),
                "{error}"
            );
        }
    }
}
