//! The table of peers, and the states of a peer.

use std::collections::HashMap;
use std::time::Duration;

use super::connection::Connection;
use super::handshake::Caller;
use tagmatch_device::{Address, DeviceError, PeerId, PeerNumbers};

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
    Down,
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

struct Peer {
    id: PeerId,
    /// `None`: the number was given by another device of the worker, or was given back.
    address: Option<Address>,
    state: PeerState,
    /// Messages that may not have reached a peer that is down.
    lost: usize,
}

impl Peer {
    /// What stands at the index of a number that is none of this device's peers.
    fn vacant(id: PeerId) -> Self {
        Peer { id, address: None, state: PeerState::Down, lost: 0 }
    }
}

/// All peers, by number and by address. Peers that are down stay in the table until they are
/// forgotten.
#[derive(Default)]
pub(crate) struct Peers {
    numbers: PeerNumbers,
    /// By index.
    peers: Vec<Peer>,
    by_address: HashMap<Address, PeerId>,
    /// The peers in the state `Connecting`.
    connecting: Vec<PeerId>,
}

impl Peers {
    /// Enters a peer into the table.
    pub(crate) fn add(
        &mut self,
        address: Address,
        state: PeerState,
    ) -> Result<PeerId, DeviceError> {
        let peer = self.numbers.give()?;
        if matches!(state, PeerState::Connecting(_)) {
            self.connecting.push(peer);
        }
        while self.peers.len() <= peer.index() {
            self.peers.push(Peer::vacant(PeerId::first(self.peers.len())));
        }
        self.peers[peer.index()] = Peer { id: peer, address: Some(address), state, lost: 0 };
        self.by_address.insert(address, peer);
        Ok(peer)
    }

    /// Gives the number of a peer that is down back. `false` if it is not down.
    pub(crate) fn forget(&mut self, peer: PeerId) -> bool {
        let Some(known) = self.get_mut(peer) else { return false };
        if peer == PeerId::ONESELF || !matches!(known.state, PeerState::Down) {
            return false;
        }
        let Some(address) = std::mem::replace(known, Peer::vacant(peer)).address else {
            return false;
        };
        self.by_address.remove(&address);
        self.numbers.give_back(peer);
        true
    }

    #[inline]
    fn get(&self, peer: PeerId) -> Option<&Peer> {
        self.peers.get(peer.index()).filter(|known| known.id == peer)
    }

    #[inline]
    fn get_mut(&mut self, peer: PeerId) -> Option<&mut Peer> {
        self.peers.get_mut(peer.index()).filter(|known| known.id == peer)
    }

    /// Makes the table one of several of a worker. It contains the worker itself only.
    pub(crate) fn join(&mut self, own: Address, numbers: &PeerNumbers) {
        self.numbers = numbers.clone();
        self.by_address.clear();
        self.by_address.insert(own, PeerId::ONESELF);
        if let Some(oneself) = self.peers.first_mut() {
            oneself.address = Some(own);
        }
    }

    /// Whether no other peer can be entered.
    pub(crate) fn is_full(&self) -> bool {
        self.numbers.are_given()
    }

    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(crate) fn find(&self, address: &Address) -> Option<PeerId> {
        self.by_address.get(address).copied()
    }

    pub(crate) fn address(&self, peer: PeerId) -> Option<Address> {
        self.get(peer)?.address
    }

    #[inline]
    pub(crate) fn state(&self, peer: PeerId) -> Option<&PeerState> {
        Some(&self.get(peer)?.state)
    }

    /// For looking into a state. Another state is entered by [`Peers::replace`].
    #[inline]
    pub(crate) fn state_mut(&mut self, peer: PeerId) -> Option<&mut PeerState> {
        Some(&mut self.get_mut(peer)?.state)
    }

    /// Enters another state; returns the state before, `None` if there is no such peer.
    pub(crate) fn replace(&mut self, peer: PeerId, state: PeerState) -> Option<PeerState> {
        let before = std::mem::replace(self.state_mut(peer)?, state);
        if matches!(before, PeerState::Connecting(_)) {
            self.connecting.retain(|other| *other != peer);
        }
        Some(before)
    }

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

    /// The peers in the state `Connecting`.
    pub(crate) fn connecting(&self) -> &[PeerId] {
        &self.connecting
    }

    /// The peers that are up, the worker itself aside.
    pub(crate) fn up(&self) -> Vec<PeerId> {
        let up = self.peers.iter().filter(|peer| matches!(peer.state, PeerState::Up(_)));
        up.map(|peer| peer.id).collect()
    }

    /// Messages that may not have reached a peer that is down.
    pub(crate) fn lost_mut(&mut self, peer: PeerId) -> Option<&mut usize> {
        Some(&mut self.get_mut(peer)?.lost)
    }
}
