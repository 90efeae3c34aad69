//! The device of one worker on the simulated network.

use std::cell::RefCell;
use std::rc::Rc;

use tagmatch_device::contents::route;
use tagmatch_device::{
    AccessLimits, Address, Buffer, Bytes, Device, DeviceError, Event, Exposure, ExposureId, Flush,
    Incoming, Join, Limits, Network, Outgoing, PeerId, PeerNumbers, PublishedRegion, QuickAccess,
    ReadError, ReadMode, ReadRequest, Refused, RegionAccess, RegionPlace, RegionSpan, RemoteSpan,
};

use super::net::{LinkState, Net, Ready};
use super::site;

/// A device of a simulated network. A worker that reaches its peers over several networks has one
/// for each: they share the worker's peers, and each knows those of its own network.
#[derive(Debug)]
pub struct Wire {
    net: Rc<RefCell<Net>>,
    me: u32,
    network: Network,
    /// Whether it has yet to tell that the worker itself is up. The network of the worker's own
    /// machine tells that as of every peer.
    tells_oneself: bool,
    current: Vec<u8>,
}

impl Wire {
    /// The device of a new worker, and the worker's number in the network.
    pub(crate) fn new(net: &Rc<RefCell<Net>>) -> (Self, u32) {
        let me = net.borrow_mut().add_node();
        (Wire::on(net, me, Network::Shm), me)
    }

    fn on(net: &Rc<RefCell<Net>>, me: u32, network: Network) -> Self {
        let tells_oneself = network != Network::Shm;
        Wire { net: Rc::clone(net), me, network, tells_oneself, current: Vec::new() }
    }

    /// The devices on the networks that connect the worker to other machines, in the order of
    /// preference.
    pub(crate) fn beyond(&self) -> Vec<Wire> {
        let networks = self.net.borrow().nodes[self.me as usize].site.beyond();
        networks.iter().map(|network| Wire::on(&self.net, self.me, *network)).collect()
    }
}

impl Device for Wire {
    fn limits(&self) -> Limits {
        self.net.borrow().limits(self.me, self.network)
    }

    fn address(&self) -> Address {
        self.net.borrow().address(self.me)
    }

    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        let bad = |why| DeviceError::BadAddress { why };
        let mut net = self.net.borrow_mut();
        let node = site::node_of(address).filter(|node| (*node as usize) < net.nodes.len());
        let node = node.ok_or(bad("not one of this network"))?;
        if net.config.machines > 0 && route(&net.address(self.me), address)? != self.network {
            return Err(bad("its worker is to be reached over another network"));
        }
        Ok(PeerId(net.connect(self.me, node, self.network)))
    }

    fn peer_address(&self, peer: PeerId) -> Option<Address> {
        let net = self.net.borrow();
        net.end(self.me, peer, self.network).map(|end| net.address(end.node))
    }

    fn read_mode(&self, _: PeerId) -> ReadMode {
        ReadMode::Direct
    }

    fn send(&mut self, peer: PeerId, message: Outgoing<'_>) -> Result<(), Refused> {
        let Outgoing { header, payload, immediate } = message;
        let mut net = self.net.borrow_mut();
        let Some(end) = net.end(self.me, peer, self.network) else { return Err(Refused::Down) };
        let to = end.node;
        let back = end.back;
        match end.link {
            _ if end.ends.is_some() => return Err(Refused::Down),
            LinkState::Down => return Err(Refused::Down),
            LinkState::Connecting => return Err(Refused::NotUp),
            LinkState::Up => {}
        }
        if header.len() + payload.len() > net.limits(to, self.network).message_max {
            return Err(Refused::TooLong);
        }
        if net.is_full(to, back) {
            return Err(Refused::Full);
        }
        net.put(self.me, peer.0, [header, payload], immediate);
        Ok(())
    }

    fn expose(&mut self, _: PeerId, buffer: Buffer) -> Result<Exposure, (Buffer, DeviceError)> {
        let length = buffer.len() as u64;
        match self.net.borrow_mut().expose(self.me, self.network, buffer) {
            Ok(key) => {
                let span = RemoteSpan { address: 0, key, length };
                Ok(Exposure { id: ExposureId(key), span })
            }
            Err(buffer) => {
                Err((buffer, DeviceError::Exhausted { what: "exposed buffer", limit: 0xffff }))
            }
        }
    }

    fn withdraw(&mut self, _: PeerId, id: ExposureId) -> Option<Buffer> {
        self.net.borrow_mut().withdraw(self.me, self.network, id.0)
    }

    fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        let mut net = self.net.borrow_mut();
        let link = net.end(self.me, request.peer, self.network).map(|end| end.link);
        if link != Some(LinkState::Up) {
            return Err((request.into, ReadError::PeerDown));
        }
        net.read(self.me, request);
        Ok(())
    }

    fn publish(&mut self, region: &PublishedRegion<'_>) -> RegionPlace {
        self.net.borrow_mut().publish(self.me, region)
    }

    fn unpublish(&mut self, key: u64) -> bool {
        self.net.borrow_mut().unpublish(self.me, key);
        true
    }

    fn access_limits(&self, _: PeerId) -> AccessLimits {
        self.net.borrow().access_limits()
    }

    fn access(&mut self, access: RegionAccess) -> Result<(), Buffer> {
        let mut net = self.net.borrow_mut();
        let link = net.end(self.me, access.peer, self.network).map(|end| end.link);
        if link != Some(LinkState::Up) || access.of.place.is_none() {
            return Err(access.buffer);
        }
        net.access(self.me, access)
    }

    fn access_at_once(&mut self, peer: PeerId, of: RegionSpan, access: QuickAccess<'_>) -> bool {
        let mut net = self.net.borrow_mut();
        let link = net.end(self.me, peer, self.network).map(|end| end.link);
        link == Some(LinkState::Up) && net.access_at_once(self.me, peer, of, access)
    }

    fn poll(&mut self) -> Option<Event<'_>> {
        let mut net = self.net.borrow_mut();
        if std::mem::take(&mut self.tells_oneself) {
            return Some(Event::PeerUp {
                peer: PeerId::ONESELF,
                limits: net.limits(self.me, self.network),
            });
        }
        Some(match net.next(self.me, self.network)? {
            Ready::Up(peer) => {
                let node = net.node_of(self.me, peer).unwrap_or(self.me);
                Event::PeerUp { peer: PeerId(peer), limits: net.limits(node, self.network) }
            }
            Ready::Message(peer, frame) => {
                net.recycle(std::mem::replace(&mut self.current, frame.bytes));
                let bytes = Bytes::from_slice(&self.current);
                let peer = PeerId(peer);
                let immediate = frame.immediate;
                Event::Message(Incoming { peer, immediate, through_list: false, bytes })
            }
            Ready::Read(ReadRequest { token, into, .. }, result) => {
                Event::ReadDone { token, into, result }
            }
            Ready::Accessed(end) => Event::AccessDone(end),
            Ready::Down(peer, reason) => Event::PeerDown { peer: PeerId(peer), reason },
        })
    }

    fn flush(&mut self, peer: PeerId, mark: &mut Option<u64>) -> Flush {
        let mut net = self.net.borrow_mut();
        if net.end(self.me, peer, self.network).is_none() {
            return Flush::Done;
        }
        match net.flush(self.me, peer.0, mark) {
            0 => Flush::Done,
            messages => {
                Flush::Pending { messages: usize::try_from(messages).unwrap_or(usize::MAX) }
            }
        }
    }

    fn disconnect(&mut self, peer: PeerId) {
        let mut net = self.net.borrow_mut();
        if net.end(self.me, peer, self.network).is_some() {
            net.disconnect(self.me, peer.0);
        }
    }

    fn close(&mut self) {
        self.net.borrow_mut().close(self.me);
    }

    fn arm(&mut self, _: &[PeerId]) -> bool {
        true
    }

    fn has_work(&self) -> bool {
        self.net.borrow().has_work(self.me, self.network)
    }

    fn disarm(&mut self) {}
}

impl Join for Wire {
    fn network(&self) -> Network {
        self.network
    }

    fn section(&self, _: usize) -> Vec<u8> {
        self.net.borrow().nodes[self.me as usize].site.section(self.network, self.me)
    }

    /// The devices of a worker share its table of peers. So its places are the numbers.
    fn join(&mut self, address: Address, _: &PeerNumbers) {
        self.net.borrow_mut().nodes[self.me as usize].address = address;
    }
}
