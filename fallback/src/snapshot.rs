//! What an engine waits for, as plain data: both lists, sends that are under way, and peers.
//!
//! A snapshot is made of what the engine keeps anyway, so that nothing on the way of a message
//! writes anything down for it.

use tagmatch_device::{Address, Device, PeerId};
use tagmatch_soft::Pattern;

use crate::core::Core;
use crate::counters::Counters;
use crate::credit::Amount;
use crate::error::PeerFault;
use crate::peers::peer::{Peer, PeerState};
use crate::requests::request::{RequestId, Send, Status};
use crate::sending::Sending;
use crate::state::ProtocolState;

/// What an engine waits for.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Peers by number; those that were forgotten are left out.
    pub peers: Excerpt<PeerSnapshot>,
    /// Receives on the posted list, oldest first.
    pub posted: Excerpt<PostedReceive>,
    /// Receives that have their message, whose bytes are to come.
    pub arriving: Excerpt<ArrivingReceive>,
    /// Messages on the unexpected list, oldest first.
    pub unexpected: Excerpt<UnexpectedEnvelope>,
    /// Sends that have not ended: those that have gone first, then the others of each peer in their
    /// order.
    pub sends: Excerpt<PendingSend>,
    /// Requests that a device that matches by itself has. Nothing else is known of them: the lists
    /// are empty with such a device.
    pub delegated: usize,
    /// What the engine has done so far.
    pub counters: Counters,
}

/// The first of a list, and how many there are beyond them.
#[derive(Clone, Debug, PartialEq)]
pub struct Excerpt<T> {
    /// The first ones.
    pub first: Vec<T>,
    /// How many follow that are not here.
    pub left_out: usize,
}

impl<T> Default for Excerpt<T> {
    fn default() -> Self {
        Excerpt { first: Vec::new(), left_out: 0 }
    }
}

impl<T> Excerpt<T> {
    /// At most so many of these.
    pub(crate) fn of(all: impl Iterator<Item = T>, most: usize) -> Self {
        let mut all = all.fuse();
        let first = all.by_ref().take(most).collect();
        Excerpt { first, left_out: all.count() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.first.len() + self.left_out
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A peer in a [`Snapshot`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PeerSnapshot {
    /// Its number.
    pub peer: PeerId,
    /// Its address, if the device knows it.
    pub address: Option<Address>,
    /// What became of the connection to it.
    pub connection: ConnectionState,
    /// What may be sent to it without another credit message.
    pub credit: Amount,
    /// Sends to it that have not gone out.
    pub backlog: usize,
    /// One-sided operations on its regions that have not ended.
    pub one_sided: usize,
}

impl PeerSnapshot {
    /// A peer to which nothing waits.
    pub(crate) fn new(peer: PeerId, address: Option<Address>, connection: ConnectionState) -> Self {
        let credit = Amount::default();
        PeerSnapshot { peer, address, connection, credit, backlog: 0, one_sided: 0 }
    }
}

/// The life of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// It is not up yet.
    Connecting,
    /// Messages may pass.
    Up,
    /// It has ended.
    Down(PeerFault),
}

/// A posted receive in a [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostedReceive {
    /// The number of its request: the same in all snapshots, and that of no other request.
    pub request: RequestId,
    /// What it takes.
    pub pattern: Pattern,
    /// The length of its buffer in bytes.
    pub length: u64,
    /// Whether the NIC's list has it, too.
    pub is_in_nic: bool,
}

/// A receive in a [`Snapshot`] that has its message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArrivingReceive {
    /// The number of its request.
    pub request: RequestId,
    /// The envelope of its message.
    pub status: Status,
}

/// An unexpected message in a [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnexpectedEnvelope {
    /// Its envelope.
    pub status: Status,
    /// Its sender waits until it is received.
    pub is_awaited: bool,
}

/// A send in a [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingSend {
    /// The number of its request; [`RequestId::NONE`] if nobody waits for its end.
    pub request: RequestId,
    /// To whom; tag and length.
    pub envelope: Status,
    /// What it waits for.
    pub waits_for: SendWait,
}

/// What a send waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendWait {
    /// The connection, which is not up yet.
    Connection,
    /// Credit: the receiver has too many messages that nobody has received.
    Credit,
    /// Room on the way to the peer, which has not taken out what is there.
    Room,
    /// An earlier operation of this worker to end.
    Place,
    /// An earlier send to this peer.
    Turn,
    /// A receive that matches it, and that takes its bytes.
    Receive,
    /// An acknowledgement: its bytes have gone.
    Acknowledgement,
}

pub(crate) fn of<D: Device>(device: &D, core: &Core, sending: &Sending, most: usize) -> Snapshot {
    let state = core.state();
    let known = state.peers.iter();
    let known = known.filter(|peer| peer.state != PeerState::Down(PeerFault::Forgotten));
    let peers = known.map(|peer| PeerSnapshot {
        credit: peer.allowance.left(),
        backlog: peer.backlog.len(),
        one_sided: state.rma.under_way(peer.id),
        ..PeerSnapshot::new(peer.id, device.peer_address(peer.id), connection_of(peer))
    });
    let posted = state.posted.iter_in_order().map(|(_, pattern, line)| {
        let (request, length) = state.requests.receive_at(line);
        let is_in_nic = core.offload().is_some_and(|offload| offload.has_entry(line));
        PostedReceive { request, pattern, length, is_in_nic }
    });
    let unexpected = state.unexpected.envelopes();
    let unexpected =
        unexpected.map(|(status, is_awaited)| UnexpectedEnvelope { status, is_awaited });
    let arriving = state.requests.reading();
    let arriving = arriving.map(|(request, status)| ArrivingReceive { request, status });
    Snapshot {
        peers: Excerpt::of(peers, most),
        posted: Excerpt::of(posted, most),
        arriving: Excerpt::of(arriving, most),
        unexpected: Excerpt::of(unexpected, most),
        sends: Excerpt::of(sends(state, sending), most),
        delegated: 0,
        counters: Counters::default(),
    }
}

fn connection_of(peer: &Peer) -> ConnectionState {
    match peer.state {
        PeerState::Connecting => ConnectionState::Connecting,
        PeerState::Up => ConnectionState::Up,
        PeerState::Down(fault) => ConnectionState::Down(fault),
    }
}

fn sends<'a>(
    state: &'a ProtocolState,
    sending: &'a Sending,
) -> impl Iterator<Item = PendingSend> + 'a {
    let gone = state.operations.iter().map(|operation| PendingSend {
        request: operation.request,
        envelope: operation.status,
        waits_for: if operation.is_unread() {
            SendWait::Receive
        } else {
            SendWait::Acknowledgement
        },
    });
    gone.chain(state.peers.iter().flat_map(|peer| backlog(peer, sending)))
}

fn backlog<'a>(peer: &'a Peer, sending: &Sending) -> impl Iterator<Item = PendingSend> + 'a {
    let head = wait_of_head(peer, sending);
    peer.backlog.iter().enumerate().map(move |(at, send)| {
        let length = send.message.payload.total_len() as u64;
        let Send { tag, immediate, .. } = send.message;
        let envelope = Status { source: peer.id, tag, length, truncated: false, immediate };
        let waits_for = if at == 0 { head } else { SendWait::Turn };
        PendingSend { request: send.request, envelope, waits_for }
    })
}

/// Why the first send of a backlog has not gone.
fn wait_of_head(peer: &Peer, sending: &Sending) -> SendWait {
    match peer.state {
        PeerState::Connecting => SendWait::Connection,
        _ if peer.waits_for_room => SendWait::Room,
        _ if sending.waits_for_place(peer.id) => SendWait::Place,
        _ if peer.credit_stalled == Some(peer.sends_gone) => SendWait::Credit,
        _ => SendWait::Turn,
    }
}
