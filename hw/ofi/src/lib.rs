//! The libfabric device.

mod carrier;
mod choice;
mod config;
mod control;
mod ending;
mod endpoint;
mod host;
mod info;
mod library;
mod link;
mod operations;
mod pieces;
mod probing;
mod progress;
mod provider;
mod receiving;
mod sending;
mod sleep;
mod trial;

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;

pub use config::OfiConfig;
pub use info::OfiInfo;

use carrier::Carrier;
use config::KIND;
use endpoint::{Completion, Endpoint};
use link::OfiLink;
use operations::Operations;
use provider::{Provider, Way};

use tagmatch_device::matching::{
    Envelope, HeldId, MatchingDevice, MatchingEvent, TagPattern, TagSend, Unfit,
};
use tagmatch_device::slab::Key;
use tagmatch_device::{
    Address, Buffer, DeviceError, DownReason, EventDescriptor, Flush, IntegerMap, PeerId,
};
use tagmatch_handshake::{Alarm, Layout, Meeting, MeetingConfig, break_with, start_connect};

/// The libfabric device. See the [module](self) for how it works.
///
/// Has no threads of its own; a provider may have some.
pub struct Ofi {
    carrier: Carrier,
    provider: Provider,
    meeting: Meeting<OfiLink>,

    /// Posted receives by their tokens.
    tokens: IntegerMap<u64, Key>,
    /// Messages that matched probes took, until they are received or dropped.
    held: HashSet<u64>,
    /// Receives for which libfabric had no room, in order.
    unposted: VecDeque<Key>,
    /// Peers that are up, and have something waiting for room in libfabric.
    blocked: Vec<PeerId>,
    /// The answer to the look that is under way.
    answer: Option<(Key, Completion)>,
    events: VecDeque<MatchingEvent>,
    polls: u32,
    alarm: Alarm,

    // Dropped by hand, in this order.
    endpoint: ManuallyDrop<Endpoint>,
    operations: ManuallyDrop<Operations>,
}

// SAFETY: the fields that are not `Send` are pointers to memory of this device, which libfabric uses
// only in calls of this device and in threads of a provider.
unsafe impl Send for Ofi {}

impl Ofi {
    /// A new device. Peers that get its address can reach it at once.
    ///
    /// # Errors
    /// [`DeviceError::BadSetting`] if a setting is out of its range, or the layout leaves no room in
    /// the provider's tags; [`DeviceError::System`] if libfabric is not installed (the text names
    /// the package), too old or too new, or a call of it fails, or if the job's secret can't be
    /// read; [`DeviceError::Unsupported`] without a usable provider, or if matching in the NIC is
    /// required and not possible.
    pub fn new(config: OfiConfig) -> Result<Self, DeviceError> {
        config.check()?;
        let secret = config.find_secret()?;
        let libfabric = library::load()?;
        let (endpoint, provider, carrier, oneself) = provider::open(libfabric, &config)?;
        let way = Way {
            carriage: carrier.fingerprint(),
            provider: &provider.name,
            names: endpoint.names(),
        };
        let layout = Layout {
            used: config.used,
            source: config.source,
            own_source: None,
            number_max: carrier.number_max(),
        };
        let meeting = MeetingConfig {
            kind: &KIND,
            layout,
            worker: way.emit(),
            secret: secret.as_ref(),
            listen: &config.listen,
            connect_timeout: config.connect_timeout,
            keepalive: config.keepalive,
        };
        let side = match endpoint.has_side() {
            true => endpoint.insert(endpoint.names()[1]).unwrap_or(oneself),
            false => oneself,
        };
        let link = OfiLink { address: Some(oneself), side, ..OfiLink::default() };
        let meeting = Meeting::open(meeting, link)?;
        let alarm = Alarm::new(&meeting, endpoint.descriptor().filter(|_| provider.wakes))?;
        let mut ofi = Ofi {
            carrier,
            provider,
            meeting,
            tokens: IntegerMap::default(),
            held: HashSet::new(),
            unposted: VecDeque::new(),
            blocked: Vec::new(),
            answer: None,
            events: VecDeque::new(),
            polls: 0,
            alarm,
            endpoint: ManuallyDrop::new(endpoint),
            operations: ManuallyDrop::new(Operations::new()),
        };
        ofi.post_controls();
        ofi.events.push_back(MatchingEvent::PeerUp { peer: PeerId::ONESELF });
        Ok(ofi)
    }

    /// Finds out what libfabric offers on this machine, and what a device with these settings
    /// takes.
    ///
    /// ```
    /// # mod tagmatch { pub use tagmatch_ofi as ofi; }
    /// use tagmatch::ofi::{Ofi, OfiConfig};
    /// println!("{}", Ofi::probe(&OfiConfig::default()));
    /// ```
    pub fn probe(config: &OfiConfig) -> OfiInfo {
        OfiInfo::probe(config)
    }

    /// The provider that the device has taken, as libfabric names it.
    pub fn provider(&self) -> &str {
        &self.provider.name
    }
}

impl fmt::Debug for Ofi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ofi")
            .field("address", &self.meeting.address)
            .field("provider", &self.provider.name)
            .finish_non_exhaustive()
    }
}

impl MatchingDevice for Ofi {
    fn address(&self) -> Address {
        self.meeting.address
    }

    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        self.alarm.work_begun();
        start_connect(self, address)
    }

    fn peer_address(&self, peer: PeerId) -> Option<Address> {
        self.meeting.peers.find(peer).map(|peer| peer.address)
    }

    fn transports(&self, peer: PeerId) -> Vec<String> {
        let is_reached =
            self.meeting.peers.find(peer).is_some_and(|peer| peer.link.address.is_some());
        let name = || format!("{}/{}", self.provider.name, self.provider.domain);
        is_reached.then(name).into_iter().collect()
    }

    #[inline]
    fn send(&mut self, message: TagSend) -> Result<Option<Buffer>, (Buffer, Unfit)> {
        self.alarm.work_begun();
        self.send_message(message)
    }

    #[inline]
    fn inject(
        &mut self,
        peer: PeerId,
        tag: u64,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> Result<bool, Unfit> {
        self.alarm.work_begun();
        self.inject_message(peer, tag, immediate, payload)
    }

    #[inline]
    fn receive(
        &mut self,
        pattern: TagPattern,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, Unfit)> {
        self.alarm.work_begun();
        self.post_receive(pattern, buffer, token)
    }

    fn cancel(&mut self, token: u64) -> bool {
        self.cancel_receive(token)
    }

    fn probe(&mut self, pattern: TagPattern) -> Result<Option<Envelope>, Unfit> {
        Ok(self.look_for(pattern, false)?.map(|(_, envelope)| envelope))
    }

    fn matched_probe(&mut self, pattern: TagPattern) -> Result<Option<(HeldId, Envelope)>, Unfit> {
        let found = self.look_for(pattern, true)?;
        Ok(found.map(|(key, envelope)| {
            self.held.insert(key.to_bits());
            (HeldId(key.to_bits()), envelope)
        }))
    }

    fn receive_held(
        &mut self,
        message: HeldId,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, Unfit)> {
        self.alarm.work_begun();
        self.take_held(message, buffer, token)
    }

    fn discard_held(&mut self, message: HeldId) -> bool {
        self.alarm.work_begun();
        self.drop_held(message)
    }

    #[inline]
    fn poll(&mut self) -> Option<MatchingEvent> {
        self.next_event()
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.alarm.work_begun();
        if peer != PeerId::ONESELF {
            break_with(self, peer, DownReason::Disconnected);
        }
    }

    fn close(&mut self) {
        // Whoever closes it polls it from now on.
        self.alarm.disarm();
        self.close_all();
    }

    fn arm(&mut self) -> bool {
        self.fall_asleep()
    }

    fn disarm(&mut self) {
        self.alarm.disarm();
    }

    fn has_work(&self) -> bool {
        self.is_busy()
    }

    fn has_unsent(&mut self) -> bool {
        self.holds_messages()
    }

    fn flush(&mut self, peer: PeerId) -> Flush {
        self.flush_peer(peer)
    }

    fn unexpected_now(&self) -> Option<u64> {
        None
    }
}

impl EventDescriptor for Ofi {
    fn event_descriptor(&self) -> BorrowedFd<'_> {
        self.alarm.descriptor()
    }
}
