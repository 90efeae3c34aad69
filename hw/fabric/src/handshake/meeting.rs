//! The sockets, the connections and the peers of one device.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use tagmatch_device::{Address, DeviceError, InCall, PeerId};
use tagmatch_os::{random, stream};
use tagmatch_secret::Secret as JobSecret;

use super::address::MeetingAddress;
use super::connection::Connection;
use super::hello::{Hello, Packet, Refusal};
use super::kind::MeetingKind;
use super::listeners::Listeners;
use super::peers::{PeerState, Peers};

/// How tags are laid out. Both ends of a connection must agree on it.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// All bits of the tag layout.
    pub used: u64,
    /// The bits of the source field.
    pub source: u64,
    /// The number of this worker, if the application's tags have it.
    pub own_source: Option<u64>,
    /// The largest number that a peer can have in a tag.
    pub number_max: u64,
}

/// Settings of a [`Meeting`].
#[derive(Debug)]
pub struct MeetingConfig<'a> {
    /// The kind of device.
    pub kind: &'static MeetingKind,
    /// How tags are laid out.
    pub layout: Layout,
    /// What the transport below needs to reach this device: [`Hello::worker`].
    pub worker: Vec<u8>,
    /// The job's secret, if there is one.
    pub secret: Option<&'a JobSecret>,
    /// The addresses on which to listen; empty: all.
    pub listen: &'a [IpAddr],
    /// How long to try to reach a peer, and how long a pending connection may take.
    pub connect_timeout: Duration,
    /// A peer on another machine that has not answered for so long is down.
    pub keepalive: Duration,
}

/// The sockets, the connections and the peers of one device. Peer 0 is the device itself.
pub struct Meeting<L> {
    pub(crate) kind: &'static MeetingKind,
    /// How tags are laid out.
    pub layout: Layout,
    pub(crate) own: MeetingAddress,
    /// The address at which peers reach this device.
    pub address: Address,
    worker: Vec<u8>,
    /// The key that proofs need beside the secret of an address.
    pub(crate) job: Option<tagmatch_secret::Proof>,
    /// How long to try to reach a peer.
    pub connect_timeout: Duration,
    keepalive: Duration,
    /// The peers.
    pub peers: Peers<L>,
    pub(crate) listeners: Listeners,
    pub(crate) connections: HashMap<u32, Connection>,
    connection_ids: u32,
    /// Number of pending connections: accepted, and not yet proven.
    pub(crate) pending: usize,
    /// The device was closed.
    pub is_closed: bool,
}

impl<L: Default> Meeting<L> {
    /// Listens for peers, and enters the device itself as peer 0, connected by `link`.
    ///
    /// # Errors
    /// A socket can't be opened.
    pub fn open(config: MeetingConfig<'_>, link: L) -> Result<Self, DeviceError> {
        let MeetingConfig { kind, layout, worker, secret, listen, connect_timeout, keepalive } =
            config;
        let name = random().in_call("getrandom")?;
        let own_secret = random().in_call("getrandom")?;
        let mut own = MeetingAddress { name, secret: own_secret, port: 0, hosts: Vec::new() };
        let listeners = Listeners::open(&mut own, kind, listen)?;
        let address = own.address(kind)?;
        let mut peers = Peers::new(layout.number_max, layout.own_source.is_some());
        peers.add(address);
        let oneself = PeerId::ONESELF;
        if let Some(own_source) = layout.own_source {
            peers.claim(oneself, own_source);
        }
        if let Some(peer) = peers.find_mut(oneself) {
            peer.link = link;
        }
        peers.set_state(oneself, PeerState::Up);
        Ok(Meeting {
            kind,
            layout,
            own,
            address,
            worker,
            job: secret.map(|secret| secret.code(kind.protocol, &[])),
            connect_timeout,
            keepalive,
            peers,
            listeners,
            connections: HashMap::new(),
            connection_ids: 0,
            pending: 0,
            is_closed: false,
        })
    }

    /// Takes no more connections, and ends those that are pending.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.listeners.close();
        let pending = self.connections.iter().filter(|(_, other)| other.owner.is_none());
        for id in pending.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.hang_up(id);
        }
    }

    /// The next deadline of the handshake.
    pub fn next_due(&self) -> Option<Instant> {
        let attempts = self.peers.connecting.iter().filter_map(|peer| {
            let attempt = self.peers.find(*peer)?.attempt?;
            Some(if attempt.is_crossed { attempt.deadline } else { attempt.next_at })
        });
        let pending = self.connections.values().filter(|other| other.owner.is_none());
        let pending = pending.map(|other| other.deadline);
        attempts.chain(pending).chain(self.listeners.muted_until).min()
    }

    /// Whether a handshake is under way.
    pub fn has_handshakes(&self) -> bool {
        !self.peers.connecting.is_empty() || self.peers.unconfirmed > 0 || self.pending > 0
    }

    /// Whether a peer's hello was answered and its
    /// [`MatchingEvent::PeerUp`](tagmatch_device::matching::MatchingEvent) was not reported yet.
    #[inline]
    pub fn is_up_unreported(&self, peer: PeerId) -> bool {
        self.peers.unconfirmed > 0
            && self.peers.find(peer).is_some_and(|peer| peer.state == PeerState::Unconfirmed)
    }

    /// This device's hello packet for a peer.
    pub(crate) fn hello(&self, peer: PeerId) -> Hello {
        let Layout { used, source, own_source, .. } = self.layout;
        let number = if own_source.is_some() { 0 } else { peer.0.into() };
        let worker = self.worker.clone();
        Hello { address: self.address, used, source, own_source, number, worker }
    }

    /// Whether this device can work with a peer that sends this hello.
    pub(crate) fn check(&self, hello: &Hello, known: Option<PeerId>) -> Result<(), Refusal> {
        let Layout { used, source, own_source, number_max } = self.layout;
        let is_alike = hello.used == used
            && hello.source == source
            && hello.own_source.is_some() == own_source.is_some();
        if !is_alike {
            return Err(Refusal::Layout);
        }
        if hello.number > number_max || hello.own_source.is_some_and(|own| own > number_max) {
            return Err(Refusal::Invalid);
        }
        let holder = hello.own_source.and_then(|own| self.peers.of_number(own));
        match holder {
            Some(holder) if Some(holder) != known => Err(Refusal::SameNumber),
            _ => Ok(()),
        }
    }

    /// Watches a connection.
    ///
    /// # Errors
    /// The system has no room to watch another one.
    pub(crate) fn enter(&mut self, mut connection: Connection) -> io::Result<u32> {
        let id = self.connection_ids;
        self.connection_ids = self.connection_ids.wrapping_add(1);
        if !connection.is_local {
            // Without keep-alives, only the silence of the peer's machine is not noticed.
            let _ = stream::keep_alive(connection.socket(), self.keepalive);
        }
        self.listeners.epoll.watch(connection.socket(), id.into())?;
        if !connection.flush() {
            self.listeners.epoll.watch_room(connection.socket(), id.into(), true)?;
        }
        self.connections.insert(id, connection);
        Ok(id)
    }

    /// Ends a connection for all processes that have it open.
    pub(crate) fn hang_up(&mut self, id: u32) {
        if let Some(connection) = self.connections.remove(&id) {
            self.pending -= usize::from(connection.owner.is_none());
            self.listeners.epoll.forget(connection.socket());
            drop(connection);
        }
    }

    /// Tells a peer that this worker leaves in order, if the connection has room.
    pub(crate) fn say_bye(&mut self, connection: Option<u32>) {
        if let Some(connection) = connection.and_then(|id| self.connections.get_mut(&id)) {
            connection.say(Packet::Bye);
            connection.flush();
        }
    }
}
