//! The network that all wires of a run share: connections, messages in transit, and exposed
//! buffers.

use std::collections::{BTreeMap, VecDeque};

use tagmatch_device::{
    AccessEnd, Address, Buffer, DownReason, Limits, Network, PeerId, ReadError, ReadRequest,
    RegionAccess,
};
use tagmatch_testkit::random::Random;

use super::WireFault;
use super::ledger::Account;
use super::site::Site;

/// Settings of the wires.
#[derive(Clone, Debug)]
pub struct WireConfig {
    /// Bytes in the largest message; each worker announces between half of it and all of it.
    pub message_max: u32,
    /// Whether workers take messages in fragments.
    pub fragments: bool,
    /// The most messages in transit on one channel.
    pub capacity: u32,
    /// Longest delay in ticks.
    pub delay_max: u32,
    /// Messages, of 1000, that are delayed.
    pub delayed_per_mille: u32,
    /// Sends, of 1000, that are refused for no reason.
    pub refused_per_mille: u32,
    /// Buffers that one worker can expose.
    pub exposures_max: u32,
    /// The number of machines that workers are on, or 0 if all peers are reached over one network.
    pub machines: u32,
    /// Accesses to regions without messages, of 1000, that are taken, and of those, the ones that
    /// are done. 0: no worker lets its peers access its regions.
    pub accesses_per_mille: u32,
    /// The same of an access that may be done in the call that begins it.
    pub calls_per_mille: u32,
    /// How many accesses to one peer may be under way at a time.
    pub accesses_at_once: usize,
    /// Seed of all that the wires decide.
    pub seed: u64,
}

/// No number of a message: it has no tag.
pub(super) const UNTAGGED: u32 = u32::MAX;
/// `ECONNREFUSED`.
const REFUSED: i32 = 111;

/// A message on its way.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    pub(super) immediate: Option<u32>,
    pub(super) ready: u64,
    /// The number of the message among the messages with a tag of this sender to this receiver,
    /// from 0.
    pub(super) ordinal: u32,
    /// The number of the message that begins with this fragment and doesn't end with it.
    pub(super) begins: Option<u32>,
    pub(super) eager: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    Connecting,
    Up,
    Down,
}

/// A peer as one worker sees it.
#[derive(Debug)]
pub(super) struct PeerEnd {
    pub(super) node: u32,
    /// The network that connects the two.
    pub(super) network: Network,
    /// The number that the peer knows this worker by.
    pub(super) back: u32,
    pub(super) link: LinkState,
    pub(super) up_at: u64,
    /// The worker has connected to this peer, so it must be told of its end even if it never was
    /// up.
    pub(super) is_asked_for: bool,
    /// Set while the peer goes down. The messages in transit are delivered first.
    pub(super) ends: Option<DownReason>,
    pub(super) inbox: VecDeque<Frame>,
    pub(super) tagged_sent: u32,
    /// Bytes of a message that this worker has begun to send to the peer in fragments and that are
    /// still to be sent.
    pub(super) unsent: u64,
    /// Messages that this peer has sent here, and how many of those arrive even if it is killed.
    pub(super) put: u64,
    pub(super) safe: u64,
    /// Keys in rendezvous requests that came from this peer, and the numbers of those.
    pub(super) keys: Vec<(u32, u32)>,
    /// What this peer may send here.
    pub(super) account: Account,
}

#[derive(Debug, Default)]
pub(super) struct Exposed {
    pub(super) buffer: Option<Buffer>,
    /// The network whose peers may read the buffer.
    pub(super) network: Option<Network>,
    pub(super) generation: u32,
}

#[derive(Debug)]
pub(super) struct Reading {
    pub(super) request: ReadRequest,
    pub(super) ordinal: u32,
    pub(super) ready: u64,
}

/// What peers may do to a region by themselves.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionBounds {
    pub(super) length: u64,
    pub(super) reads: bool,
    pub(super) writes: bool,
    pub(super) changes: bool,
}

/// The memory of a region, while a worker calls its engine that may access it.
#[derive(Debug)]
pub(crate) struct RegionView {
    /// The number of the region's owner.
    pub(crate) owner: u32,
    /// The region's key.
    pub(crate) key: u64,
    /// All bytes of the region, which are its owner's again after the call.
    pub(crate) bytes: Vec<u8>,
}

/// An access under way, or one that has ended and was not reported.
#[derive(Debug)]
pub(super) struct Accessing {
    pub(super) access: RegionAccess,
    pub(super) ready: u64,
    pub(super) progress: AccessProgress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessProgress {
    Waiting,
    /// It is being carried out, and its buffer is with whoever does that.
    Taken,
    Ended {
        is_done: bool,
    },
}

#[derive(Debug)]
pub(super) struct NodeState {
    pub(super) site: Site,
    pub(super) address: Address,
    pub(super) peers: Vec<PeerEnd>,
    pub(super) exposed: Vec<Exposed>,
    pub(super) free: Vec<u32>,
    pub(super) reads: Vec<Reading>,
    /// The regions that peers access by themselves, by their keys.
    pub(super) regions: BTreeMap<u64, RegionBounds>,
    /// The oldest one first.
    pub(super) accesses: Vec<Accessing>,
    pub(super) fail_reads: u32,
    /// Bytes in the largest message that the worker takes from peers of its machine, and from
    /// others.
    pub(super) message_max: [usize; 2],
    pub(super) is_gone: bool,
    /// Events that may still be taken.
    pub(super) budget: u32,
}

/// How a READ ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    Done,
    Failed(i32),
    PeerDown,
    BadSpan,
}

/// An event of the wires that the oracle is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// A message with a tag was handed to its receiver.
    Arrived { at: u32, from: u32, ordinal: u32, eager: bool, tick: u64 },
    /// The first of several fragments of a message was handed to its receiver.
    Began { at: u32, from: u32, ordinal: u32 },
    /// The receiver began to read a message: it has been matched.
    ReadBegan { at: u32, from: u32, ordinal: u32, tick: u64 },
    /// A READ was given back.
    ReadEnded { at: u32, from: u32, ordinal: u32, outcome: ReadOutcome },
    /// `at`, or its device, disconnected from `with`.
    Broke { at: u32, with: u32 },
    /// `at` was told that `from` is gone.
    Down { at: u32, from: u32, tick: u64 },
}

/// The next event of a worker.
pub(super) enum Ready {
    Up(u32),
    Message(u32, Frame),
    Read(ReadRequest, Result<(), ReadError>),
    Accessed(AccessEnd),
    Down(u32, DownReason),
}

/// The network of a run.
#[derive(Debug)]
pub struct Net {
    pub(super) config: WireConfig,
    pub(super) random: Random,
    pub(super) clock: u64,
    pub(super) nodes: Vec<NodeState>,
    pub(super) notes: Vec<Note>,
    /// Nothing is delayed any more.
    pub(crate) hurry: bool,
    pub(super) wire_fault: Option<WireFault>,
    /// The memory that accesses in one call reach.
    pub(crate) view: Option<RegionView>,
    pub(super) spare: Vec<Vec<u8>>,
    pub(super) reads_failed: i32,
    /// Events handed out.
    pub(crate) events: u64,
}

pub(super) fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

impl Net {
    /// A network without workers.
    #[must_use]
    pub fn new(config: WireConfig, wire_fault: Option<WireFault>) -> Self {
        let random = Random::stream(config.seed, 3);
        Net {
            config,
            random,
            clock: 0,
            nodes: Vec::new(),
            notes: Vec::new(),
            hurry: false,
            wire_fault,
            view: None,
            spare: Vec::new(),
            reads_failed: 0,
            events: 0,
        }
    }

    /// The next moment. No two things happen at the same.
    pub(crate) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Adds a worker, which knows itself as peer 0.
    pub(crate) fn add_node(&mut self) -> u32 {
        let me = number(self.nodes.len());
        let max = self.config.message_max;
        let mut message_max = || self.random.between(((max / 2).max(64), max.max(64))) as usize;
        let near = message_max();
        let beyond = if self.config.machines > 0 { message_max() } else { near };
        let site = Site::new(self.config.machines, self.config.seed, me);
        self.nodes.push(NodeState {
            site,
            address: site.address(me),
            peers: vec![],
            exposed: vec![],
            free: vec![],
            reads: vec![],
            regions: BTreeMap::new(),
            accesses: vec![],
            fail_reads: 0,
            message_max: [near, beyond],
            is_gone: false,
            budget: 0,
        });
        self.add_end(me, me, 0, Network::Shm);
        // A worker knows itself without a call of its device.
        self.nodes[me as usize].peers[0].is_asked_for = true;
        me
    }

    /// What a worker announces to its peers on a network.
    pub(super) fn limits(&self, node: u32, network: Network) -> Limits {
        let [near, beyond] = self.nodes[node as usize].message_max;
        let message_max = if network == Network::Shm { near } else { beyond };
        Limits { message_max, fragmented_max: if self.config.fragments { usize::MAX } else { 0 } }
    }

    fn add_end(&mut self, at: u32, node: u32, back: u32, network: Network) {
        let up_at = self.clock + self.delay();
        let end = PeerEnd {
            node,
            network,
            back,
            link: LinkState::Connecting,
            up_at,
            is_asked_for: false,
            ends: None,
            inbox: VecDeque::new(),
            tagged_sent: 0,
            unsent: 0,
            put: 0,
            safe: 0,
            keys: Vec::new(),
            account: Account::default(),
        };
        self.nodes[at as usize].peers.push(end);
    }

    pub(super) fn delay(&mut self) -> u64 {
        if self.config.delay_max == 0 || !self.random.per_mille(self.config.delayed_per_mille) {
            return 0;
        }
        self.random.below_u32(self.config.delay_max + 1).into()
    }

    /// The number by which `at` knows `node`, if it does.
    pub(crate) fn peer_of(&self, at: u32, node: u32) -> Option<u32> {
        self.nodes[at as usize].peers.iter().position(|peer| peer.node == node).map(number)
    }

    /// The worker that `at` knows by this number.
    pub(crate) fn node_of(&self, at: u32, peer: u32) -> Option<u32> {
        self.nodes[at as usize].peers.get(peer as usize).map(|peer| peer.node)
    }

    /// The address of a worker.
    pub(crate) fn address(&self, node: u32) -> Address {
        self.nodes[node as usize].address
    }

    /// What `at` sees of a peer that it reaches over this network. A peer of another network is
    /// unknown, as for every device that is one of several.
    pub(super) fn end(&self, at: u32, peer: PeerId, network: Network) -> Option<&PeerEnd> {
        let end = self.nodes[at as usize].peers.get(peer.index())?;
        (end.network == network).then_some(end)
    }

    /// How many peers a worker has met.
    pub(crate) fn peers(&self, at: u32) -> u64 {
        self.nodes[at as usize].peers.len() as u64
    }

    pub(super) fn connect(&mut self, at: u32, node: u32, network: Network) -> u32 {
        if let Some(known) = self.peer_of(at, node) {
            self.nodes[at as usize].peers[known as usize].is_asked_for = true;
            return known;
        }
        let mine = number(self.nodes[at as usize].peers.len());
        let theirs = number(self.nodes[node as usize].peers.len());
        self.add_end(at, node, theirs, network);
        if self.nodes[node as usize].is_gone {
            let end = &mut self.nodes[at as usize].peers[mine as usize];
            end.ends = Some(DownReason::Unreachable { errno: REFUSED });
        } else {
            self.add_end(node, at, mine, network);
        }
        self.nodes[at as usize].peers[mine as usize].is_asked_for = true;
        mine
    }

    /// The worker has ended, and its peers will be told. With `lossy` its last messages may be
    /// lost.
    pub(crate) fn kill(&mut self, node: u32, lossy: bool) {
        let me = &mut self.nodes[node as usize];
        me.is_gone = true;
        me.reads.clear();
        me.regions.clear();
        me.accesses.clear();
        let ends: Vec<_> = me.peers.iter().map(|end| (end.node, end.back)).collect();
        for (other, back) in ends.into_iter().skip(1) {
            let cut = lossy.then(|| self.random.bits());
            let peers = &mut self.nodes[other as usize].peers;
            let Some(end) = peers.get_mut(back as usize).filter(|end| end.node == node) else {
                continue;
            };
            end.ends.get_or_insert(DownReason::Gone);
            if let Some(cut) = cut {
                let kept = usize::try_from(cut).unwrap_or(0) % (end.inbox.len() + 1);
                let arrived = end.put.saturating_sub(end.inbox.len() as u64);
                let safe = usize::try_from(end.safe.saturating_sub(arrived)).unwrap_or(0);
                end.inbox.truncate(kept.max(safe));
            }
        }
    }

    /// How many messages to a peer, of those up to the mark, are lost if the worker is killed now.
    /// Sometimes none are from now on: they are acknowledged.
    pub(super) fn flush(&mut self, at: u32, peer: u32, mark: &mut Option<u64>) -> u64 {
        let end = &self.nodes[at as usize].peers[peer as usize];
        if end.node == at || end.link == LinkState::Down || end.ends.is_some() {
            return 0;
        }
        let node = end.node;
        let back = end.back;
        let is_acknowledged = self.random.per_mille(700);
        let Some(theirs) = self.nodes[node as usize].peers.get_mut(back as usize) else { return 0 };
        if is_acknowledged {
            theirs.safe = theirs.put;
        }
        mark.get_or_insert(theirs.put).saturating_sub(theirs.safe)
    }

    pub(super) fn disconnect(&mut self, at: u32, peer: u32) {
        let end = &mut self.nodes[at as usize].peers[peer as usize];
        let node = end.node;
        let back = end.back;
        end.ends = Some(DownReason::Disconnected);
        end.inbox.clear();
        self.notes.push(Note::Broke { at, with: node });
        let peers = &mut self.nodes[node as usize].peers;
        if let Some(end) = peers.get_mut(back as usize).filter(|end| end.node == at) {
            end.ends.get_or_insert(DownReason::Gone);
        }
    }

    pub(super) fn close(&mut self, at: u32) {
        self.nodes[at as usize].is_gone = true;
    }

    /// The next READ of the worker fails.
    pub(crate) fn fail_read(&mut self, at: u32) {
        self.nodes[at as usize].fail_reads += 1;
    }

    /// How many events the worker may take before it finds nothing.
    pub(crate) fn allow(&mut self, at: u32, events: u32) {
        self.nodes[at as usize].budget = events;
    }

    /// Moves what was noted since the last call behind `into`.
    pub(crate) fn take_notes(&mut self, into: &mut Vec<Note>) {
        into.append(&mut self.notes);
    }

    pub(super) fn recycle(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < 64 {
            self.spare.push(bytes);
        }
    }
}
