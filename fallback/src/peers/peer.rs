//! What is known of a peer, from its first mention to its end.
//!
//! ```text
//! Connecting --PeerUp--> Up --PeerDown--> Down
//!      \-------------PeerDown-------------^
//! ```

use std::collections::VecDeque;

use tagmatch_device::slab::Key;
use tagmatch_device::{Buffer, PeerId};

use crate::credit::{CreditGrant, SendCredit};
use crate::error::{Fault, PeerFault};
use crate::receiving::arriving::PartialMessage;
use crate::requests::request::{RequestId, Send, SendMode};
use crate::wire::AppCtx;

/// A peer's life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum PeerState {
    #[default]
    Connecting,
    Up,
    Down(PeerFault),
}

/// What stands in the table at the index of a peer that was forgotten.
pub(crate) fn forgotten(id: PeerId) -> Peer {
    Peer { state: PeerState::Down(PeerFault::Forgotten), ..Peer::new(id) }
}

/// Why a peer is down, if it is. Also for the number of a peer that was forgotten.
pub(crate) fn fault(peers: &[Peer], peer: PeerId) -> Option<PeerFault> {
    let known = peers.get(peer.index())?;
    match known.id {
        id if id == peer => known.fault(),
        id if id.generation() > peer.generation() => Some(PeerFault::Forgotten),
        _ => None,
    }
}

/// Why an operation with a peer fails, if it does.
pub(crate) fn fault_of(peers: &[Peer], peer: PeerId) -> Option<Fault> {
    match fault(peers, peer) {
        Some(fault) => Some(Fault::PeerDown { peer, fault }),
        None if peers.get(peer.index()).is_none_or(|known| known.id != peer) => {
            Some(Fault::NoSuchPeer { peer })
        }
        None => None,
    }
}

/// A send that waits its turn.
#[derive(Clone, Debug)]
pub(crate) struct BacklogSend {
    pub(crate) request: RequestId,
    pub(crate) message: Send<Buffer>,
    pub(crate) mode: SendMode,
    /// Bytes that have gone out in fragments.
    pub(crate) sent: usize,
}

/// One peer.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) id: PeerId,
    pub(crate) state: PeerState,
    /// The largest eager payload that it takes.
    pub(crate) eager_max: usize,
    /// The largest payload that is better sent to it in fragments than read by it.
    pub(crate) fragmented_max: usize,
    /// A message of it of which some fragments have come.
    pub(crate) arriving: Option<Box<PartialMessage>>,
    /// What we may send to it.
    pub(crate) allowance: SendCredit,
    /// What it may send to us.
    pub(crate) grant: CreditGrant,
    /// FINs, credits and aborts that found no room. Bounded: each answers something that came in
    /// on a credit, a peer's credits are bounded, and no more are granted while any wait here.
    pub(crate) controls: VecDeque<[u8; 16]>,
    /// Sends that wait for room or credit, first in, first out: none ever passes another.
    pub(crate) backlog: VecDeque<BacklogSend>,
    /// A rendezvous request whose companion is to come, and the receive if a NIC has matched it.
    /// One at most: it comes before the peer's next request.
    pub(crate) awaited: Option<(AppCtx, Option<Key>)>,
    /// Is in the engine's list of peers whose queues wait for room.
    pub(crate) waits_for_room: bool,
    /// The device has refused a message to it, and what waits has not gone out since.
    pub(crate) is_stalled: bool,
    /// `sends_gone` when a send last had to wait for credit.
    pub(crate) credit_stalled: Option<u64>,
    /// The completion queue was told that it is down.
    pub(crate) is_down_reported: bool,
    /// It is down, and messages of it were dropped that nobody had received.
    pub(crate) lost_messages: bool,
    /// Sends that have left the backlog so far.
    pub(crate) sends_gone: u64,
    /// Sends that were put into the backlog so far: the audit compares.
    pub(crate) sends_queued: u64,
    /// Messages to the peer that were lost when it went down.
    pub(crate) lost_sends: usize,
    /// Whether [`FlushEngine::take_lost`](crate::FlushEngine::take_lost) has reported the lost
    /// messages.
    pub(crate) is_loss_reported: bool,
}

/// A peer of a device that matches by itself, as far as flushes need to know it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlushNote {
    pub(crate) is_up: bool,
    /// Whether the messages that were lost when the peer went down have been reported.
    pub(crate) is_loss_reported: bool,
}

impl Peer {
    /// A peer that was just mentioned for the first time.
    pub(crate) fn new(id: PeerId) -> Self {
        Peer {
            id,
            state: PeerState::default(),
            eager_max: 0,
            fragmented_max: 0,
            arriving: None,
            allowance: SendCredit::default(),
            grant: CreditGrant::default(),
            controls: VecDeque::new(),
            backlog: VecDeque::new(),
            awaited: None,
            waits_for_room: false,
            is_stalled: false,
            credit_stalled: None,
            is_down_reported: false,
            lost_messages: false,
            sends_gone: 0,
            sends_queued: 0,
            lost_sends: 0,
            is_loss_reported: false,
        }
    }

    /// Whether a send to this number, which may be that of an earlier peer, may go out at once,
    /// without passing another.
    #[inline]
    pub(crate) fn is_open_for(&self, id: PeerId) -> bool {
        self.id == id
            && self.state == PeerState::Up
            && self.backlog.is_empty()
            && self.controls.is_empty()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.state == PeerState::Up
    }

    /// Takes note of messages that are lost, since the peer is down: its backlog, and rendezvous
    /// that it has not read.
    pub(crate) fn lose_sends(&mut self, unread: usize) {
        self.sends_gone += self.backlog.len() as u64;
        self.lost_sends += self.backlog.len() + unread;
    }

    /// Why the peer is down, if it is.
    pub(crate) fn fault(&self) -> Option<PeerFault> {
        match self.state {
            PeerState::Down(fault) => Some(fault),
            PeerState::Connecting | PeerState::Up => None,
        }
    }
}
