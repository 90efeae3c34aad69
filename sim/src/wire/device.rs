//! The device of one worker on the simulated network.

use std::cell::RefCell;
use std::rc::Rc;

use tagmatch_device::{
    Address, Buffer, Bytes, Device, DeviceError, Event, Exposure, ExposureId, Flush, Incoming,
    Limits, Outgoing, PeerId, ReadError, ReadMode, ReadRequest, Refused, RemoteSpan,
};

use super::net::{LinkState, Net, Ready};

/// A device of a simulated network.
#[derive(Debug)]
pub struct Wire {
    net: Rc<RefCell<Net>>,
    me: u32,
    current: Vec<u8>,
}

/// The address of a worker.
pub(crate) fn address(node: u32) -> Address {
    Address::from_bytes(&node.to_be_bytes()).unwrap_or_else(|_| unreachable!("four bytes fit"))
}

impl Wire {
    /// The device of a new worker, and the worker's number in the network.
    pub(crate) fn new(net: &Rc<RefCell<Net>>) -> (Self, u32) {
        let me = net.borrow_mut().add_node();
        let wire = Wire { net: Rc::clone(net), me, current: Vec::new() };
        (wire, me)
    }
}

impl Device for Wire {
    fn limits(&self) -> Limits {
        self.net.borrow().limits(self.me)
    }

    fn address(&self) -> Address {
        address(self.me)
    }

    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        let bad = DeviceError::BadAddress { why: "not one of this network" };
        let Ok(bytes) = <[u8; 4]>::try_from(address.as_bytes()) else { return Err(bad) };
        let node = u32::from_be_bytes(bytes);
        let mut net = self.net.borrow_mut();
        if node as usize >= net.nodes.len() {
            return Err(bad);
        }
        Ok(PeerId(net.connect(self.me, node)))
    }

    fn peer_address(&self, peer: PeerId) -> Option<Address> {
        self.net.borrow().node_of(self.me, peer.0).map(address)
    }

    fn read_mode(&self, _: PeerId) -> ReadMode {
        ReadMode::Direct
    }

    fn send(&mut self, peer: PeerId, message: Outgoing<'_>) -> Result<(), Refused> {
        let Outgoing { header, payload, immediate } = message;
        let mut net = self.net.borrow_mut();
        let Some(end) = net.nodes[self.me as usize].peers.get(peer.index()) else {
            return Err(Refused::Down);
        };
        let (to, back) = (end.node, end.back);
        match end.link {
            _ if end.ends.is_some() => return Err(Refused::Down),
            LinkState::Down => return Err(Refused::Down),
            LinkState::Connecting => return Err(Refused::NotUp),
            LinkState::Up => {}
        }
        if header.len() + payload.len() > net.nodes[to as usize].message_max {
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
        match self.net.borrow_mut().expose(self.me, buffer) {
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
        self.net.borrow_mut().withdraw(self.me, id.0)
    }

    fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        let mut net = self.net.borrow_mut();
        let link = net.nodes[self.me as usize].peers.get(request.peer.index()).map(|end| end.link);
        if link != Some(LinkState::Up) {
            return Err((request.into, ReadError::PeerDown));
        }
        net.read(self.me, request);
        Ok(())
    }

    fn poll(&mut self) -> Option<Event<'_>> {
        let mut net = self.net.borrow_mut();
        Some(match net.next(self.me)? {
            Ready::Up(peer) => {
                let node = net.node_of(self.me, peer).unwrap_or(self.me);
                Event::PeerUp { peer: PeerId(peer), limits: net.limits(node) }
            }
            Ready::Message(peer, frame) => {
                net.recycle(std::mem::replace(&mut self.current, frame.bytes));
                let bytes = Bytes::from_slice(&self.current);
                let (peer, immediate) = (PeerId(peer), frame.immediate);
                Event::Message(Incoming { peer, immediate, through_list: false, bytes })
            }
            Ready::Read(ReadRequest { token, into, .. }, result) => {
                Event::ReadDone { token, into, result }
            }
            Ready::Down(peer, reason) => Event::PeerDown { peer: PeerId(peer), reason },
        })
    }

    fn flush(&mut self, peer: PeerId, mark: &mut Option<u64>) -> Flush {
        match self.net.borrow_mut().flush(self.me, peer.0, mark) {
            0 => Flush::Done,
            messages => {
                Flush::Pending { messages: usize::try_from(messages).unwrap_or(usize::MAX) }
            }
        }
    }

    fn disconnect(&mut self, peer: PeerId) {
        let mut net = self.net.borrow_mut();
        if peer.index() < net.nodes[self.me as usize].peers.len() {
            net.disconnect(self.me, peer.0);
        }
    }

    fn close(&mut self) {
        self.net.borrow_mut().close(self.me);
    }

    fn arm(&mut self, _: &[PeerId]) -> bool {
        true
    }

    fn disarm(&mut self) {}
}
