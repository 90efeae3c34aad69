//! What is known of a peer, from its first mention to its end.
//!
//! ```text
//! Connecting --PeerUp--> Up --PeerDown--> Down
//!      \-------------PeerDown-------------^
//! ```

use std::collections::VecDeque;

use tagmatch_device::slab::Key;
use tagmatch_device::{Buffer, PeerId};
use tagmatch_soft::Tag;

use crate::credit::{Allowance, Grant};
use crate::error::PeerFault;
use crate::receiving::arriving::Arriving;
use crate::requests::request::{RequestId, SendMode, Status};
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

/// A send that waits its turn.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub(crate) request: RequestId,
    pub(crate) mode: SendMode,
    pub(crate) tag: Tag,
    pub(crate) immediate: Option<u32>,
    pub(crate) buffer: Buffer,
    /// Bytes that have gone out in fragments.
    pub(crate) sent: usize,
}

impl Queued {
    /// The envelope of the message to this peer.
    pub(crate) fn status(&self, to: PeerId) -> Status {
        let length = self.buffer.total_len() as u64;
        Status { source: to, tag: self.tag, length, truncated: false, immediate: self.immediate }
    }
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
    pub(crate) arriving: Option<Box<Arriving>>,
    /// What we may send to it.
    pub(crate) allowance: Allowance,
    /// What it may send to us.
    pub(crate) grant: Grant,
    /// FINs, credits and aborts that found no room. Bounded: each answers something that came in
    /// on a credit, a peer's credits are bounded, and no more are granted while any wait here.
    pub(crate) controls: VecDeque<[u8; 16]>,
    /// Sends that wait for room or credit, first in, first out: none ever passes another.
    pub(crate) backlog: VecDeque<Queued>,
    /// A rendezvous request whose companion is to come, and the receive if a NIC has matched it.
    /// One at most: it comes before the peer's next request.
    pub(crate) awaited: Option<(AppCtx, Option<Key>)>,
    /// Is in the engine's list of peers whose queues wait for room.
    pub(crate) waits_for_room: bool,
    /// The completion queue was told that it is down.
    pub(crate) told_down: bool,
    /// It is down, and messages of it were dropped that nobody had received.
    pub(crate) lost_messages: bool,
    /// Sends that have left the backlog so far.
    pub(crate) sends_gone: u64,
    /// Messages to the peer that were lost when it went down.
    pub(crate) lost_sends: usize,
    /// Whether [`FlushEngine::take_lost`](crate::FlushEngine::take_lost) has reported the lost
    /// messages.
    pub(crate) is_loss_told: bool,
}

/// A peer of a device that matches by itself, as far as flushes need to know it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlushNote {
    pub(crate) is_up: bool,
    /// Whether the messages that were lost when the peer went down have been reported.
    pub(crate) is_loss_told: bool,
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
            allowance: Allowance::default(),
            grant: Grant::default(),
            controls: VecDeque::new(),
            backlog: VecDeque::new(),
            awaited: None,
            waits_for_room: false,
            told_down: false,
            lost_messages: false,
            sends_gone: 0,
            lost_sends: 0,
            is_loss_told: false,
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
