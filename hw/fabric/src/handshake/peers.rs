//! The table of peers.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tagmatch_device::{Address, DownReason, PeerId};

/// Time until the next attempt, after one that failed for a passing reason.
pub(crate) const RETRY_DELAY: Duration = Duration::from_millis(5);
/// Most peers over the whole life of a device, those that went down included.
const PEERS_EVER_MAX: u64 = 1 << 20;

/// The state of a peer.
///
/// Connecting -> Unconfirmed or Up -> Leaving -> Ending -> Down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// An attempt to reach it is under way.
    Connecting,
    /// Its hello was answered, and it has not said yet that it is ready.
    Unconfirmed,
    /// It can be sent to, and its messages are received.
    Up,
    /// Its last messages are still received, or this device's last messages still go out.
    Leaving {
        /// Why it ends.
        reason: DownReason,
        /// When that is over at the latest, or at the earliest.
        until: Instant,
        /// For how many polls nothing has come.
        quiet: u32,
    },
    /// Operations that depend on it are being ended.
    Ending {
        /// Why it ends.
        reason: DownReason,
    },
    /// Its end was reported.
    Down,
}

/// An attempt to reach a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) deadline: Instant,
    /// When to begin the next connection, or to give up on this one.
    pub(crate) next_at: Instant,
    /// Which of the peer's addresses is tried: the local name is the first, then its hosts.
    pub(crate) way: usize,
    /// The error number of the last connection that failed.
    pub(crate) errno: i32,
    /// Both sides connected at once and the peer's attempt counts, so this side makes no other.
    pub(crate) is_crossed: bool,
}

/// Whether the transport below may still hold messages that were sent to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// There are none.
    Nothing,
    /// It may still hold some.
    Unflushed,
    /// It has sent all of them.
    Flushed,
}

/// A peer. `L` is what the device itself keeps of it.
pub struct Peer<L> {
    /// The address of its device.
    pub address: Address,
    /// How far its life has come.
    pub state: PeerState,
    pub(crate) attempt: Option<Attempt>,
    /// The connection of the handshake. Its end is the end of the peer.
    pub(crate) connection: Option<u32>,
    /// The way to it was made.
    pub(crate) is_adopted: bool,
    /// What the device itself keeps of it.
    pub link: L,
    /// Whether the transport below may still hold messages that were sent to it.
    pub sent: Sent,
    /// It is going down or down, and so many messages may not have reached it.
    pub lost: usize,
    /// The peer has said that it leaves.
    pub(crate) says_bye: bool,
    /// The number that the peer wants in the source field of messages sent to it.
    pub our_number: u64,
    /// The number in the source field of the peer's messages.
    pub its_number: Option<u64>,
    /// Operations under way that depend on the peer.
    pub live: u32,
}

impl<L> Peer<L> {
    /// The connection of the handshake, for [`hear`](super::hear).
    pub fn connection(&self) -> Option<u32> {
        self.connection
    }

    /// Whether it ends, or has ended.
    pub fn is_leaving(&self) -> bool {
        matches!(self.state, PeerState::Leaving { .. } | PeerState::Ending { .. } | PeerState::Down)
    }

    /// Both sides have connected at once, and the peer's attempt counts.
    pub(crate) fn attempt_crossed(&mut self) {
        self.connection = None;
        if let Some(attempt) = &mut self.attempt {
            attempt.is_crossed = true;
        }
    }

    /// The connection of an attempt has ended before an answer came.
    pub(crate) fn attempt_failed(&mut self, errno: i32, now: Instant) {
        self.connection = None;
        let Some(attempt) = &mut self.attempt else { return };
        attempt.errno = errno;
        if errno == 0 {
            // The peer closed the connection without an answer: it was closed, or it is another
            // process. The next attempt finds out.
            attempt.next_at = now + RETRY_DELAY;
        } else {
            attempt.way += 1;
            attempt.next_at = now;
        }
    }
}

/// The table of peers. Number 0 is oneself.
pub struct Peers<L> {
    all: Vec<Peer<L>>,
    pub(crate) by_address: HashMap<Address, PeerId>,
    /// Peers by the number in the source field of their messages, where runtimes choose the
    /// numbers.
    by_number: Option<HashMap<u64, PeerId>>,
    limit: u64,
    /// Peers whose hello was answered, and that have not said yet that they are ready.
    pub unconfirmed: usize,
    pub(crate) connecting: Vec<PeerId>,
    /// Peers that are ending.
    pub leaving: Vec<PeerId>,
}

impl<L: Default> Peers<L> {
    /// `number_max` is the largest number that fits into the source field.
    pub(crate) fn new(number_max: u64, has_own_numbers: bool) -> Self {
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

    pub(crate) fn limit(&self) -> usize {
        usize::try_from(self.limit).unwrap_or(usize::MAX)
    }

    /// A new peer, unless there are too many.
    pub(crate) fn add(&mut self, address: Address) -> Option<PeerId> {
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
            is_adopted: false,
            link: L::default(),
            sent: Sent::Nothing,
            lost: 0,
            says_bye: false,
            our_number: 0,
            its_number,
            live: 0,
        });
        self.by_address.insert(address, id);
        Some(id)
    }

    /// A peer by its number.
    #[inline]
    pub fn find(&self, peer: PeerId) -> Option<&Peer<L>> {
        self.all.get(peer.index())
    }

    /// A peer by its number, to be changed.
    #[inline]
    pub fn find_mut(&mut self, peer: PeerId) -> Option<&mut Peer<L>> {
        self.all.get_mut(peer.index())
    }

    /// The numbers of all peers, this device itself first.
    pub fn ids(&self) -> impl Iterator<Item = PeerId> + use<L> {
        (0..self.all.len()).filter_map(|index| u32::try_from(index).ok()).map(PeerId)
    }

    /// Records the number that the runtime of a peer puts into its tags; `false` if another peer
    /// has the same number.
    pub(crate) fn claim(&mut self, peer: PeerId, number: u64) -> bool {
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
    pub fn of_number(&self, number: u64) -> Option<PeerId> {
        match &self.by_number {
            Some(by_number) => by_number.get(&number).copied(),
            None => {
                let peer = PeerId(u32::try_from(number).ok()?);
                (peer.index() < self.all.len()).then_some(peer)
            }
        }
    }

    /// Sets the state of a peer, and returns the previous one.
    pub fn set_state(&mut self, peer: PeerId, state: PeerState) -> Option<PeerState> {
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
        let mut peers = Peers::<()>::new(3, false);
        for byte in 0..4 {
            assert_eq!(peers.add(address(byte)), Some(PeerId(byte.into())));
        }
        assert_eq!(peers.add(address(4)), None);
        assert_eq!(peers.of_number(3), Some(PeerId(3)));
        assert_eq!(peers.of_number(4), None);
    }

    #[test]
    fn a_number_of_a_runtime_is_one_peers() {
        let mut peers = Peers::<()>::new(u64::MAX, true);
        let a = peers.add(address(1)).unwrap();
        let b = peers.add(address(2)).unwrap();
        assert!(peers.claim(a, 70) && !peers.claim(b, 70) && peers.claim(a, 70));
        assert_eq!(peers.of_number(70), Some(a));
        assert_eq!(peers.find(b).unwrap().its_number, None);
    }

    #[test]
    fn stages_are_counted() {
        let mut peers = Peers::<()>::new(3, false);
        let peer = peers.add(address(0)).unwrap();
        peers.connecting.push(peer);
        assert_eq!(peers.set_state(peer, PeerState::Unconfirmed), Some(PeerState::Connecting));
        assert!(peers.unconfirmed == 1 && peers.connecting.is_empty());
        peers.set_state(peer, PeerState::Up);
        assert_eq!(peers.unconfirmed, 0);
    }
}
