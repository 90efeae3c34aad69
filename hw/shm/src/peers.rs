//! The table of peers, and the states of a peer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::connection::Connection;
use super::doorbell::DoorbellBit;
use super::ring::Ring;
use tagmatch_device::{Address, DeviceError, DownReason, PeerId, PeerNumbers, Shortage};
use tagmatch_os::memory::SealedMemory;
use tagmatch_os::peer_socket::PeerSocket;

/// The state of a peer. It moves down this list and never back.
///
/// ```text
/// Connecting ──> Up ──> Draining ──> Down
///     └───────────┴───────────────────┘
/// ```
pub(crate) enum PeerState {
    /// This worker tries to connect to the peer, or waits for the peer's own connection.
    Connecting(Box<Connecting>),
    /// Messages go both ways.
    Up(Box<Connection>),
    /// The peer is gone, for this reason. Messages that it wrote before are still to be delivered.
    Draining(Box<Connection>, DownReason),
    /// The peer is gone, and that was reported.
    Down,
}

/// A peer that this worker tries to connect to.
pub(crate) struct Connecting {
    /// When to give up.
    pub(crate) deadline: Instant,
    /// When to try again, if no attempt is under way.
    pub(crate) retry_at: Instant,
    /// The error number of the last attempt, for the report; 0 if there is none.
    pub(crate) errno: i32,
    /// What this process lacked at the last attempt.
    pub(crate) shortage: Option<Shortage>,
    /// The attempt whose answer is still to come.
    pub(crate) attempt: Option<Attempt>,
    /// The answer to the attempt is there, and this process lacks what it takes to accept the
    /// answer: when to look again.
    pub(crate) answer_at: Option<Instant>,
    /// The peer has refused this worker's hello because its own hello is under way.
    pub(crate) crossed: bool,
}

/// A socket on which a hello was sent, and the ring that the hello offers.
pub(crate) struct Attempt {
    pub(crate) socket: PeerSocket,
    pub(crate) offer: OfferedRing,
}

/// A ring for a peer to write to, and the doorbell bit that the peer sets for it.
pub(crate) struct OfferedRing {
    pub(crate) memory: SealedMemory,
    pub(crate) ring: Arc<Ring>,
    pub(crate) bit: DoorbellBit,
}

struct Peer {
    id: PeerId,
    /// `None`: the number was given by another device of the worker, or was given back.
    address: Option<Address>,
    state: PeerState,
}

impl Peer {
    /// What stands at the index of a number that is none of this device's peers.
    fn vacant(id: PeerId) -> Self {
        Peer { id, address: None, state: PeerState::Down }
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
        self.peers[peer.index()] = Peer { id: peer, address: Some(address), state };
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

    pub(crate) fn state(&self, peer: PeerId) -> Option<&PeerState> {
        Some(&self.get(peer)?.state)
    }

    /// For looking into a state. Another state is entered by [`Peers::replace`].
    #[inline]
    pub(crate) fn state_mut(&mut self, peer: PeerId) -> Option<&mut PeerState> {
        Some(&mut self.get_mut(peer)?.state)
    }

    /// As [`Peers::state_mut`], for a message to a peer that is not forgotten: the engine has compared
    /// the generation.
    #[inline(always)]
    pub(crate) fn state_of_receiver(&mut self, peer: PeerId) -> Option<&mut PeerState> {
        Some(&mut self.peers.get_mut(peer.index())?.state)
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

    pub(crate) fn connecting_mut(&mut self, peer: PeerId) -> Option<&mut Connecting> {
        match self.state_mut(peer)? {
            PeerState::Connecting(connecting) => Some(connecting),
            _ => None,
        }
    }

    /// The peers in the state `Connecting`.
    pub(crate) fn connecting(&self) -> &[PeerId] {
        &self.connecting
    }

    /// The connections to peers that are up or draining.
    pub(crate) fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.peers.iter().filter_map(|peer| match &peer.state {
            PeerState::Up(connection) | PeerState::Draining(connection, _) => Some(&**connection),
            _ => None,
        })
    }
}
