//! A peer, and where it is in its life.

use std::sync::Arc;
use std::time::Instant;

use super::link::{Link, Outbox};
use super::object::Ah;
use super::wire::End;
use tagmatch_device::{Address, DownReason, PeerId, ReadError};

/// One peer, as long as the device lives.
pub(super) struct Peer {
    pub(super) address: Address,
    pub(super) state: PeerState,
}

/// Where a peer is in its life. It goes down this list and never back.
///
/// ```text
/// Connecting ──> Up ──> Ending ──> Down
///     └────────────────────────────┘
/// ```
pub(super) enum PeerState {
    /// We try to reach it, or it us.
    Connecting(Box<Connecting>),
    /// Messages go both ways.
    Up(Box<Link>),
    /// It is lost, or left by us: what came before is still delivered, or what went before still sent.
    Ending(Box<Ending>),
    /// It is gone and was reported.
    Down,
    /// This worker itself, which needs no connection; down if it was left.
    Oneself,
}

/// A connection that is being made. There is one queue pair for it, whoever began: if both did, they
/// meet in it.
pub(super) struct Connecting {
    pub(super) link: Link,
    /// Our end, as the peer is told.
    pub(super) mine: End,
    /// Its end, once it is known; then our queue pair receives from it.
    pub(super) theirs: Option<End>,
    /// Where datagrams to it go.
    pub(super) ah: Arc<Ah>,
    /// Whether we were asked to connect, and must report it if that fails.
    pub(super) is_wanted: bool,
    /// When to give up, when to greet again, and how long to wait after that.
    pub(super) deadline: Instant,
    pub(super) greet_at: Instant,
    pub(super) patience: std::time::Duration,
}

/// A connection that is coming to its end.
pub(super) struct Ending {
    pub(super) link: Link,
    pub(super) reason: DownReason,
    /// Whether what comes from it is still delivered.
    pub(super) is_heard: bool,
    /// When not to wait any longer.
    pub(super) until: Instant,
    /// Whether its queue pair has failed: then each request comes back as flushed.
    pub(super) has_failed: bool,
    /// Whether the last of them came back.
    pub(super) is_drained: bool,
    /// How the first of its reads ended, if that is why it is lost.
    pub(super) first_read: Option<ReadError>,
}

impl Ending {
    /// Ends what is under way. What has failed comes back, and then a last request that is posted for this:
    /// of those before that were not signalled, nobody else tells that they have ended.
    pub(super) fn give_up(&mut self, peer: PeerId, outbox: &mut Outbox) {
        if !self.has_failed {
            self.has_failed = true;
            self.link.fail();
            self.is_drained = self.link.probe(peer, outbox).is_err();
        }
    }

    /// A request of the failed queue pair came back.
    pub(super) fn flushed(&mut self, number: u32) {
        self.is_drained |= self.link.is_last(number);
    }

    /// Whether nothing is under way any more.
    pub(super) fn is_done(&self) -> bool {
        if self.has_failed { self.is_drained } else { self.link.under_way() == 0 }
    }
}
