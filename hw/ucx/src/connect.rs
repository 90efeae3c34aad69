//! Connecting to peers, and accepting connections. A peer on this machine is reached by the name of
//! its socket, any other by its hosts, one after the other. No call blocks.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use tagmatch_device::{Address, DeviceError, DownReason, Expected, PeerId};
use tagmatch_os::background_close;
use tagmatch_os::peer_socket::PeerSocket;
use tagmatch_os::{process, socket, stream};

use super::Ucx;
use super::address::UcxAddress;
use super::connection::Connection;
use super::hello::{Hello, Packet};
use super::peers::{Attempt, PeerState};
use super::proof::with_jobs;

/// Time until the next attempt, after one that failed for a passing reason.
const RETRY_DELAY: Duration = Duration::from_millis(5);
/// How long one host of several is tried.
const HOST_TIMEOUT: Duration = Duration::from_secs(3);
/// Pending connections: accepted, and not yet proven. With one more, the oldest is closed.
const PENDING_MAX: usize = 64;
/// How long listeners are paused when a connection can't be accepted, for example for want of
/// descriptors.
const MUTE_DELAY: Duration = Duration::from_millis(20);
/// The reason for giving up on a peer after wrong proofs.
const NO_PROOF: &str = "no process at its hosts has proved that it knows the secret of the address and \
                        the job's secret, if there is one (TAGMATCH_SECRET_FILE, TAGMATCH_SECRET)";

impl Ucx {
    /// See [`MatchingDevice::connect`](tagmatch_device::matching::MatchingDevice::connect).
    pub(super) fn start_connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        if let Some(peer) = self.peers.by_address.get(address) {
            return Ok(*peer);
        }
        UcxAddress::parse(address)?;
        if self.is_closed {
            let why = "the device was closed";
            return Err(DeviceError::Unsupported { what: "another connection", why });
        }
        let limit = self.peers.limit();
        let peer = self.peers.add(*address).ok_or(DeviceError::Exhausted {
            what: "peer, those that went down included (the source field numbers them)",
            limit,
        })?;
        let now = Instant::now();
        if let Some(entry) = self.peers.find_mut(peer) {
            let deadline = now + self.config.connect_timeout;
            entry.attempt =
                Some(Attempt { deadline, next_at: now, way: 0, errno: 0, is_crossed: false });
        }
        self.peers.connecting.push(peer);
        self.try_ways(peer, now);
        Ok(peer)
    }

    /// Continues an attempt: begins a connection to the next of the peer's addresses to which one
    /// can be begun.
    fn try_ways(&mut self, peer: PeerId, now: Instant) {
        let Some((address, mut attempt)) =
            self.peers.find(peer).and_then(|entry| Some((entry.address, entry.attempt?)))
        else {
            return;
        };
        let Ok(parsed) = UcxAddress::parse(&address) else { return };
        loop {
            let socket = match attempt.way {
                0 => connect_named(&parsed),
                way => match parsed.hosts.get(way - 1) {
                    Some(host) => stream::connect_tcp(SocketAddr::new(*host, parsed.port)),
                    None => {
                        let reason = match attempt.errno {
                            libc::EACCES => DownReason::Misbehaved { what: NO_PROOF },
                            errno => DownReason::of_failed_call(errno),
                        };
                        return self.break_with(peer, reason);
                    }
                },
            };
            let deadline = now + self.config.connect_timeout;
            let secret = with_jobs(&parsed.secret, self.job.as_ref());
            let connection = socket.and_then(|socket| {
                Connection::caller(socket, peer, attempt.way == 0, deadline, secret)
            });
            match connection {
                Ok(connection) => {
                    attempt.next_at = now + HOST_TIMEOUT;
                    self.save_attempt(peer, attempt);
                    return self.send_hello(peer, connection);
                }
                // The peer's backlog is full, or no descriptors are left: the next attempt may
                // succeed.
                Err(error) if is_passing(&error) => {
                    attempt.errno = error.raw_os_error().unwrap_or(0);
                    attempt.next_at = now + RETRY_DELAY;
                    return self.save_attempt(peer, attempt);
                }
                Err(error) => {
                    attempt.errno = error.raw_os_error().unwrap_or(0);
                    attempt.way += 1;
                }
            }
        }
    }

    fn save_attempt(&mut self, peer: PeerId, attempt: Attempt) {
        if let Some(entry) = self.peers.find_mut(peer) {
            entry.attempt = Some(attempt);
        }
    }

    /// Sends the hello packet to a peer, over a connection that may not be established yet.
    fn send_hello(&mut self, peer: PeerId, mut connection: Connection) {
        connection.say(Packet::Hello(Box::new(self.hello(peer))));
        let id = self.enter(connection);
        if let Some(entry) = self.peers.find_mut(peer) {
            entry.connection = id;
        }
    }

    /// This worker's hello packet for a peer.
    pub(super) fn hello(&self, peer: PeerId) -> Hello {
        Hello {
            address: self.address,
            used: self.carrier.used,
            source: self.carrier.source,
            own_source: self.carrier.own_source,
            number: if self.carrier.own_source.is_some() { 0 } else { peer.0.into() },
            worker: self.worker.address().to_vec(),
        }
    }

    /// Watches a connection; `None` if that can't be done.
    fn enter(&mut self, mut connection: Connection) -> Option<u32> {
        let id = self.connection_ids;
        self.connection_ids = self.connection_ids.wrapping_add(1);
        if !connection.is_local {
            // Without keep-alives, only the silence of the peer's machine is not noticed.
            let _ = stream::keep_alive(connection.socket(), self.config.keepalive);
        }
        self.listeners.epoll.watch(connection.socket(), id.into()).ok()?;
        if !connection.flush() {
            self.listeners.epoll.watch_room(connection.socket(), id.into(), true).ok()?;
        }
        self.connections.insert(id, connection);
        Some(id)
    }

    /// Accepts the connections that wait at a listener.
    fn accept(&mut self, place: usize, now: Instant) {
        for _ in 0..PENDING_MAX {
            let Some(listener) = self.listeners.listeners.get(place) else { return };
            if background_close::is_busy() {
                return self.listeners.mute(Some(now + MUTE_DELAY));
            }
            let socket = match socket::accept(listener.as_fd()) {
                Ok(socket) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) => continue,
                Err(_) => return self.listeners.mute(Some(now + MUTE_DELAY)),
            };
            // Nothing is received from a process of another user, and nothing is sent to it.
            if place == 0 && !is_own_user(socket.as_fd()) {
                drop(PeerSocket::new(socket));
                continue;
            }
            let deadline = now + self.config.connect_timeout;
            let secret = with_jobs(&self.own.secret, self.job.as_ref());
            let Ok(connection) = Connection::listener(socket, place == 0, deadline, secret) else {
                continue;
            };
            self.pending += 1;
            match self.enter(connection) {
                Some(id) => self.hear(id, now),
                None => self.pending -= 1,
            }
            if self.pending > PENDING_MAX {
                self.close_oldest_pending();
            }
        }
    }

    fn close_oldest_pending(&mut self) {
        let pending = self.connections.iter().filter(|(_, other)| other.owner.is_none());
        let first = pending.min_by_key(|(_, other)| other.deadline).map(|(id, _)| *id);
        if let Some(id) = first {
            self.hang_up(id);
        }
    }

    /// Ends a connection for all processes that have it open.
    pub(super) fn hang_up(&mut self, id: u32) {
        if let Some(connection) = self.connections.remove(&id) {
            self.pending -= usize::from(connection.owner.is_none());
            self.listeners.epoll.forget(connection.socket());
            drop(connection);
        }
    }

    /// Handles events of the handshake's sockets, and deadlines that have passed.
    pub(super) fn look(&mut self, now: Instant) {
        self.listeners.resume(now);
        let mut numbers = [0; tagmatch_os::event::BATCH];
        let count = self.listeners.epoll.ready(&mut numbers);
        for number in &numbers[..count] {
            match u32::try_from(*number) {
                Ok(id) => self.hear(id, now),
                Err(_) => {
                    self.accept(usize::try_from(u64::MAX - number).unwrap_or(usize::MAX), now);
                }
            }
        }
        for peer in self.peers.connecting.clone() {
            self.tend_attempt(peer, now);
        }
        if self.pending > 0 {
            let overdue = self
                .connections
                .iter()
                .filter(|(_, other)| other.owner.is_none() && other.deadline <= now);
            for id in overdue.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.hang_up(id);
            }
        }
    }

    fn tend_attempt(&mut self, peer: PeerId, now: Instant) {
        let entry = self.peers.find_mut(peer).expected("the device has numbered the peer");
        let Some(entry) = entry else { return };
        let connection = entry.connection;
        let Some(attempt) = &mut entry.attempt else { return };
        if attempt.deadline <= now {
            let errno = if attempt.errno == 0 { libc::ETIMEDOUT } else { attempt.errno };
            return self.break_with(peer, DownReason::of_failed_call(errno));
        }
        if attempt.next_at > now || attempt.is_crossed {
            return;
        }
        if let Some(id) = connection {
            // A peer on this machine exists, and only makes no progress; a host may not exist at
            // all.
            if attempt.way == 0 {
                return;
            }
            attempt.way += 1;
            attempt.errno = libc::ETIMEDOUT;
            entry.connection = None;
            self.hang_up(id);
        }
        self.try_ways(peer, now);
    }

    /// The connection of an attempt has ended before an answer came.
    pub(super) fn attempt_failed(&mut self, peer: PeerId, errno: i32, now: Instant) {
        let entry = self.peers.find_mut(peer).expected("the device has numbered the peer");
        let Some(entry) = entry else { return };
        entry.connection = None;
        let Some(attempt) = &mut entry.attempt else { return };
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

    /// Both sides have connected at once, and the peer's attempt counts.
    pub(super) fn attempt_crossed(&mut self, peer: PeerId) {
        let entry = self.peers.find_mut(peer).expected("the device has numbered the peer");
        let Some(entry) = entry else { return };
        entry.connection = None;
        if let Some(attempt) = &mut entry.attempt {
            attempt.is_crossed = true;
        }
    }

    /// The next deadline of the handshake.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let attempts = self.peers.connecting.iter().filter_map(|peer| {
            let attempt = self.peers.find(*peer)?.attempt?;
            Some(if attempt.is_crossed { attempt.deadline } else { attempt.next_at })
        });
        let pending = self.connections.values().filter(|other| other.owner.is_none());
        let pending = pending.map(|other| other.deadline);
        attempts.chain(pending).chain(self.listeners.muted_until).min()
    }

    /// Whether a handshake is under way.
    pub(super) fn has_handshakes(&self) -> bool {
        !self.peers.connecting.is_empty() || self.peers.unconfirmed > 0 || self.pending > 0
    }

    /// Whether a peer's hello was answered and its
    /// [`MatchingEvent::PeerUp`](tagmatch_device::matching::MatchingEvent) was not reported yet.
    #[inline]
    pub(super) fn is_up_unreported(&self, peer: PeerId) -> bool {
        self.peers.unconfirmed > 0
            && self.peers.find(peer).is_some_and(|peer| peer.state == PeerState::Unconfirmed)
    }
}

/// Connects to the device of this machine that has the name, if one of this user has it.
fn connect_named(to: &UcxAddress) -> io::Result<OwnedFd> {
    let socket = stream::connect_abstract(to.socket_name().as_bytes())?;
    // Any user can read the name, and can take it once the device is gone.
    if is_own_user(socket.as_fd()) {
        Ok(socket)
    } else {
        Err(io::Error::from_raw_os_error(libc::EACCES))
    }
}

/// Whether the process at the other end of a local socket belongs to this user. The kernel says so,
/// not the peer.
fn is_own_user(socket: BorrowedFd<'_>) -> bool {
    socket::credentials(socket).is_ok_and(|peer| process::is_own_user(peer.uid))
}

fn is_passing(error: &io::Error) -> bool {
    let passing = [libc::EAGAIN, libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|errno| passing.contains(&errno))
}
