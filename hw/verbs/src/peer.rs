//! A peer and its state.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tagmatch_device::{Address, DownReason, Event, OrBug, PeerId, ReadError};

use super::address::VerbsAddress;
use super::link::{Link, Outbox};
use super::object::Ah;
use super::wire::LinkEnd;

/// A peer. The device keeps it, and its number, for its whole life.
pub(super) struct Peer {
    pub(super) id: PeerId,
    /// `None`: the number is that of a peer of another device of the worker. It is down here.
    pub(super) address: Option<Address>,
    pub(super) state: PeerState,
    /// It is down, and so many messages may not have reached it.
    pub(super) lost: usize,
}

/// The state of a peer. A peer only moves down this list, but for one that is unmet.
///
/// ```text
/// Unmet <──> Connecting ──> Up ──> Ending ──> Down
///                └────────────────────────────┘
/// ```
pub(super) enum PeerState {
    /// The peer has tried to connect, that has failed here, and the user has heard nothing of it.
    /// The next attempt, of either side, uses the number of the peer.
    Unmet,
    /// A connection is being set up, by us or by the peer.
    Connecting(Box<Connecting>),
    /// Connected.
    Up(Box<Link>),
    /// The peer is lost, or has left, or this side disconnected. Messages that arrived before are
    /// still delivered, and messages sent before still go out.
    Ending(Box<Ending>),
    /// Its end was reported.
    Down,
    /// This worker itself, which needs no connection. It moves to down if the user disconnects it.
    Oneself,
}

/// The peers of a device, by their numbers.
#[derive(Default)]
pub(super) struct VerbsPeers(Vec<Peer>);

impl VerbsPeers {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// All peers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.0.iter()
    }

    /// Adds a peer. Numbers between are those of peers of other devices.
    pub(super) fn add(&mut self, peer: Peer) {
        while self.0.len() <= peer.id.index() {
            let id = PeerId::first(self.0.len());
            self.0.push(Peer { id, address: None, state: PeerState::Down, lost: 0 });
        }
        let index = peer.id.index();
        self.0[index] = peer;
    }

    #[inline]
    pub(super) fn get(&self, peer: PeerId) -> Option<&Peer> {
        self.0.get(peer.index())
    }

    #[inline]
    pub(super) fn get_mut(&mut self, peer: PeerId) -> Option<&mut Peer> {
        self.at_mut(peer.index())
    }

    /// The peer of a work request, which names its index.
    #[inline]
    pub(super) fn at_mut(&mut self, index: usize) -> Option<&mut Peer> {
        self.0.get_mut(index)
    }

    /// A peer that this device has numbered. If there is none, that is a bug, which is reported as
    /// the end of the peer.
    pub(super) fn numbered(
        &mut self,
        peer: PeerId,
        events: &mut VecDeque<Event<'static>>,
    ) -> Option<&mut Peer> {
        let known = self.get_mut(peer).or_bug("the device has numbered the peer");
        known
            .map_err(|bug| {
                events.push_back(Event::PeerDown { peer, reason: DownReason::Bug(bug) });
            })
            .ok()
    }

    #[inline]
    pub(super) fn state_mut(&mut self, peer: PeerId) -> Option<&mut PeerState> {
        self.get_mut(peer).map(|known| &mut known.state)
    }

    /// The connection that is being set up, if one is.
    pub(super) fn connecting(&self, peer: PeerId) -> Option<&Connecting> {
        match &self.get(peer)?.state {
            PeerState::Connecting(connecting) => Some(connecting),
            _ => None,
        }
    }

    /// Changes [`VerbsPeers::connecting`].
    pub(super) fn connecting_mut(&mut self, peer: PeerId) -> Option<&mut Connecting> {
        match self.state_mut(peer)? {
            PeerState::Connecting(connecting) => Some(connecting),
            _ => None,
        }
    }

    /// Moves a peer from connecting to down, and returns its connection.
    pub(super) fn take_connecting(&mut self, peer: PeerId) -> Option<Connecting> {
        self.connecting(peer)?;
        match std::mem::replace(self.state_mut(peer)?, PeerState::Down) {
            PeerState::Connecting(connecting) => Some(*connecting),
            _ => None,
        }
    }

    /// The connection to a peer that is up.
    #[inline]
    pub(super) fn up(&mut self, peer: PeerId) -> Option<&mut Link> {
        match self.state_mut(peer)? {
            PeerState::Up(link) => Some(link),
            _ => None,
        }
    }

    /// The connection to a peer that is ending.
    pub(super) fn ending(&mut self, peer: PeerId) -> Option<&mut Ending> {
        match self.state_mut(peer)? {
            PeerState::Ending(ending) => Some(ending),
            _ => None,
        }
    }

    /// The connection to a peer, if it is up or ending.
    pub(super) fn link(&self, peer: PeerId) -> Option<&Link> {
        match &self.get(peer)?.state {
            PeerState::Up(link) => Some(link),
            PeerState::Ending(ending) => Some(&ending.link),
            _ => None,
        }
    }

    /// Changes [`VerbsPeers::link`].
    pub(super) fn link_mut(&mut self, peer: PeerId) -> Option<&mut Link> {
        match self.state_mut(peer)? {
            PeerState::Up(link) => Some(link),
            PeerState::Ending(ending) => Some(&mut ending.link),
            _ => None,
        }
    }
}

/// A connection that is being set up. There is one queue pair for it, whichever side began: if both
/// did, both requests lead to it.
pub(super) struct Connecting {
    /// The peer's address.
    pub(super) to: VerbsAddress,
    pub(super) link: Link,
    /// This side's end, as described to the peer.
    pub(super) local_end: LinkEnd,
    /// The peer's end, once it is known. This side's queue pair is connected to it then, and
    /// receives.
    pub(super) remote_end: Option<LinkEnd>,
    /// The address handle for datagrams to the peer.
    pub(super) ah: Arc<Ah>,
    /// Whether the user asked for this connection. Only then is its failure reported.
    pub(super) is_wanted: bool,
    /// When the attempt fails, when to repeat the request, and the interval after that.
    pub(super) deadline: Instant,
    pub(super) request_at: Instant,
    pub(super) request_interval: Duration,
    /// An answer has come whose sender doesn't share the job's secret.
    pub(super) was_answered_unproven: bool,
}

/// A connection that is ending.
pub(super) struct Ending {
    pub(super) link: Link,
    pub(super) reason: DownReason,
    /// Whether messages from the peer are still delivered.
    pub(super) delivers_messages: bool,
    /// When to stop waiting for outstanding requests.
    pub(super) until: Instant,
    /// Whether its queue pair is in the error state, in which all requests complete as flushed.
    pub(super) has_failed: bool,
    /// The peer has left, and the NIC has yet to report the data of messages that it has matched.
    /// The peer left after it had got their FINs, so the data is there.
    pub(super) awaits_landings: bool,
    /// Whether the last request has completed as flushed.
    pub(super) is_drained: bool,
    /// The error of its oldest read, if that read is why the connection ended.
    pub(super) first_read: Option<ReadError>,
}

impl Ending {
    /// Moves the queue pair to the error state, so that its requests complete as flushed. Then
    /// posts a last request: earlier unsignalled requests produce no completion of their own, so
    /// the completion of this one shows that all are done.
    pub(super) fn flush(&mut self, outbox: &mut Outbox) {
        self.awaits_landings = false;
        if !self.has_failed {
            self.has_failed = true;
            self.link.fail();
            self.is_drained = self.link.probe(outbox).is_err();
        }
    }

    /// A request of the failed queue pair has completed.
    pub(super) fn flushed(&mut self, number: u32) {
        self.is_drained |= self.link.is_last(number);
    }

    /// Whether no request is under way any more.
    pub(super) fn is_done(&self) -> bool {
        let is_drained = self.is_drained || self.link.under_way() == 0;
        is_drained && !self.awaits_landings
    }
}
