//! A peer and its state.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tagmatch_device::{Address, DownReason, PeerId, ReadError};

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

/// The state of a peer. A peer only moves down this list.
///
/// ```text
/// Connecting ──> Up ──> Ending ──> Down
///     └────────────────────────────┘
/// ```
pub(super) enum PeerState {
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

impl PeerState {
    /// The connection that is being set up, if one is.
    pub(super) fn connecting(&self) -> Option<&Connecting> {
        match self {
            PeerState::Connecting(connecting) => Some(connecting),
            _ => None,
        }
    }

    /// Changes [`PeerState::connecting`].
    pub(super) fn connecting_mut(&mut self) -> Option<&mut Connecting> {
        match self {
            PeerState::Connecting(connecting) => Some(connecting),
            _ => None,
        }
    }

    /// Moves a peer from connecting to down, and returns its connection.
    pub(super) fn take_connecting(&mut self) -> Option<Connecting> {
        self.connecting()?;
        match std::mem::replace(self, PeerState::Down) {
            PeerState::Connecting(connecting) => Some(*connecting),
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
    pub(super) fn flush(&mut self, peer: PeerId, outbox: &mut Outbox) {
        self.awaits_landings = false;
        if !self.has_failed {
            self.has_failed = true;
            self.link.fail();
            self.is_drained = self.link.probe(peer, outbox).is_err();
        }
    }

    /// A request of the failed queue pair has completed.
    pub(super) fn flushed(&mut self, number: u32) {
        self.is_drained |= self.link.is_last(number);
    }

    /// Whether no request is under way any more.
    pub(super) fn is_done(&self) -> bool {
        let is_drained = if self.has_failed { self.is_drained } else { self.link.under_way() == 0 };
        is_drained && !self.awaits_landings
    }
}
