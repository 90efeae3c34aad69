//! The networks of a worker: which peer is on which, and whose turn it is to be polled.

use tagmatch_device::{Event, Join, Network, PeerId};

/// Networks without a peer are polled once in so many polls: a power of two.
const POLLS_WITHOUT_PEER: u32 = 64;

/// The networks of a worker.
#[derive(Clone)]
pub(crate) struct Networks<N: ?Sized> {
    members: Vec<Box<N>>,
    /// By index of a peer: 0 if it isn't on a network, else the network's place, from 1.
    routes: Vec<u8>,
    /// The peers that are not down, the worker itself aside.
    peers: u32,
    /// The place of the network that is polled first.
    turn: usize,
    polls: u32,
}

impl<N: Join + ?Sized> Networks<N> {
    pub(crate) fn new(devices: Vec<Box<N>>) -> Self {
        Networks { members: devices, routes: Vec::new(), peers: 0, turn: 0, polls: 0 }
    }

    /// The devices.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &N> {
        self.members.iter().map(|device| &**device)
    }

    /// The devices.
    pub(crate) fn devices_mut(&mut self) -> impl Iterator<Item = &mut N> {
        self.members.iter_mut().map(|device| &mut **device)
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
        self.peers += u32::from(note(&mut self.routes, peer, place));
        Ok(peer)
    }

    /// The next event of a network; `None` if there is none, or if it isn't time to look. The
    /// events of the worker itself are those of another device.
    #[inline]
    pub(crate) fn poll(&mut self) -> Option<Event<'_>> {
        self.polls = self.polls.wrapping_add(1);
        if self.peers == 0 && !self.polls.is_multiple_of(POLLS_WITHOUT_PEER) {
            return None;
        }
        self.poll_all()
    }

    #[inline(never)]
    fn poll_all(&mut self) -> Option<Event<'_>> {
        let Networks { members, routes, peers, turn, .. } = self;
        *turn = if *turn + 1 < members.len() { *turn + 1 } else { 0 };
        let (before, after) = members.split_at_mut(*turn);
        let places = (*turn..).zip(after).chain((0..).zip(before));
        for (place, device) in places {
            let Some(event) = device.poll() else { continue };
            match &event {
                Event::PeerUp { peer: PeerId::ONESELF, .. }
                | Event::PeerDown { peer: PeerId::ONESELF, .. } => continue,
                Event::PeerUp { peer, .. } => *peers += u32::from(note(routes, *peer, place)),
                Event::PeerDown { peer, .. } => {
                    let was_known = !note(routes, *peer, place);
                    *peers = peers.saturating_sub(was_known.into());
                }
                _ => {}
            }
            return Some(event);
        }
        None
    }
}

/// Notes the route of a peer; `false` if it was known.
fn note(routes: &mut Vec<u8>, peer: PeerId, place: usize) -> bool {
    if routes.len() <= peer.index() {
        routes.resize(peer.index() + 1, 0);
    }
    let route = &mut routes[peer.index()];
    let is_new = *route == 0;
    // There are fewer networks than 255.
    *route = u8::try_from(place + 1).unwrap_or(0);
    is_new
}
