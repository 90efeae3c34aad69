//! The table of peers.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::time::Instant;

use tagmatch_device::{Address, DownReason, PeerId};

use super::operations::{Fault, Index};
use super::worker::Endpoint;

/// Most peers over the whole life of a device, those that went down included.
const PEERS_EVER_MAX: u64 = 1 << 20;

/// The state of a peer.
///
/// Connecting -> Unconfirmed or Up -> Leaving -> Ending -> Down. Greeted: its hello was answered,
/// and it has not said yet that it is ready. Leaving: the peer is gone and its last messages are
/// still received, or this worker disconnects it and its own last messages still go out. Ending:
/// operations that depend on the peer are being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerState {
    Connecting,
    Unconfirmed,
    Up,
    Leaving { reason: DownReason, until: Instant, quiet: u32 },
    Ending { reason: DownReason },
    Down,
}

/// An attempt to reach a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) deadline: Instant,
    /// When to begin the next connection, or to give up on this one.
    pub(super) next_at: Instant,
    /// Which of the peer's addresses is tried: the local name is the first, then its hosts.
    pub(super) way: usize,
    /// The error number of the last connection that failed.
    pub(super) errno: i32,
    /// Both sides connected at once and the peer's attempt counts, so this side makes no other.
    pub(super) is_crossed: bool,
}

/// Whether UCX may still hold messages that were sent to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// There are none.
    Nothing,
    /// UCX may still hold some.
    Unflushed,
    /// UCX has sent all of them.
    Flushed,
}

pub(super) struct Peer {
    pub(super) address: Address,
    pub(super) state: PeerState,
    pub(super) attempt: Option<Attempt>,
    /// The connection of the handshake. Its end is the end of the peer.
    pub(super) connection: Option<u32>,
    pub(super) endpoint: Option<Endpoint>,
    pub(super) fault: Option<NonNull<Fault>>,
    pub(super) sent: Sent,
    /// It is going down or down, and so many messages may not have reached it.
    pub(super) lost: usize,
    /// The peer has said that it leaves.
    pub(super) says_bye: bool,
    /// UCX's request that flushes the messages sent to the peer.
    pub(super) draining: Option<*mut c_void>,
    /// The number that the peer wants in the source field of messages sent to it.
    pub(super) our_number: u64,
    /// The number in the source field of the peer's messages.
    pub(super) its_number: Option<u64>,
    /// Sends that wait until the peer is up.
    pub(super) waiting: VecDeque<Index>,
    /// Operations under way that depend on the peer.
    pub(super) live: u32,
}

impl Peer {
    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.state, PeerState::Leaving { .. } | PeerState::Ending { .. } | PeerState::Down)
    }
}

/// The table of peers. Number 0 is oneself.
pub(super) struct Peers {
    all: Vec<Peer>,
    pub(super) by_address: HashMap<Address, PeerId>,
    /// Peers by the number in the source field of their messages, where runtimes choose the
    /// numbers.
    by_number: Option<HashMap<u64, PeerId>>,
    limit: u64,
    pub(super) unconfirmed: usize,
    pub(super) connecting: Vec<PeerId>,
    pub(super) leaving: Vec<PeerId>,
}

impl Peers {
    /// `number_max` is the largest number that fits into the source field.
    pub(super) fn new(number_max: u64, has_own_numbers: bool) -> Self {
        let numbers = number_max.saturating_add(1);
        Peers {
            all: Vec::new(),
            by_address: HashMap::new(),
            by_number: has_own_numbers.then(HashMap::new),
            limit: if has_own_numbers { PEERS_EVER_MAX } else { numbers.min(PEERS_EVER_MAX) },
            unconfirmed: 0,
            connecting: Vec::new(),
            leaving: Vec::new(),
        }
    }

    pub(super) fn limit(&self) -> usize {
        usize::try_from(self.limit).unwrap_or(usize::MAX)
    }

    /// A new peer, unless there are too many.
    pub(super) fn add(&mut self, address: Address) -> Option<PeerId> {
        if self.all.len() >= self.limit() {
            return None;
        }
        let id = PeerId(u32::try_from(self.all.len()).ok()?);
        let its_number = if self.by_number.is_some() { None } else { Some(id.0.into()) };
        self.all.push(Peer {
            address,
            state: PeerState::Connecting,
            attempt: None,
            connection: None,
            endpoint: None,
            fault: None,
            sent: Sent::Nothing,
            lost: 0,
            says_bye: false,
            draining: None,
            our_number: 0,
            its_number,
            waiting: VecDeque::new(),
            live: 0,
        });
        self.by_address.insert(address, id);
        Some(id)
    }

    #[inline]
    pub(super) fn find(&self, peer: PeerId) -> Option<&Peer> {
        self.all.get(peer.index())
    }

    #[inline]
    pub(super) fn find_mut(&mut self, peer: PeerId) -> Option<&mut Peer> {
        self.all.get_mut(peer.index())
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = PeerId> + use<> {
        (0..self.all.len()).filter_map(|index| u32::try_from(index).ok()).map(PeerId)
    }

    /// Records the number that the runtime of a peer puts into its tags; `false` if another peer
    /// has the same number.
    pub(super) fn claim(&mut self, peer: PeerId, number: u64) -> bool {
        let Some(by_number) = &mut self.by_number else { return true };
        if *by_number.entry(number).or_insert(peer) != peer {
            return false;
        }
        if let Some(peer) = self.all.get_mut(peer.index()) {
            peer.its_number = Some(number);
        }
        true
    }

    /// The peer whose messages have this source number.
    #[inline]
    pub(super) fn of_number(&self, number: u64) -> Option<PeerId> {
        match &self.by_number {
            Some(by_number) => by_number.get(&number).copied(),
            None => {
                let peer = PeerId(u32::try_from(number).ok()?);
                (peer.index() < self.all.len()).then_some(peer)
            }
        }
    }

    /// Sets the state of a peer, and returns the previous one.
    pub(super) fn set_state(&mut self, peer: PeerId, state: PeerState) -> Option<PeerState> {
        let entry = self.all.get_mut(peer.index())?;
        let before = std::mem::replace(&mut entry.state, state);
        self.unconfirmed += usize::from(state == PeerState::Unconfirmed);
        self.unconfirmed -= usize::from(before == PeerState::Unconfirmed);
        if before == PeerState::Connecting && state != PeerState::Connecting {
            entry.attempt = None;
            self.connecting.retain(|other| *other != peer);
        }
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(byte: u8) -> Address {
        Address::from_bytes(&[byte]).unwrap()
    }

    #[test]
    fn no_more_peers_than_numbers() {
        let mut peers = Peers::new(3, false);
        for byte in 0..4 {
            assert_eq!(peers.add(address(byte)), Some(PeerId(byte.into())));
        }
        assert_eq!(peers.add(address(4)), None);
        assert_eq!(peers.of_number(3), Some(PeerId(3)));
        assert_eq!(peers.of_number(4), None);
    }

    #[test]
    fn a_number_of_a_runtime_is_one_peers() {
        let mut peers = Peers::new(u64::MAX, true);
        let (a, b) = (peers.add(address(1)).unwrap(), peers.add(address(2)).unwrap());
        assert!(peers.claim(a, 70) && !peers.claim(b, 70) && peers.claim(a, 70));
        assert_eq!(peers.of_number(70), Some(a));
        assert_eq!(peers.find(b).unwrap().its_number, None);
    }

    #[test]
    fn stages_are_counted() {
        let mut peers = Peers::new(3, false);
        let peer = peers.add(address(0)).unwrap();
        peers.connecting.push(peer);
        assert_eq!(peers.set_state(peer, PeerState::Unconfirmed), Some(PeerState::Connecting));
        assert!(peers.unconfirmed == 1 && peers.connecting.is_empty());
        peers.set_state(peer, PeerState::Up);
        assert_eq!(peers.unconfirmed, 0);
    }
}
