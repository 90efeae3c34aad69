//! The listening side of the handshake: the listener and pending connections.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use tagmatch_device::{
    Address, DeviceError, DownReason, Event, InCall, OrBug, PeerId, Shortage, WaitingPeers,
};
use tagmatch_os::background_close;
use tagmatch_os::fails_for_now;
use tagmatch_os::peer_socket::Listener;
use tagmatch_os::socket::{self, Packet};

use super::establish::{Accepted, HelloKind, PairMemory, shortage_of, verify};
use super::local::LocalEnd;
use super::step::HandshakeStep;
use crate::packet::{HandshakePacket, Hello, HelloRefusal, PACKET_MAX};
use crate::peers::PeerState;
use crate::processes::OwnUsersSocket;
use crate::watcher::{Watched, Watcher};

/// How long the listener is not watched when a connection can't be accepted, for want of
/// descriptors for instance.
const MUTE_DELAY: Duration = Duration::from_millis(20);
/// Most pending connections. One more, and the oldest is closed.
const PENDING_MAX: usize = 64;
/// Most connections that are accepted at a time.
const ACCEPTS_MAX: usize = 64;

/// A process has connected to this worker, and its hello was not received yet.
struct PendingConnection {
    id: u32,
    socket: OwnUsersSocket,
    deadline: Instant,
}

/// The first packet on a connection.
struct FirstPacket<'a> {
    bytes: &'a [u8],
    packet: Packet,
}

/// Why a hello is not answered by a hello.
enum NoAnswer {
    /// The peer is refused.
    Refused(HelloRefusal),
    /// This process lacks something that a connection needs.
    Shortage(Shortage),
}

impl From<HelloRefusal> for NoAnswer {
    fn from(refusal: HelloRefusal) -> Self {
        NoAnswer::Refused(refusal)
    }
}

/// The listener with its pending connections.
pub(crate) struct Acceptor {
    listener: Listener,
    /// A descriptor that is closed when no other is left, so that the next connection can still be
    /// accepted: only its hello tells which peer this worker lacks descriptors for.
    spare: Option<OwnedFd>,
    /// When to watch the listener again.
    muted_until: Option<Instant>,
    pending: Vec<PendingConnection>,
    waiting: WaitingPeers,
    /// The beginning of the clock of `waiting`.
    began: Instant,
    next_id: u32,
}

impl Acceptor {
    /// Listens on the abstract socket that the worker's address names.
    pub(crate) fn new(local: &LocalEnd, watcher: &Watcher) -> Result<Self, DeviceError> {
        let listener = socket::listen(local.name.socket_name().as_bytes(), 4096)
            .map(Listener::new)
            .in_call("listen on an abstract socket")?;
        watcher.watch(listener.as_fd(), Watched::Listener).in_call("epoll_ctl")?;
        let spare = Some(socket::duplicate(listener.as_fd()).in_call("dup")?);
        Ok(Acceptor {
            listener,
            spare,
            muted_until: None,
            pending: Vec::new(),
            waiting: WaitingPeers::default(),
            began: Instant::now(),
            next_id: 0,
        })
    }

    /// Refuses further connections.
    pub(crate) fn shut_down(&self) {
        self.listener.shut_down();
    }

    /// Refuses further connections and closes pending ones.
    pub(crate) fn close(&mut self, watcher: &Watcher) {
        watcher.forget(self.listener.as_fd());
        self.shut_down();
        for pending in self.pending.drain(..) {
            watcher.forget(pending.socket.as_fd());
        }
    }

    /// Accepts the connections that wait in the listener's queue.
    pub(crate) fn accept(&mut self, step: &mut HandshakeStep<'_>) {
        self.accept_waiting(step);
        // The kernel asks for a descriptor before it looks whether a connection waits.
        self.restore_spare();
    }

    fn accept_waiting(&mut self, step: &mut HandshakeStep<'_>) {
        for _ in 0..ACCEPTS_MAX {
            // Another connection might have to be closed by a thread, and no thread is free.
            if background_close::is_busy() {
                return self.mute(step);
            }
            let socket = match socket::accept(self.listener.as_fd()) {
                Ok(socket) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The process that has connected is gone.
                Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if shortage_of(&error).is_some() && self.spare.take().is_some() => {
                    continue;
                }
                Err(_) => return self.mute(step),
            };
            // The user is checked before anything is received.
            let Ok(socket) = OwnUsersSocket::new(socket) else { continue };
            // In most cases the hello is there already.
            let mut bytes = [0; PACKET_MAX];
            match socket::receive(socket.as_fd(), &mut bytes) {
                Err(error) if fails_for_now(&error) => {}
                Err(_) => continue,
                Ok(packet) => {
                    self.answer(step, socket, FirstPacket { bytes: &bytes, packet });
                    continue;
                }
            }
            if self.pending.len() >= PENDING_MAX {
                let oldest = self.pending.remove(0);
                step.connections.watcher.forget(oldest.socket.as_fd());
            }
            let id = self.next_id;
            self.next_id = self.next_id.wrapping_add(1);
            if step.connections.watcher.watch(socket.as_fd(), Watched::Pending(id)).is_err() {
                return self.mute(step);
            }
            let deadline = step.now + step.local.config.connect_timeout;
            self.pending.push(PendingConnection { id, socket, deadline });
            step.connections.needs_attention = true;
        }
    }

    fn restore_spare(&mut self) {
        if self.spare.is_none() {
            self.spare = socket::duplicate(self.listener.as_fd()).ok();
        }
    }

    fn mute(&mut self, step: &HandshakeStep<'_>) {
        step.connections.watcher.mute(self.listener.as_fd(), Watched::Listener, true);
        self.muted_until = Some(step.now + MUTE_DELAY);
    }

    /// The socket of a pending connection is readable: its hello, or the end.
    pub(crate) fn receive_hello(&mut self, step: &mut HandshakeStep<'_>, id: u32) {
        let Some(at) = self.pending.iter().position(|pending| pending.id == id) else { return };
        let mut bytes = [0; PACKET_MAX];
        let packet = match socket::receive(self.pending[at].socket.as_fd(), &mut bytes) {
            Err(error) if fails_for_now(&error) => return,
            Err(_) => None,
            Ok(packet) => Some(packet),
        };
        let PendingConnection { socket, .. } = self.pending.remove(at);
        step.connections.watcher.forget(socket.as_fd());
        if let Some(packet) = packet {
            self.answer(step, socket, FirstPacket { bytes: &bytes, packet });
        }
    }

    /// Accepts the hello that is the first packet on a connection, or refuses it. A connection on
    /// which anything else was sent is closed without an answer.
    fn answer(&mut self, step: &mut HandshakeStep<'_>, socket: OwnUsersSocket, first: FirstPacket) {
        let FirstPacket { bytes, packet } = first;
        if packet.truncated {
            return;
        }
        let Ok(HandshakePacket::Hello(hello)) = HandshakePacket::parse(&bytes[..packet.length])
        else {
            return;
        };
        let refusal = match step.try_answer(&socket, &hello, packet) {
            Ok((peer, accepted)) => {
                self.waiting.forget(&hello.address);
                return step.establish(peer, socket.socket, accepted);
            }
            Err(NoAnswer::Refused(refusal)) => refusal,
            Err(NoAnswer::Shortage(shortage)) => {
                let now = step.now.duration_since(self.began);
                let limit = step.local.config.connect_timeout;
                if self.waiting.note(hello.address, now, limit) {
                    step.report(hello.address, shortage);
                    if shortage == Shortage::Descriptors {
                        HelloRefusal::Lacking
                    } else {
                        HelloRefusal::Full
                    }
                } else {
                    HelloRefusal::Busy
                }
            }
        };
        // If it can't be sent, the peer sees that the socket was closed.
        let _ = socket::send(socket.as_fd(), &refusal.emit(), &[]);
    }

    /// Watches the listener again when it is time, and closes pending connections whose time is
    /// over.
    pub(crate) fn keep_time(&mut self, watcher: &Watcher, now: Instant) {
        if let Some(until) = self.muted_until
            && now >= until
        {
            watcher.mute(self.listener.as_fd(), Watched::Listener, false);
            self.muted_until = None;
            self.restore_spare();
        }
        self.pending.retain(|pending| {
            let stays = now < pending.deadline;
            if !stays {
                watcher.forget(pending.socket.as_fd());
            }
            stays
        });
    }

    /// When [`Acceptor::keep_time`] has something to do next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.pending.iter().map(|pending| pending.deadline).chain(self.muted_until).min()
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}

impl HandshakeStep<'_> {
    /// Reports a peer that this worker could not accept for want of something.
    fn report(&mut self, address: Address, shortage: Shortage) {
        let connections = &mut *self.connections;
        let reason = DownReason::Shortage(shortage);
        match connections.peers.find(&address) {
            Some(peer) => connections.finish(peer, reason),
            None => {
                if let Ok(peer) = connections.peers.add(address, PeerState::Down) {
                    connections.events.push_back(Event::PeerDown { peer, reason });
                    connections.needs_attention = true;
                }
            }
        }
    }

    /// Checks a first hello, and answers with a hello.
    fn try_answer(
        &mut self,
        socket: &OwnUsersSocket,
        hello: &Hello,
        packet: Packet,
    ) -> Result<(PeerId, Accepted), NoAnswer> {
        let HandshakeStep { local, connections, .. } = self;
        let known = connections.peers.find(&hello.address);
        match known.and_then(|peer| connections.peers.state(peer)) {
            Some(PeerState::Connecting(connecting))
                if connecting.attempt.is_some() && local.address < hello.address =>
            {
                return Err(HelloRefusal::Crossed.into());
            }
            None | Some(PeerState::Connecting(_)) => {}
            // Includes the address of this worker itself.
            Some(_) => return Err(HelloRefusal::Known.into()),
        }
        let kind = HelloKind::First { room: local.room(&connections.inboxes) };
        let (mut verified, memory) =
            verify(local, socket, hello, packet, kind).map_err(|rejection| {
                match rejection.reason {
                    DownReason::Shortage(shortage) => NoAnswer::Shortage(shortage),
                    _ => rejection.answer.into(),
                }
            })?;
        let memory =
            memory.or_bug("a first hello brings memory").map_err(|_| HelloRefusal::Invalid)?;
        let pair = PairMemory { memory, room: hello.geometry, is_own: false };
        // This worker's own attempt is withdrawn only now that the peer's hello is known to be
        // good.
        if let Some(peer) = known
            && let Some(connecting) = connections.peers.connecting_mut(peer)
            && let Some(attempt) = connecting.attempt.take()
        {
            connections.withdraw(attempt);
        }
        if connections.inboxes.free_count() == 0 || connections.peers.is_full() {
            return Err(HelloRefusal::Full.into());
        }
        // A peer that this worker wants to reach is not counted.
        verified.counted_for = verified.counted_for.filter(|_| known.is_none());
        if verified.counted_for.is_some_and(|process| !connections.quota.has_room(&process)) {
            return Err(HelloRefusal::Full.into());
        }
        let used = verified.geometry;
        let offer = local.answer(&mut connections.inboxes, socket, used).map_err(|error| {
            shortage_of(&error).map_or(HelloRefusal::Busy.into(), NoAnswer::Shortage)
        })?;
        if let Some(process) = verified.counted_for {
            connections.quota.add(process);
        }
        let peer = match known {
            Some(peer) => peer,
            None => {
                let added = connections.peers.add(hello.address, PeerState::Down);
                added.map_err(|_| HelloRefusal::Full)?
            }
        };
        Ok((peer, Accepted { offer, pair, hello: verified }))
    }
}
