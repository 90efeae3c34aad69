//! The networks of a worker: which peer is on which, and whose turn it is to be polled.

use std::collections::BTreeSet;

use tagmatch_device::{Event, Join, Network, PeerId};

/// Networks without a peer are polled once in so many polls: a power of two.
const POLLS_WITHOUT_PEER: u32 = 64;

/// The networks of a worker.
#[derive(Clone)]
pub(crate) struct NetworkDevices<N: ?Sized> {
    members: Vec<Box<N>>,
    /// By index of a peer: 0 if it isn't on a network, else the network's place, from 1.
    routes: Vec<u8>,
    /// The peers that are not down, the worker itself aside.
    peers: BTreeSet<PeerId>,
    /// The place of the network that is polled first.
    turn: usize,
    polls: u32,
}

impl<N: Join + ?Sized> NetworkDevices<N> {
    pub(crate) fn new(devices: Vec<Box<N>>) -> Self {
        let peers = BTreeSet::new();
        NetworkDevices { members: devices, routes: Vec::new(), peers, turn: 0, polls: 0 }
    }

    /// The devices.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &N> {
        self.members.iter().map(|device| &**device)
    }

    /// The devices.
    pub(crate) fn devices_mut(&mut self) -> impl Iterator<Item = &mut N> {
        self.members.iter_mut().map(|device| &mut **device)
    }

    /// The peers that are not down.
    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.peers.iter().copied()
    }

    fn place(&self, peer: PeerId) -> Option<usize> {
        usize::from(*self.routes.get(peer.index())?).checked_sub(1)
    }

    /// The device of a peer; `None` if it isn't on a network.
    pub(crate) fn of(&self, peer: PeerId) -> Option<&N> {
        Some(&**self.members.get(self.place(peer)?)?)
    }

    /// The device of a peer; `None` if it isn't on a network.
    pub(crate) fn of_mut(&mut self, peer: PeerId) -> Option<&mut N> {
        let place = self.place(peer)?;
        Some(&mut **self.members.get_mut(place)?)
    }

    /// The number of a peer was given back; the next peer with its index may be on any device.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        if let Some(route) = self.routes.get_mut(peer.index()) {
            *route = 0;
        }
    }

    /// Makes a call that connects to a peer over `network`, and notes the peer's route.
    pub(crate) fn connect<E>(
        &mut self,
        network: Network,
        none: E,
        call: impl FnOnce(&mut N) -> Result<PeerId, E>,
    ) -> Result<PeerId, E> {
        let place = self.members.iter().position(|device| device.network() == network);
        let Some(place) = place else { return Err(none) };
        let peer = call(&mut *self.members[place])?;
        note(&mut self.routes, peer, place);
        self.peers.insert(peer);
        Ok(peer)
    }

    /// The next event of a network; `None` if there is none, or if it isn't time to look. The
    /// events of the worker itself are those of another device.
    #[inline]
    pub(crate) fn poll(&mut self) -> Option<Event<'_>> {
        self.polls = self.polls.wrapping_add(1);
        if self.peers.is_empty() && !self.polls.is_multiple_of(POLLS_WITHOUT_PEER) {
            return None;
        }
        self.poll_all()
    }

    #[inline(never)]
    fn poll_all(&mut self) -> Option<Event<'_>> {
        let NetworkDevices { members, routes, peers, turn, .. } = self;
        *turn = if *turn + 1 < members.len() { *turn + 1 } else { 0 };
        let (before, after) = members.split_at_mut(*turn);
        let places = (*turn..).zip(after).chain((0..).zip(before));
        for (place, device) in places {
            let Some(event) = device.poll() else { continue };
            match &event {
                Event::PeerUp { peer: PeerId::ONESELF, .. }
                | Event::PeerDown { peer: PeerId::ONESELF, .. } => continue,
                Event::PeerUp { peer, .. } => {
                    note(routes, *peer, place);
                    peers.insert(*peer);
                }
                Event::PeerDown { peer, .. } => {
                    note(routes, *peer, place);
                    peers.remove(peer);
                }
                _ => {}
            }
            return Some(event);
        }
        None
    }
}

/// Notes the route of a peer.
fn note(routes: &mut Vec<u8>, peer: PeerId, place: usize) {
    if routes.len() <= peer.index() {
        routes.resize(peer.index() + 1, 0);
    }
    // There are fewer networks than 255.
    routes[peer.index()] = u8::try_from(place + 1).unwrap_or(0);
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tagmatch_device::{
        Address, Buffer, Device, DeviceError, DownReason, Exposure, ExposureId, Flush, Limits,
        Outgoing, PeerNumbers, ReadError, ReadMode, ReadRequest, Refused,
    };

    use super::*;

    /// A network that has these events, and counts how often it was polled.
    struct Scripted {
        network: Network,
        events: VecDeque<Event<'static>>,
        polls: u32,
    }

    impl Device for Scripted {
        fn poll(&mut self) -> Option<Event<'_>> {
            self.polls += 1;
            self.events.pop_front()
        }

        fn limits(&self) -> Limits {
            unreachable!()
        }

        fn address(&self) -> Address {
            unreachable!()
        }

        fn connect(&mut self, _: &Address) -> Result<PeerId, DeviceError> {
            unreachable!()
        }

        fn peer_address(&self, _: PeerId) -> Option<Address> {
            unreachable!()
        }

        fn read_mode(&self, _: PeerId) -> ReadMode {
            unreachable!()
        }

        fn send(&mut self, _: PeerId, _: Outgoing<'_>) -> Result<(), Refused> {
            unreachable!()
        }

        fn expose(&mut self, _: PeerId, _: Buffer) -> Result<Exposure, (Buffer, DeviceError)> {
            unreachable!()
        }

        fn withdraw(&mut self, _: PeerId, _: ExposureId) -> Option<Buffer> {
            unreachable!()
        }

        fn read(&mut self, _: ReadRequest) -> Result<(), (Buffer, ReadError)> {
            unreachable!()
        }

        fn flush(&mut self, _: PeerId, _: &mut Option<u64>) -> Flush {
            unreachable!()
        }

        fn disconnect(&mut self, _: PeerId) {}

        fn close(&mut self) {}

        fn arm(&mut self, _: &[PeerId]) -> bool {
            true
        }

        fn disarm(&mut self) {}
    }

    impl Join for Scripted {
        fn network(&self) -> Network {
            self.network
        }

        fn section(&self, _: usize) -> Vec<u8> {
            Vec::new()
        }

        fn join(&mut self, _: Address, _: &PeerNumbers) {}
    }

    fn networks(events: [Vec<Event<'static>>; 3]) -> NetworkDevices<Scripted> {
        let all = [Network::Verbs, Network::Tcp, Network::Shm].into_iter().zip(events);
        let scripted =
            all.map(|(network, events)| Scripted { network, events: events.into(), polls: 0 });
        NetworkDevices::new(scripted.map(Box::new).collect())
    }

    fn connected(networks: &mut NetworkDevices<Scripted>, network: Network, peer: u32) {
        networks.connect(network, (), |_| Ok(PeerId(peer))).unwrap();
    }

    fn down(peer: u32) -> Event<'static> {
        Event::PeerDown { peer: PeerId(peer), reason: DownReason::Left }
    }

    #[test]
    fn busy_networks_take_turns() {
        let failed = |token| Event::ReadDone {
            token,
            into: Buffer::zeroed(0),
            result: Err(ReadError::PeerDown),
        };
        let events = |network: u64| (0..4).map(|at| failed(10 * network + at)).collect();
        let mut networks = networks([events(0), events(1), events(2)]);
        connected(&mut networks, Network::Tcp, 1);
        let mut tokens = Vec::new();
        while let Some(Event::ReadDone { token, .. }) = networks.poll() {
            tokens.push(token);
        }
        assert_eq!(tokens, [10, 20, 0, 11, 21, 1, 12, 22, 2, 13, 23, 3]);
    }

    #[test]
    fn networks_are_polled_each_time_while_they_have_a_peer() {
        let mut networks = networks([vec![down(2)], vec![down(1)], vec![]]);
        let polls = |networks: &mut NetworkDevices<Scripted>, count: u32| {
            let before = networks.members[2].polls;
            let found = (0..count).filter(|_| networks.poll().is_some()).count();
            (found, networks.members[2].polls - before)
        };
        connected(&mut networks, Network::Verbs, 2);
        connected(&mut networks, Network::Tcp, 1);
        connected(&mut networks, Network::Verbs, 2);
        assert_eq!(polls(&mut networks, 3), (2, 1));
        assert_eq!(polls(&mut networks, 2 * POLLS_WITHOUT_PEER), (0, 2));
        // A forgotten peer's successor is another peer.
        networks.forget(PeerId(1));
        assert!(networks.of(PeerId(1)).is_none());
        connected(&mut networks, Network::Verbs, 1);
        assert_eq!(networks.of(PeerId(1)).unwrap().network, Network::Verbs);
        assert_eq!(polls(&mut networks, 100), (0, 100));
        let limits = Limits { message_max: 100, fragmented_max: 0 };
        let up = Event::PeerUp { peer: PeerId(7), limits };
        // Peer 9 was never connected.
        networks.members[0].events.extend([up, down(9), down(1)]);
        assert_eq!(polls(&mut networks, 100).0, 3);
        assert_eq!(polls(&mut networks, 100), (0, 100), "the one that has connected is left");
    }
}
