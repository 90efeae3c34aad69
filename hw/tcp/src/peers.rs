//! The table of peers, and the states of a peer.

use std::time::Duration;

use tagmatch_device::PeerTable;

use super::connection::Connection;
use super::handshake::Caller;

/// The state of a peer. It moves down this list and never back.
///
/// ```text
/// Connecting ──> Up ──> Down
///     └───────────────────┘
/// ```
pub(crate) enum PeerState {
    /// The worker itself.
    Oneself,
    /// This worker tries to connect to the peer, or waits for the peer's own connection.
    Connecting(Box<ConnectAttempts>),
    /// Messages go both ways.
    Up(Box<Connection>),
    /// The peer is gone.
    Down {
        /// Messages that may not have reached it.
        lost: usize,
    },
}

/// The attempts to connect to a peer. Its hosts are the ways, which are tried one after the other.
pub(crate) struct ConnectAttempts {
    /// The handshake that is under way.
    pub(crate) caller: Option<Caller>,
    /// The number of hosts.
    pub(crate) hosts: usize,
    /// When to give up, unless a machine has answered.
    pub(crate) deadline: Duration,
    /// Which host is tried.
    pub(crate) way: usize,
    /// How long a host is tried, and until when this one.
    pub(crate) way_time: Duration,
    pub(crate) way_until: Duration,
    /// When to try again, if no handshake is under way.
    pub(crate) next_at: Duration,
    /// A machine has taken the connection, and its worker has not answered yet: it may be busy.
    pub(crate) is_silent: bool,
    /// The peer has refused this connection because its own counts.
    pub(crate) is_crossed: bool,
    /// The error number of the last attempt, for the report; 0 if there is none.
    pub(crate) errno: i32,
    /// What a host has done wrong, for the report.
    pub(crate) wrong: Option<&'static str>,
}

impl tagmatch_device::PeerState for PeerState {
    type Connection = Connection;
    type Connecting = ConnectAttempts;

    fn down() -> Self {
        PeerState::Down { lost: 0 }
    }

    fn is_down(&self) -> bool {
        matches!(self, PeerState::Down { .. })
    }

    #[inline]
    fn connection_mut(&mut self) -> Option<&mut Connection> {
        match self {
            PeerState::Up(connection) => Some(connection),
            _ => None,
        }
    }

    fn connecting_mut(&mut self) -> Option<&mut ConnectAttempts> {
        match self {
            PeerState::Connecting(connecting) => Some(connecting),
            _ => None,
        }
    }
}

/// All peers, and what belongs to the states of some.
pub(crate) type Peers = PeerTable<PeerState>;

impl PeerState {
    /// Messages that may not have reached a peer that is down.
    pub(crate) fn lost_mut(&mut self) -> Option<&mut usize> {
        match self {
            PeerState::Down { lost } => Some(lost),
            _ => None,
        }
    }
}
