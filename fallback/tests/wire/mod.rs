//! A network of engines inside one test: queues instead of wires, with faults on demand.

#![allow(unreachable_pub, dead_code, reason = "each test uses its share")]

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use tagmatch_device::{
    Address, Buffer, Bytes, Device, DeviceError, DownReason, Event, Exposure, ExposureId, Flush,
    Incoming, Limits, Outgoing, PeerId, ReadError, ReadMode, ReadRequest, Refused, RemoteSpan,
};
use tagmatch_fallback::{Amount, CreditConfig, Engine, EngineConfig, MatchEngine};
use tagmatch_soft::TagLayout;

/// Bytes and immediate data of a message under way.
type Frame = (Vec<u8>, Option<u32>);

/// What all devices of a test share.
#[derive(Debug, Default)]
pub struct Net {
    /// (from, to) -> messages under way.
    pub queues: HashMap<(usize, usize), VecDeque<Frame>>,
    pub exposed: HashMap<(usize, u32), Vec<u8>>,
    dead: Vec<bool>,
    /// Messages that the way from one node to another holds.
    pub capacity: usize,
    /// The next reads fail with this error number.
    pub reads_fail: Option<i32>,
    /// Whether each of the next sends, of any node, finds the way full although it isn't. Later
    /// ones don't.
    pub refuse: VecDeque<bool>,
    /// Buffers that a node can expose at a time; `None`: as many as it likes.
    pub exposures_max: Option<usize>,
    /// No buffer can be exposed: a call named `register` fails with this error number.
    pub expose_fails: Option<i32>,
    /// Exposed memory is said to be this long.
    pub exposed_length: Option<u64>,
    /// Reads do not end until this is taken back.
    pub reads_hang: bool,
    /// Why a node that was killed is down.
    pub death: Option<DownReason>,
    pub message_max: usize,
    pub fragmented_max: usize,
    /// Messages that were taken, over all nodes.
    pub taken: usize,
    /// How many of these are acknowledged; `None` for all.
    pub acknowledged: Option<usize>,
    /// Messages to peers that are down may not have arrived.
    pub loses: bool,
    /// Lengths of the buffers that nodes have allocated.
    pub allocated: Vec<usize>,
    /// A peer may be writing into each region that is closed.
    pub has_late_writers: bool,
    /// Nodes get no further memory.
    pub is_out_of_memory: bool,
}

/// One device. Peer numbers: 0 is oneself, then in the order of meeting.
#[derive(Debug)]
pub struct Wire {
    net: Rc<RefCell<Net>>,
    me: usize,
    peers: Vec<usize>,
    up: usize,
    down: Vec<bool>,
    reads: VecDeque<ReadRequest>,
    exposures: HashMap<u32, Buffer>,
    next_exposure: u32,
    current: Vec<u8>,
    turn: usize,
    /// Nodes that went down: they are never met again.
    gone: Vec<usize>,
}

/// Stands in a node's table of peers for one that went down.
const GONE: usize = usize::MAX;

pub type Node<D = Wire> = Engine<D>;

pub fn config() -> EngineConfig {
    EngineConfig {
        nic_threshold: 0,
        source_bits: TagLayout::MPI.source_mask(),
        eager_max: 1024,
        fragmented_max: 0,
        operations_max: 1 << 20,
        credit: CreditConfig {
            pool: Amount { messages: 4096, bytes: 1 << 20 },
            first: Amount { messages: 64, bytes: 16 * 1024 },
            peer_max: Amount { messages: 1024, bytes: 1 << 18 },
        },
        departed_max: 1024,
        seed: 7,
    }
}

/// `n` engines on one network.
pub fn nodes(n: usize, config: &EngineConfig) -> (Rc<RefCell<Net>>, Vec<Node>) {
    nodes_on(n, config, |_, wire| wire)
}

/// `n` engines on one network, each with a device made of its number and its wire.
pub fn nodes_on<D: Device>(
    n: usize,
    config: &EngineConfig,
    device: impl Fn(u64, Wire) -> D,
) -> (Rc<RefCell<Net>>, Vec<Node<D>>) {
    let net = Net { capacity: 8, message_max: 4096, dead: vec![false; n], ..Net::default() };
    let net = Rc::new(RefCell::new(net));
    let wire = |me| Wire {
        net: Rc::clone(&net),
        me,
        peers: vec![me],
        up: 0,
        down: vec![false],
        reads: VecDeque::new(),
        exposures: HashMap::new(),
        next_exposure: 0,
        current: Vec::new(),
        turn: 0,
        gone: Vec::new(),
    };
    let node = |me| Engine::new(device(me as u64, wire(me)), config).unwrap();
    let nodes = (0..n).map(node).collect();
    (net, nodes)
}

/// Connects a to b; gives b as a knows it.
pub fn meet<D: Device>(nodes: &mut [Node<D>], a: usize, b: usize) -> PeerId {
    nodes[a].connect(&address(b)).unwrap()
}

pub fn address(me: usize) -> Address {
    Address::from_bytes(&[u8::try_from(me).unwrap() + 1]).unwrap()
}

/// Lets all engines work until nothing happens.
pub fn settle<D: Device>(nodes: &mut [Node<D>]) {
    let mut quiet = 0;
    while quiet < 4 {
        let events: usize = nodes.iter_mut().map(Engine::progress).sum();
        let is_busy = events > 0 || nodes.iter().any(|node| node.device().has_work());
        quiet = if is_busy { 0 } else { quiet + 1 };
    }
}

/// The process of `me` is gone.
pub fn kill(net: &Rc<RefCell<Net>>, me: usize) {
    net.borrow_mut().dead[me] = true;
}

/// Puts bytes on the way as if `from` had sent them.
pub fn forge(net: &Rc<RefCell<Net>>, from: usize, to: usize, bytes: &[u8]) {
    net.borrow_mut().queues.entry((from, to)).or_default().push_back((bytes.to_vec(), None));
}

impl Wire {
    fn number_of(&mut self, node: usize) -> PeerId {
        let index = self.peers.iter().position(|&p| p == node).unwrap_or_else(|| {
            self.peers.push(node);
            self.down.push(false);
            self.peers.len() - 1
        });
        PeerId(u32::try_from(index).unwrap())
    }

    fn next_message(&mut self) -> Option<(PeerId, Option<u32>)> {
        let nodes = self.net.borrow().dead.len();
        for _ in 0..nodes {
            let from = self.turn % nodes;
            self.turn += 1;
            let waiting =
                self.net.borrow().queues.get(&(from, self.me)).is_some_and(|q| !q.is_empty());
            if !waiting || self.gone.contains(&from) {
                continue;
            }
            let peer = self.number_of(from);
            if peer.index() >= self.up || self.down[peer.index()] {
                continue;
            }
            let mut net = self.net.borrow_mut();
            let (bytes, immediate) = net.queues.get_mut(&(from, self.me))?.pop_front()?;
            self.current = bytes;
            return Some((peer, immediate));
        }
        None
    }

    fn next_death(&mut self) -> Option<PeerId> {
        let net = self.net.borrow();
        let index = (0..self.up).find(|&i| !self.down[i] && net.dead[self.peers[i]])?;
        let peer = PeerId(u32::try_from(index).unwrap());
        drop(net);
        Some(peer)
    }

    fn next_read(&mut self) -> Option<(ReadRequest, Result<(), ReadError>)> {
        let mut net = self.net.borrow_mut();
        let is_from_dead = |r: &ReadRequest| {
            let peer = r.peer.index();
            self.down[peer] || net.dead[self.peers[peer]]
        };
        let at = self.reads.iter().position(|r| is_from_dead(r) || !net.reads_hang)?;
        if is_from_dead(&self.reads[at]) {
            return self.reads.remove(at).map(|read| (read, Err(ReadError::PeerDown)));
        }
        let mut read = self.reads.remove(at)?;
        let owner = self.peers[read.peer.index()];
        if let Some(errno) = net.reads_fail.take() {
            return Some((read, Err(ReadError::Failed { errno })));
        }
        let result = match net.exposed.get(&(owner, read.remote.key)) {
            Some(bytes) => {
                let length = usize::try_from(read.remote.length).unwrap();
                read.into.as_mut_slice().unwrap()[..length].copy_from_slice(&bytes[..length]);
                Ok(())
            }
            None => Err(ReadError::BadSpan),
        };
        Some((read, result))
    }
}

impl Device for Wire {
    fn limits(&self) -> Limits {
        Limits {
            message_max: self.net.borrow().message_max,
            fragmented_max: self.net.borrow().fragmented_max,
        }
    }

    fn address(&self) -> Address {
        address(self.me)
    }

    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        Ok(self.number_of(usize::from(address.as_bytes()[0]) - 1))
    }

    fn peer_address(&self, peer: PeerId) -> Option<Address> {
        self.peers.get(peer.index()).filter(|&&node| node != GONE).map(|&node| address(node))
    }

    fn read_mode(&self, _: PeerId) -> ReadMode {
        ReadMode::Direct
    }

    fn allocate(&mut self, length: usize) -> Option<Buffer> {
        let mut net = self.net.borrow_mut();
        net.allocated.push(length);
        (!net.is_out_of_memory).then(|| Buffer::zeroed(length))
    }

    fn send(&mut self, peer: PeerId, message: Outgoing<'_>) -> Result<(), Refused> {
        let mut net = self.net.borrow_mut();
        let to = self.peers[peer.index()];
        if net.dead[to] || self.down[peer.index()] {
            return Err(Refused::Down);
        }
        if peer.index() >= self.up {
            return Err(Refused::NotUp);
        }
        if message.header.len() + message.payload.len() > net.message_max {
            return Err(Refused::TooLong);
        }
        if net.refuse.pop_front() == Some(true) {
            return Err(Refused::Full);
        }
        let capacity = net.capacity;
        let queue = net.queues.entry((self.me, to)).or_default();
        if queue.len() >= capacity {
            return Err(Refused::Full);
        }
        queue.push_back(([message.header, message.payload].concat(), message.immediate));
        net.taken += 1;
        Ok(())
    }

    fn expose(&mut self, _: PeerId, buffer: Buffer) -> Result<Exposure, (Buffer, DeviceError)> {
        if let Some(errno) = self.net.borrow().expose_fails {
            let source = std::io::Error::from_raw_os_error(errno);
            return Err((
                buffer,
                DeviceError::System { call: "register", source, hint: "; more?" },
            ));
        }
        if let Some(limit) =
            self.net.borrow().exposures_max.filter(|max| self.exposures.len() >= *max)
        {
            return Err((buffer, DeviceError::Exhausted { what: "exposed buffer", limit }));
        }
        self.next_exposure += 1;
        let id = self.next_exposure;
        let length = self.net.borrow().exposed_length.unwrap_or(buffer.len() as u64);
        self.net.borrow_mut().exposed.insert((self.me, id), buffer.to_vec());
        self.exposures.insert(id, buffer);
        let span = RemoteSpan { address: 0, key: id, length };
        Ok(Exposure { id: ExposureId(id), span })
    }

    fn withdraw(&mut self, _: PeerId, id: ExposureId) -> Option<Buffer> {
        self.net.borrow_mut().exposed.remove(&(self.me, id.0));
        self.exposures.remove(&id.0)
    }

    fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        self.reads.push_back(request);
        Ok(())
    }

    fn poll(&mut self) -> Option<Event<'_>> {
        if self.up < self.peers.len() {
            self.up += 1;
            let peer = PeerId(u32::try_from(self.up - 1).unwrap());
            return Some(Event::PeerUp { peer, limits: self.limits() });
        }
        if let Some((peer, immediate)) = self.next_message() {
            let bytes = Bytes::from_slice(&self.current);
            return Some(Event::Message(Incoming { peer, immediate, through_list: false, bytes }));
        }
        if let Some((ReadRequest { into, token, .. }, result)) = self.next_read() {
            return Some(Event::ReadDone { token, into, result });
        }
        if let Some(index) = (0..self.up).find(|&i| self.down[i] && self.peers[i] != GONE) {
            // Disconnected by us.
            self.gone.push(std::mem::replace(&mut self.peers[index], GONE));
            let peer = PeerId(u32::try_from(index).unwrap());
            return Some(Event::PeerDown { peer, reason: DownReason::Disconnected });
        }
        let peer = self.next_death()?;
        self.down[peer.index()] = true;
        self.gone.push(std::mem::replace(&mut self.peers[peer.index()], GONE));
        let reason = self.net.borrow().death.unwrap_or(DownReason::Gone);
        Some(Event::PeerDown { peer, reason })
    }

    fn unpublish(&mut self, _: u64) -> bool {
        !self.net.borrow().has_late_writers
    }

    fn flush(&mut self, peer: PeerId, mark: &mut Option<u64>) -> Flush {
        let net = self.net.borrow();
        let taken = usize::try_from(*mark.get_or_insert(net.taken as u64)).unwrap();
        let is_down = self.down[peer.index()];
        match net.acknowledged {
            _ if is_down => {
                if net.loses {
                    Flush::Lost { messages: 1 }
                } else {
                    Flush::Done
                }
            }
            Some(known) if known < taken => Flush::Pending { messages: taken - known },
            _ => Flush::Done,
        }
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.down[peer.index()] = true;
    }

    fn close(&mut self) {}

    fn arm(&mut self, _: &[PeerId]) -> bool {
        true
    }

    fn disarm(&mut self) {}
}
