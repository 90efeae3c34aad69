//! A wire without a network: messages arrive when the search puts them there, and sent messages
//! are dropped.

use std::collections::VecDeque;
use std::ops::Range;

use tagmatch_device::contents::Contents;
use tagmatch_device::{
    Address, Buffer, Bytes, Device, DeviceError, Event, Exposure, ExposureId, Flush, Incoming,
    Join, Limits, Network, Outgoing, PeerId, PeerNumbers, ReadError, ReadMode, ReadRequest,
    Refused,
};

/// A message that is about to arrive.
#[derive(Clone, Debug)]
pub(super) struct Arriving {
    pub(super) peer: PeerId,
    pub(super) immediate: u32,
    pub(super) bytes: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(super) struct HandWire {
    network: Network,
    limits: Limits,
    peers: Range<u32>,
    up: VecDeque<PeerId>,
    arriving: VecDeque<Arriving>,
    current: Vec<u8>,
}

impl HandWire {
    /// A wire of a network to the peers with these numbers, which are about to be up.
    pub(super) fn new(network: Network, peers: Range<u32>, message_max: usize) -> Self {
        HandWire {
            network,
            limits: Limits { message_max, fragmented_max: 0 },
            up: peers.clone().map(PeerId).collect(),
            peers,
            arriving: VecDeque::new(),
            current: Vec::new(),
        }
    }

    pub(super) fn put(&mut self, frame: Arriving) {
        self.arriving.push_back(frame);
    }
}

impl Device for HandWire {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn address(&self) -> Address {
        let contents = Contents::new([0; 7]).with(Network::Shm, &[0; Network::SHM_BYTES]);
        contents.address().unwrap_or_else(|_| unreachable!("one network fits"))
    }

    fn connect(&mut self, _: &Address) -> Result<PeerId, DeviceError> {
        Err(DeviceError::BadAddress { why: "this wire takes no connections" })
    }

    fn peer_address(&self, _: PeerId) -> Option<Address> {
        None
    }

    fn read_mode(&self, _: PeerId) -> ReadMode {
        ReadMode::Direct
    }

    fn send(&mut self, peer: PeerId, _: Outgoing<'_>) -> Result<(), Refused> {
        if self.peers.contains(&peer.0) { Ok(()) } else { Err(Refused::Down) }
    }

    fn expose(&mut self, _: PeerId, buffer: Buffer) -> Result<Exposure, (Buffer, DeviceError)> {
        Err((buffer, DeviceError::Exhausted { what: "exposed buffer", limit: 0 }))
    }

    fn withdraw(&mut self, _: PeerId, _: ExposureId) -> Option<Buffer> {
        None
    }

    fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        Err((request.into, ReadError::BadSpan))
    }

    fn poll(&mut self) -> Option<Event<'_>> {
        if let Some(peer) = self.up.pop_front() {
            return Some(Event::PeerUp { peer, limits: self.limits });
        }
        let Arriving { peer, immediate, bytes } = self.arriving.pop_front()?;
        self.current = bytes;
        let immediate = Some(immediate);
        let bytes = Bytes::from_slice(&self.current);
        Some(Event::Message(Incoming { peer, immediate, through_list: false, bytes }))
    }

    fn flush(&mut self, _: PeerId, _: &mut Option<u64>) -> Flush {
        Flush::Done
    }

    fn disconnect(&mut self, _: PeerId) {}

    fn close(&mut self) {}

    fn arm(&mut self, _: &[PeerId]) -> bool {
        true
    }

    fn disarm(&mut self) {}
}

impl Join for HandWire {
    fn network(&self) -> Network {
        self.network
    }

    fn section(&self, _: usize) -> Vec<u8> {
        vec![0; if self.network == Network::Shm { Network::SHM_BYTES } else { 1 }]
    }

    fn join(&mut self, _: Address, _: &PeerNumbers) {}
}
