//! A device over the provider of the tests, and two peers of which only the tests speak.

use std::cell::RefMut;
use std::net::Ipv4Addr;
use std::time::Instant;

use tagmatch_device::matching::{
    CompleteWhen, MatchingDevice, MatchingEvent, OperationError, TagPattern, TagSend,
};
use tagmatch_device::{Buffer, PeerId};
use tagmatch_fabric::handshake::{Layout, Meeting, MeetingConfig, PeerState};
use tagmatch_testkit::device::PATIENCE;

use super::super::carrier::{Carrier, CqData, Label, Wire};
use super::super::config::{KIND, OfiConfig};
use super::super::control::{Packet, Trailer};
use super::super::link::OfiLink;
use super::super::provider::Provider;
use super::super::sending::HEAD;
use super::super::{Ofi, OfiTransport};
use super::fake;
use super::nic::Nic;

/// Tag of the messages of these tests.
pub const TAG: u64 = 77;
/// The number that the peers of these tests gave the device.
pub const NUMBER: u64 = 5;
/// Bytes of a long message.
pub const LONG: usize = 20_000;

/// A device over the provider of the tests, with two peers that are up.
pub struct Bench {
    pub ofi: Ofi,
    objects: &'static fake::Objects,
    pub peers: [PeerId; 2],
    /// Those peers, as far as their addresses are needed.
    _others: [Meeting<OfiLink>; 2],
}

fn meeting(carrier: &Carrier, config: &OfiConfig) -> Meeting<OfiLink> {
    let layout = Layout {
        used: config.used,
        source: config.source,
        own_source: None,
        number_max: carrier.number_max(),
    };
    let meeting = MeetingConfig {
        kind: &KIND,
        layout,
        worker: Vec::new(),
        secret: None,
        listen: &[Ipv4Addr::LOCALHOST.into()],
        connect_timeout: config.connect_timeout,
        keepalive: config.keepalive,
    };
    Meeting::open(meeting, OfiLink { address: Some(0), ..OfiLink::default() }).unwrap()
}

impl Bench {
    /// Over a provider that carries data in this way.
    pub fn new(data: CqData) -> Self {
        Self::with(data, false)
    }

    /// Over a provider that can let peers write.
    pub fn writing() -> Self {
        Self::with(CqData::Both, true)
    }

    fn with(data: CqData, writes: bool) -> Self {
        let config = OfiConfig::default();
        let (endpoint, objects) = fake::open(writes);
        let carrier = Carrier::new(config.used, config.source, 63, data).unwrap();
        let provider = Provider {
            name: "fake".into(),
            domain: "fake".into(),
            inject_max: 0,
            message_max: u32::MAX as usize,
            piece: 4096,
            writes,
            finds: true,
            takes: true,
            wakes: false,
            wakes_late: false,
            receives_max: 1024,
            _sole: None,
            mode: None,
        };
        let own = meeting(&carrier, &config);
        let others = [(); 2].map(|()| meeting(&carrier, &config));
        let transport = OfiTransport::over(endpoint, provider, carrier, own).unwrap();
        let mut ofi = Ofi::over(transport);
        let peers = [0, 1].map(|place: usize| {
            let peer = ofi.connect(&others[place].address).unwrap();
            ofi.transport.core.meeting.peers.set_state(peer, PeerState::Up);
            let entry = ofi.transport.core.meeting.peers.find_mut(peer).unwrap();
            (entry.link.address, entry.our_number) = (Some(1 + place as u64), NUMBER);
            entry.link.side = 1 + place as u64;
            peer
        });
        Bench { ofi, objects, peers, _others: others }
    }

    /// The provider.
    pub fn nic(&self) -> RefMut<'_, Nic> {
        self.objects.nic.borrow_mut()
    }

    /// The wire's tag and data of a message of a peer, with [`TAG`] and of one byte if `label` says
    /// nothing else.
    pub fn wire(&self, peer: PeerId, label: Label) -> Wire {
        let tag = if label.tag == 0 { TAG } else { label.tag };
        let length = label.length.or(Some(1));
        self.ofi.transport.carrier.send(&Label { number: peer.0.into(), tag, length, ..label })
    }

    /// A message of a peer arrives. `length` is the full one, if it has a trailer.
    pub fn arrive(&mut self, peer: PeerId, bytes: &[u8], length: Option<usize>) {
        let has_trailer = length.is_some();
        let length = Some(length.unwrap_or(bytes.len()) as u32);
        let wire = self.wire(peer, Label { length, has_trailer, ..Label::default() });
        self.nic().arrive(wire.tag, wire.data, bytes);
    }

    /// A control packet of a peer arrives.
    pub fn say(&mut self, peer: PeerId, packet: Packet) {
        let Wire { tag, data } = self.ofi.transport.carrier.control_wire(peer.0.into());
        self.nic().arrive(tag, data, &packet.emit());
    }

    /// Posts a receive from any peer.
    pub fn receive(&mut self, tag: u64, length: usize, token: u64) {
        let pattern = TagPattern { tag, mask: !0, source: None };
        self.ofi.receive(pattern, Buffer::zeroed(length), token).unwrap();
    }

    /// Sends a message of [`TAG`] that goes to libfabric, or waits for it.
    pub fn send(&mut self, to: PeerId, length: usize, until: CompleteWhen, token: u64) {
        let buffer = Buffer::from(vec![token as u8; length]);
        self.send_buffer(to, buffer, TagSend { complete_when: until, token, ..plain() });
    }

    /// The same, of a buffer.
    pub fn send_buffer(&mut self, peer: PeerId, buffer: Buffer, options: TagSend) {
        assert!(self.ofi.send(TagSend { peer, buffer, ..options }).unwrap().is_none());
    }

    /// The events of some polls.
    pub fn events(&mut self) -> Vec<MatchingEvent> {
        (0..64).filter_map(|_| self.ofi.poll()).collect()
    }

    /// The first event that is wanted, however long it takes.
    pub fn wait<T>(&mut self, mut wanted: impl FnMut(MatchingEvent) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = self.ofi.poll().and_then(&mut wanted) {
                return found;
            }
            assert!(start.elapsed() < PATIENCE, "waited in vain");
        }
    }

    /// How the receive with this token has ended: its length and its buffer.
    pub fn received(&mut self, wanted: u64) -> Option<(Result<u64, OperationError>, Buffer)> {
        self.events().into_iter().find_map(|event| match event {
            MatchingEvent::Received { token, buffer, result } if token == wanted => {
                Some((result.map(|envelope| envelope.length), buffer))
            }
            _ => None,
        })
    }

    /// Whether the send with this token has ended, and how.
    pub fn sent(&mut self, wanted: u64) -> Option<Result<(), OperationError>> {
        self.events().into_iter().find_map(|event| match event {
            MatchingEvent::Sent { token, result, .. } if token == wanted => Some(result),
            _ => None,
        })
    }

    /// The packets that went out since the last call.
    pub fn take_packets(&mut self) -> Vec<Packet> {
        let sent = std::mem::take(&mut self.nic().sent);
        sent.iter().filter_map(|gone| Packet::parse(&gone.bytes)).collect()
    }

    /// The trailer of the last message.
    pub fn trailer(&mut self) -> Trailer {
        let bytes = self.nic().sent.last().unwrap().bytes.clone();
        Trailer::split(&bytes).unwrap().1
    }

    /// Whether that one of the two peers is up.
    pub fn is_up(&self, place: usize) -> bool {
        self.ofi.transport.core.is_up(self.peers[place])
    }
}

impl Drop for Bench {
    /// The device waits for what it has sent and cancelled.
    fn drop(&mut self) {
        let mut nic = self.nic();
        (nic.is_full, nic.keeps_cancelled) = (false, false);
        nic.end_sends();
    }
}

/// A message of [`TAG`] to nobody in particular, whose token is 1.
pub fn plain() -> TagSend {
    TagSend {
        peer: PeerId::ONESELF,
        tag: TAG,
        immediate: None,
        buffer: Buffer::default(),
        complete_when: CompleteWhen::Reusable,
        token: 1,
    }
}

/// The head of a long message, as its sender sends it.
pub fn head(send: u32) -> Vec<u8> {
    let trailer =
        Trailer { send, immediate: 0, piece_max: 4096, wants_delivery: false, writes: true };
    [&[3; HEAD][..], &trailer.emit()].concat()
}
