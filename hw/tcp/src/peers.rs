//! The table of peers, and the states of a peer.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use tagmatch_device::{PeerId, PeerTable};

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
    Connecting(Box<Attempt>),
    /// Messages go both ways.
    Up(Box<Connection>),
    /// The peer is gone.
    Down {
        /// Messages that may not have reached it.
        lost: usize,
    },
}

/// The attempts to connect to a peer. Its hosts are the ways, which are tried one after the other.
pub(crate) struct Attempt {
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
    fn down() -> Self {
        PeerState::Down { lost: 0 }
    }

    fn is_down(&self) -> bool {
        matches!(self, PeerState::Down { .. })
    }

    fn is_connecting(&self) -> bool {
        matches!(self, PeerState::Connecting(_))
    }
}

/// All peers, and what belongs to the states of some.
#[derive(Default)]
pub(crate) struct Peers(PeerTable<PeerState>);

impl Deref for Peers {
    type Target = PeerTable<PeerState>;

    #[inline(always)]
    fn deref(&self) -> &PeerTable<PeerState> {
        &self.0
    }
}

impl DerefMut for Peers {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut PeerTable<PeerState> {
        &mut self.0
    }
}

impl Peers {
    /// The connection to a peer that is up.
    #[inline]
    pub(crate) fn connection_mut(&mut self, peer: PeerId) -> Option<&mut Connection> {
        match self.state_mut(peer)? {
            PeerState::Up(connection) => Some(connection),
            _ => None,
        }
    }

    pub(crate) fn attempt_mut(&mut self, peer: PeerId) -> Option<&mut Attempt> {
        match self.state_mut(peer)? {
            PeerState::Connecting(attempt) => Some(attempt),
            _ => None,
        }
    }

    /// The peers that are up, the worker itself aside.
    pub(crate) fn up(&self) -> Vec<PeerId> {
        let up = self.states().filter(|(_, state)| matches!(state, PeerState::Up(_)));
        up.map(|(peer, _)| peer).collect()
    }

    /// Messages that may not have reached a peer that is down.
    pub(crate) fn lost_mut(&mut self, peer: PeerId) -> Option<&mut usize> {
        match self.state_mut(peer)? {
            PeerState::Down { lost } => Some(lost),
            _ => None,
        }
    }
}
