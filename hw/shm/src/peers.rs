//! The table of peers, and the states of a peer.

use std::time::Instant;

use tagmatch_device::{DownReason, PeerTable, Shortage};
use tagmatch_os::memory::Mapping;

use super::connection::Connection;
use super::doorbell::DoorbellBit;
use super::nonce::OwnNonce;
use super::processes::OwnUsersSocket;
use super::ring::Geometry;

/// The state of a peer. It moves down this list and never back.
///
/// ```text
/// Connecting ──> Up ──> Draining ──> Down
///     └───────────┴───────────────────┘
/// ```
pub(crate) enum PeerState {
    /// This worker tries to connect to the peer, or waits for the peer's own connection.
    Connecting(Box<ConnectingPeer>),
    /// Messages go both ways.
    Up(Box<Connection>),
    /// The peer is gone, for this reason. Messages that it wrote before are still to be delivered.
    Draining(Box<Connection>, DownReason),
    /// The peer is gone, and that was reported.
    Down,
}

/// A peer that this worker tries to connect to.
pub(crate) struct ConnectingPeer {
    /// When to give up.
    pub(crate) deadline: Instant,
    /// When to try again, if no attempt is under way.
    pub(crate) retry_at: Instant,
    /// The error number of the last attempt, for the report; 0 if there is none.
    pub(crate) errno: i32,
    /// What this process lacked at the last attempt.
    pub(crate) shortage: Option<Shortage>,
    /// The attempt whose answer is still to come.
    pub(crate) attempt: Option<HelloAttempt>,
    /// The answer to the attempt is there, and this process lacks what it takes to accept the
    /// answer: when to look again.
    pub(crate) answer_at: Option<Instant>,
    /// The peer has refused this worker's hello because its own hello is under way.
    pub(crate) crossed: bool,
}

/// A socket on which a hello was sent, and what the hello offers.
pub(crate) struct HelloAttempt {
    pub(crate) begun: Instant,
    pub(crate) socket: OwnUsersSocket,
    /// The memory of the pair.
    pub(crate) memory: Mapping,
    /// The longest rings that the memory has room for.
    pub(crate) room: Geometry,
    pub(crate) offer: HelloOffer,
}

/// The doorbell bit that a peer sets for the ring that this worker reads, and the nonce by which
/// the peer knows what it reads.
pub(crate) struct HelloOffer {
    pub(crate) bit: DoorbellBit,
    pub(crate) nonce: OwnNonce,
}

impl tagmatch_device::PeerState for PeerState {
    type Connection = Connection;
    type Connecting = ConnectingPeer;

    fn down() -> Self {
        PeerState::Down
    }

    fn is_down(&self) -> bool {
        matches!(self, PeerState::Down)
    }

    #[inline]
    fn connection_mut(&mut self) -> Option<&mut Connection> {
        match self {
            PeerState::Up(connection) => Some(connection),
            _ => None,
        }
    }

    fn connecting_mut(&mut self) -> Option<&mut ConnectingPeer> {
        match self {
            PeerState::Connecting(connecting) => Some(connecting),
            _ => None,
        }
    }
}

/// All peers, and what belongs to the states of some.
pub(crate) type Peers = PeerTable<PeerState>;

impl PeerState {
    /// The connection to a peer that is up or draining.
    pub(crate) fn connection(&self) -> Option<&Connection> {
        match self {
            PeerState::Up(connection) | PeerState::Draining(connection, _) => Some(connection),
            _ => None,
        }
    }
}
