//! The peers of one device, by number and by address.

use std::collections::HashMap;

use crate::{Address, DeviceError, PeerId, PeerNumbers};

/// The states that a device has for a peer.
pub trait PeerState: Sized {
    /// A connection to a peer that is up.
    type Connection;
    /// The attempts to connect to a peer.
    type Connecting;
    /// The state of a peer that is down.
    fn down() -> Self;
    /// Whether the peer is down.
    fn is_down(&self) -> bool;
    /// The connection, if the peer is up.
    fn connection_mut(&mut self) -> Option<&mut Self::Connection>;
    /// The attempts, if the device tries to connect to the peer.
    fn connecting_mut(&mut self) -> Option<&mut Self::Connecting>;
}

#[derive(Debug)]
struct Entry<S> {
    id: PeerId,
    /// `None`: the number was given by another device of the worker, or was given back.
    address: Option<Address>,
    state: S,
}

impl<S: PeerState> Entry<S> {
    /// What stands at the index of a number that is none of this device's peers.
    fn vacant(id: PeerId) -> Self {
        Entry { id, address: None, state: S::down() }
    }
}

/// A device's peers. Peers that are down stay in the table until they are forgotten.
#[derive(Debug)]
pub struct PeerTable<S> {
    numbers: PeerNumbers,
    /// By index of the number.
    entries: Vec<Entry<S>>,
    by_address: HashMap<Address, PeerId>,
    connecting: Vec<PeerId>,
}

impl<S> Default for PeerTable<S> {
    fn default() -> Self {
        PeerTable {
            numbers: PeerNumbers::default(),
            entries: Vec::new(),
            by_address: HashMap::new(),
            connecting: Vec::new(),
        }
    }
}

impl<S: PeerState> PeerTable<S> {
    /// Enters a peer.
    ///
    /// # Errors
    /// [`DeviceError::Exhausted`]: no number is left.
    pub fn add(&mut self, address: Address, mut state: S) -> Result<PeerId, DeviceError> {
        let peer = self.numbers.give()?;
        if state.connecting_mut().is_some() {
            self.connecting.push(peer);
        }
        while self.entries.len() <= peer.index() {
            self.entries.push(Entry::vacant(PeerId::first(self.entries.len())));
        }
        self.entries[peer.index()] = Entry { id: peer, address: Some(address), state };
        self.by_address.insert(address, peer);
        Ok(peer)
    }

    /// Gives the number of a peer that is down back. `false` if it is not down, or no peer of this
    /// device.
    pub fn forget(&mut self, peer: PeerId) -> bool {
        let Some(known) = self.entry_mut(peer) else { return false };
        if peer == PeerId::ONESELF || !known.state.is_down() {
            return false;
        }
        let Some(address) = std::mem::replace(known, Entry::vacant(peer)).address else {
            return false;
        };
        self.by_address.remove(&address);
        self.numbers.give_back(peer);
        true
    }

    /// Makes the table one of several of a worker. It contains the worker itself only.
    pub fn join(&mut self, own: Address, numbers: &PeerNumbers) {
        self.numbers = numbers.clone();
        self.by_address.clear();
        self.by_address.insert(own, PeerId::ONESELF);
        if let Some(oneself) = self.entries.first_mut() {
            oneself.address = Some(own);
        }
    }

    /// Whether no other peer can be entered.
    pub fn is_full(&self) -> bool {
        self.numbers.are_given()
    }

    /// How many indices the table has, the worker itself included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether not even the worker itself was entered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The peer with this address.
    pub fn find(&self, address: &Address) -> Option<PeerId> {
        self.by_address.get(address).copied()
    }

    #[inline]
    fn entry(&self, peer: PeerId) -> Option<&Entry<S>> {
        self.entries.get(peer.index()).filter(|known| known.id == peer)
    }

    #[inline]
    fn entry_mut(&mut self, peer: PeerId) -> Option<&mut Entry<S>> {
        self.entries.get_mut(peer.index()).filter(|known| known.id == peer)
    }

    /// A peer's address.
    pub fn address(&self, peer: PeerId) -> Option<Address> {
        self.entry(peer)?.address
    }

    /// A peer's state.
    #[inline]
    pub fn state(&self, peer: PeerId) -> Option<&S> {
        Some(&self.entry(peer)?.state)
    }

    /// For looking into a state. Another state is entered by [`PeerTable::replace`].
    #[inline]
    pub fn state_mut(&mut self, peer: PeerId) -> Option<&mut S> {
        Some(&mut self.entry_mut(peer)?.state)
    }

    /// The connection to a peer that is up.
    #[inline]
    pub fn connection_mut(&mut self, peer: PeerId) -> Option<&mut S::Connection> {
        self.state_mut(peer)?.connection_mut()
    }

    /// The attempts to connect to a peer, while they are under way.
    pub fn connecting_mut(&mut self, peer: PeerId) -> Option<&mut S::Connecting> {
        self.state_mut(peer)?.connecting_mut()
    }

    /// As [`PeerTable::connecting_mut`], with the address of the peer.
    pub fn attempt_mut(&mut self, peer: PeerId) -> Option<(Address, &mut S::Connecting)> {
        let Entry { address, state, .. } = self.entry_mut(peer)?;
        Some(((*address)?, state.connecting_mut()?))
    }

    /// As [`PeerTable::state_mut`], for a message to a peer that is not forgotten: the engine has
    /// compared the generation.
    #[inline(always)]
    pub fn state_of_receiver(&mut self, peer: PeerId) -> Option<&mut S> {
        Some(&mut self.entries.get_mut(peer.index())?.state)
    }

    /// Enters another state; returns the state before, `None` if there is no such peer.
    pub fn replace(&mut self, peer: PeerId, state: S) -> Option<S> {
        let mut before = std::mem::replace(self.state_mut(peer)?, state);
        if before.connecting_mut().is_some() {
            self.connecting.retain(|other| *other != peer);
        }
        Some(before)
    }

    /// The peers that the device tries to connect to.
    pub fn connecting(&self) -> &[PeerId] {
        &self.connecting
    }

    /// All states, with their peers.
    pub fn states(&self) -> impl Iterator<Item = (PeerId, &S)> {
        self.entries.iter().map(|entry| (entry.id, &entry.state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum TestState {
        Connecting(u8),
        Up(u8),
        Down,
    }

    impl PeerState for TestState {
        type Connection = u8;
        type Connecting = u8;

        fn down() -> Self {
            TestState::Down
        }

        fn is_down(&self) -> bool {
            matches!(self, TestState::Down)
        }

        fn connection_mut(&mut self) -> Option<&mut u8> {
            if let TestState::Up(connection) = self { Some(connection) } else { None }
        }

        fn connecting_mut(&mut self) -> Option<&mut u8> {
            if let TestState::Connecting(attempt) = self { Some(attempt) } else { None }
        }
    }

    #[test]
    fn the_number_of_a_forgotten_peer_names_nothing_of_the_next_one() {
        let address = |byte| Address::from_bytes(&[byte; 8]).unwrap();
        let mut table = PeerTable::default();
        table.add(address(0), TestState::Up(0)).unwrap();
        let old = table.add(address(1), TestState::Connecting(1)).unwrap();
        assert_eq!(table.connecting_mut(old), Some(&mut 1));
        assert_eq!(table.attempt_mut(old), Some((address(1), &mut 1)));
        assert_eq!(table.connecting(), [old]);
        assert!(!table.forget(old), "it is not down");
        table.replace(old, TestState::Down);
        assert!(table.connecting().is_empty() && table.forget(old) && !table.forget(old));

        let new = table.add(address(2), TestState::Up(2)).unwrap();
        assert!(new.index() == old.index() && new != old);
        assert_eq!([new, old].map(|peer| table.address(peer)), [Some(address(2)), None]);
        assert_eq!(table.connection_mut(new), Some(&mut 2));
        assert_eq!(table.connection_mut(old), None);
        assert!(table.state(old).is_none() && table.replace(old, TestState::Down).is_none());
        table.replace(new, TestState::Connecting(3));
        assert_eq!(table.connecting_mut(new), Some(&mut 3));
        assert_eq!(table.connecting_mut(old), None);
        assert_eq!((table.find(&address(1)), table.find(&address(2))), (None, Some(new)));
    }

    #[test]
    fn a_table_is_one_of_several_of_a_worker() {
        let address = |byte| Address::from_bytes(&[byte; 8]).unwrap();
        let mut tables = [(); 2].map(|()| PeerTable::default());
        let numbers = PeerNumbers::of_several_devices();
        for table in &mut tables {
            assert!(table.is_empty() && !table.is_full());
            assert_eq!(table.add(address(9), TestState::Up(9)).unwrap(), PeerId::ONESELF);
            table.join(address(0), &numbers);
            assert_eq!(table.address(PeerId::ONESELF), Some(address(0)));
            assert_eq!((table.find(&address(0)), table.find(&address(9))), (Some(PeerId(0)), None));
        }
        let [one, other] = &mut tables;
        assert_eq!(one.add(address(1), TestState::Up(1)).unwrap(), PeerId(1));
        assert_eq!(other.add(address(2), TestState::Connecting(2)).unwrap(), PeerId(2));
        assert!((one.len(), other.len()) == (2, 3) && !other.is_empty());
        // The number of the other table's peer is nobody's here.
        assert!(other.address(PeerId(1)).is_none() && !other.forget(PeerId(1)));
        assert!(other.state(PeerId(1)).is_some_and(PeerState::is_down));
        assert!(one.state(PeerId(2)).is_none() && one.state_of_receiver(PeerId(2)).is_none());
        assert!(matches!(one.state_of_receiver(PeerId(1)), Some(TestState::Up(1))));
        assert!(matches!(other.state(PeerId(2)), Some(TestState::Connecting(2))));
        let connecting: Vec<PeerId> = other
            .states()
            .filter(|(_, state)| matches!(state, TestState::Connecting(_)))
            .map(|(id, _)| id)
            .collect();
        assert_eq!(connecting, other.connecting());
        assert!(!one.forget(PeerId::ONESELF) && !one.forget(PeerId(1)), "they are not down");
        one.replace(PeerId::ONESELF, TestState::Down);
        assert!(!one.forget(PeerId::ONESELF), "the worker itself stays");
    }
}
