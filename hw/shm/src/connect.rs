//! The handshake: from an address, or a stranger's greeting, to a connection.
//!
//! Nothing here waits. A socket is connected at once or tried again later; greetings are read when
//! the kernel says that they are there.
//!
//! Both sides may begin at once. The connection that the smaller address began counts: its worker
//! refuses the other's greeting as `Crossed`, the other takes the greeting and withdraws its own.
//! No message is sent before that is settled, so none can be lost. Since a worker that has taken a
//! greeting begins nothing of its own, no connection is ever taken and withdrawn.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::bell::{self, Bell};
use super::copied::Copied;
use super::guests::Guest;
use super::hello::{Greeting, Hello, PACKET_MAX, Refusal};
use super::lane::{Asked, Connecting, Lane, Link, Offer, Process, Stage};
use super::name::ShmName;
use super::progress::Queued;
use super::ring::{Consumer, Producer, Ring};
use super::{PEERS_EVER_MAX, ReadPolicy, Shm, Watched};
use tagmatch_device::{Address, DeviceError, DownReason, Limits, PeerId, ReadMode};
use tagmatch_os::background_close::{self, UncheckedDescriptors as Unchecked};
use tagmatch_os::memory::SealedMemory;
use tagmatch_os::peer_socket::PeerSocket;
use tagmatch_os::{process, socket};

/// Time until the next attempt, after one that may succeed later.
const RETRY_DELAY: Duration = Duration::from_millis(1);
/// How long the listener is left alone when it can't be served, for want of descriptors say.
const MUTE_DELAY: Duration = Duration::from_millis(20);
/// Strangers who have connected and not said who they are. One more, and the first is sent away.
const STRANGERS_MAX: usize = 64;
/// Strangers taken in one go.
const ACCEPTS_MAX: usize = 64;

/// Someone who has connected to us and has not been heard yet.
pub(crate) struct Stranger {
    id: u32,
    socket: PeerSocket,
    deadline: Instant,
}

/// Why a greeting was not taken: what to tell the peer, and what to report of it.
struct Rejection {
    tell: Refusal,
    reason: DownReason,
}

impl Rejection {
    fn misbehaved(what: &'static str) -> Self {
        Rejection { tell: Refusal::Invalid, reason: DownReason::Misbehaved { what } }
    }

    fn unreachable(errno: i32) -> Self {
        Rejection { tell: Refusal::Busy, reason: DownReason::Unreachable { errno } }
    }
}

impl Shm {
    /// See [`Device::connect`](tagmatch_device::Device::connect).
    pub(crate) fn start_connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        if let Some(peer) = self.by_address.get(address) {
            return Ok(*peer);
        }
        ShmName::parse(address)?.check_reachable(&self.name)?;
        let now = Instant::now();
        let stage = Stage::Connecting(Box::new(Connecting {
            deadline: now + self.config.connect_timeout,
            retry_at: now,
            errno: 0,
            asked: None,
            crossed: false,
        }));
        if self.inboxes.free_count() == 0 {
            return Err(DeviceError::Exhausted {
                what: "peer",
                limit: self.config.peers_max as usize,
            });
        }
        let peer = self.add_lane(*address, stage)?;
        self.connecting.push(peer);
        self.needs_attention = true;
        self.ask(peer, now);
        Ok(peer)
    }

    /// Sends our greeting to a peer, or finds out that it can't be reached.
    fn ask(&mut self, peer: PeerId, now: Instant) {
        let address = self.lanes[peer.index()].address;
        let errno = match self.try_ask(peer, &address) {
            Ok(asked) => {
                if let Stage::Connecting(connecting) = &mut self.lanes[peer.index()].stage {
                    connecting.asked = Some(asked);
                }
                return;
            }
            Err(error) => error.raw_os_error().unwrap_or(0),
        };
        if errno == libc::ECONNREFUSED || errno == libc::EPERM {
            self.finish(peer, DownReason::Unreachable { errno });
        } else if let Stage::Connecting(connecting) = &mut self.lanes[peer.index()].stage {
            // A full queue (EAGAIN), no descriptors left and the like: that may change.
            connecting.errno = errno;
            connecting.retry_at = now + RETRY_DELAY;
        }
    }

    fn try_ask(&mut self, peer: PeerId, address: &Address) -> io::Result<Asked> {
        let name = ShmName::parse(address).map_err(|_| io::ErrorKind::InvalidInput)?;
        let socket = PeerSocket::new(socket::connect(name.socket_name().as_bytes())?);
        // The greeting lets the listener write to the memory of this worker.
        check_user(&socket)?;
        let offer = self.offer()?;
        let sent = self
            .epoll
            .watch(socket.as_fd(), Watched::Socket(peer).number())
            .and_then(|()| self.greet(socket.as_fd(), &offer));
        match sent {
            Ok(()) => Ok(Asked { socket, offer }),
            Err(error) => {
                self.withdraw_offer(Asked { socket, offer });
                // A listener that goes away with us in its queue.
                let is_gone = matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET));
                let again = io::Error::from_raw_os_error(libc::EAGAIN);
                Err(if is_gone { again } else { error })
            }
        }
    }

    /// Makes a ring for a peer to write to.
    fn offer(&mut self) -> io::Result<Offer> {
        let memory = SealedMemory::new(c"tagmatch-ring", self.geometry.length_bytes())?;
        let ring = Ring::new(memory.map()?, self.geometry).ok_or(io::ErrorKind::InvalidData)?;
        let bit = self.inboxes.reserve().ok_or(io::ErrorKind::OutOfMemory)?;
        let ring = Arc::new(ring);
        Ok(Offer { memory, ring, bit })
    }

    /// Makes a ring for a peer and greets the peer with it.
    fn offer_on(&mut self, socket: BorrowedFd<'_>) -> io::Result<Offer> {
        let offer = self.offer()?;
        let sent = self.greet(socket, &offer);
        sent.inspect_err(|_| self.inboxes.release(offer.bit)).map(|()| offer)
    }

    fn greet(&self, socket: BorrowedFd<'_>, offer: &Offer) -> io::Result<()> {
        let hello = Hello {
            address: self.address,
            message_max: self.config.message_max,
            geometry: self.geometry,
            bell_bit: offer.bit,
            hears_barriers: self.hears_barriers,
            makes_barriers: self.makes_barriers,
            nonce_address: (&raw const *self.nonce).expose_provenance() as u64,
            nonce: *self.nonce,
        };
        let fds = [offer.memory.as_fd(), self.bell_memory.as_fd()];
        socket::send(socket, &hello.emit(), &fds)
    }

    /// Takes a greeting of ours back: its socket and its ring.
    pub(crate) fn withdraw_offer(&mut self, asked: Asked) {
        self.epoll.forget(asked.socket.as_fd());
        self.inboxes.release(asked.offer.bit);
    }

    /// The socket on which we have sent our greeting is readable.
    pub(crate) fn hear_answer(&mut self, peer: PeerId, now: Instant) {
        let Some(Lane { address, stage: Stage::Connecting(connecting) }) =
            self.lanes.get_mut(peer.index())
        else {
            return;
        };
        let Some(asked) = &connecting.asked else {
            return;
        };
        let address = *address;
        let mut bytes = [0; PACKET_MAX];
        let packet = match socket::receive(asked.socket.as_fd(), &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => None,
            Ok(packet) => (packet.length > 0).then_some(packet),
        };
        let Some(asked) = connecting.asked.take() else {
            return;
        };
        let Some(packet) = packet else {
            // It hung up without a word: was busy, or closed. The next attempt will tell.
            connecting.retry_at = now + RETRY_DELAY;
            return self.withdraw_offer(asked);
        };
        let greeting = if packet.truncated {
            Err("a greeting that is too long")
        } else {
            Greeting::parse(&bytes[..packet.length])
        };
        let rejection = match greeting {
            Ok(Greeting::Hello(hello)) if hello.address == address => {
                match self.check(&asked.socket, &hello, packet.fds) {
                    Ok(checked) => {
                        let checked = Checked { guest: None, ..checked };
                        return self.complete(peer, asked, &hello, checked);
                    }
                    Err(rejection) => rejection.reason,
                }
            }
            Ok(Greeting::Hello(_)) => {
                DownReason::Misbehaved { what: "a greeting with the address of another" }
            }
            Ok(Greeting::Refusal(refusal @ (Refusal::Crossed | Refusal::Busy))) => {
                connecting.retry_at = now + RETRY_DELAY;
                connecting.crossed = refusal == Refusal::Crossed;
                return self.withdraw_offer(asked);
            }
            Ok(Greeting::Refusal(refusal)) => DownReason::Unreachable {
                errno: match refusal {
                    Refusal::Full => libc::EUSERS,
                    Refusal::Known => libc::ECONNRESET,
                    _ => libc::EPROTO,
                },
            },
            Err(what) => DownReason::Misbehaved { what },
        };
        self.withdraw_offer(asked);
        self.finish(peer, rejection);
    }

    /// Lets in those who wait at the listener.
    pub(crate) fn accept_strangers(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_MAX {
            // Another connection might have to be closed by a thread, and there can be no more of them.
            if background_close::is_busy() {
                return self.mute_listener(now);
            }
            let socket = match socket::accept(self.listener.as_fd()) {
                Ok(socket) => PeerSocket::new(socket),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The one who waited has gone.
                Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return self.mute_listener(now),
            };
            // Nothing that a process of another user has sent is received.
            if check_user(&socket).is_err() {
                continue;
            }
            if self.strangers.len() >= STRANGERS_MAX {
                let first = self.strangers.remove(0);
                self.epoll.forget(first.socket.as_fd());
            }
            let id = self.stranger_ids;
            self.stranger_ids = self.stranger_ids.wrapping_add(1);
            let number = Watched::Stranger(id).number();
            if self.epoll.watch(socket.as_fd(), number).is_err() {
                return self.mute_listener(now);
            }
            let deadline = now + self.config.connect_timeout;
            self.strangers.push(Stranger { id, socket, deadline });
            self.needs_attention = true;
            // Its greeting is mostly there already.
            self.hear_stranger(id);
        }
    }

    /// Whoever has connected and has not been heard is not heard any more.
    pub(crate) fn send_strangers_away(&mut self) {
        for stranger in self.strangers.drain(..) {
            self.epoll.forget(stranger.socket.as_fd());
        }
    }

    fn mute_listener(&mut self, now: Instant) {
        let number = Watched::Listener.number();
        let _ = self.epoll.mute(self.listener.as_fd(), number, true);
        self.listener_muted_until = Some(now + MUTE_DELAY);
    }

    /// A stranger has said something, or hung up.
    pub(crate) fn hear_stranger(&mut self, id: u32) {
        let Some(at) = self.strangers.iter().position(|stranger| stranger.id == id) else {
            return;
        };
        let mut bytes = [0; PACKET_MAX];
        let packet = match socket::receive(self.strangers[at].socket.as_fd(), &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => None,
            Ok(packet) => Some(packet),
        };
        let stranger = self.strangers.remove(at);
        self.epoll.forget(stranger.socket.as_fd());
        let Some(packet) = packet else {
            return;
        };
        // Whoever breaks the rules is hung up on without a word.
        if !packet.truncated
            && let Ok(Greeting::Hello(hello)) = Greeting::parse(&bytes[..packet.length])
        {
            self.welcome(stranger.socket, &hello, packet.fds);
        }
    }

    /// Takes a stranger's greeting, or refuses it.
    fn welcome(&mut self, socket: PeerSocket, hello: &Hello, fds: Unchecked) {
        match self.try_welcome(&socket, hello, fds) {
            Ok((peer, offer, checked)) => {
                self.complete(peer, Asked { socket, offer }, hello, checked);
            }
            Err(refusal) => {
                // If it can't be sent, closing the socket says as much.
                let _ = socket::send(socket.as_fd(), &refusal.emit(), &[]);
            }
        }
    }

    fn try_welcome(
        &mut self,
        socket: &PeerSocket,
        hello: &Hello,
        fds: Unchecked,
    ) -> Result<(PeerId, Offer, Checked), Refusal> {
        let known = self.by_address.get(&hello.address).copied();
        if let Some(peer) = known {
            match &self.lanes[peer.index()].stage {
                Stage::Connecting(connecting) => {
                    if connecting.asked.is_some() && self.address < hello.address {
                        return Err(Refusal::Crossed);
                    }
                }
                // Oneself included.
                _ => return Err(Refusal::Known),
            }
        }
        let mut checked = self.check(socket, hello, fds).map_err(|rejection| rejection.tell)?;
        // Ours is withdrawn only now that the other's is known to be good.
        if let Some(peer) = known
            && let Stage::Connecting(connecting) = &mut self.lanes[peer.index()].stage
            && let Some(asked) = connecting.asked.take()
        {
            self.withdraw_offer(asked);
        }
        if self.inboxes.free_count() == 0 || self.lanes.len() >= PEERS_EVER_MAX {
            return Err(Refusal::Full);
        }
        // A peer that we wanted to reach anyway is no guest.
        checked.guest = checked.guest.filter(|_| known.is_none());
        if let Some(guest) = checked.guest
            && !self.guests.enter(guest)
        {
            return Err(Refusal::Full);
        }
        let offer = match self.offer_on(socket.as_fd()) {
            Ok(offer) => offer,
            Err(_) => {
                checked.guest.into_iter().for_each(|guest| self.guests.leave(guest));
                return Err(Refusal::Busy);
            }
        };
        let peer = match known {
            Some(peer) => peer,
            None => {
                let added = self.add_lane(hello.address, Stage::Down);
                added.map_err(|_| Refusal::Full)?
            }
        };
        Ok((peer, offer, checked))
    }

    /// Checks everything that a greeting claims and carries.
    fn check(
        &self,
        socket: &PeerSocket,
        hello: &Hello,
        fds: Unchecked,
    ) -> Result<Checked, Rejection> {
        let misbehaved = Rejection::misbehaved;
        let name = ShmName::parse(&hello.address)
            .map_err(|_| misbehaved("a greeting with an unusable address"))?;
        let system = |error: io::Error| Rejection::unreachable(error.raw_os_error().unwrap_or(0));
        let credentials = socket::credentials(socket.as_fd()).map_err(system)?;
        if !name.is_process(&self.name, credentials.pid) {
            return Err(misbehaved("a process that claims the address of another"));
        }
        let lengths = [hello.geometry.length_bytes(), bell::LENGTH_BYTES];
        let [ring, bell] = SealedMemory::from_peer(fds, lengths).map_err(misbehaved)?;
        let ring = Ring::new(ring.map().map_err(system)?, hello.geometry);
        let bell = Bell::new(bell.map().map_err(system)?);
        let (Some(ring), Some(bell)) = (ring, bell) else {
            return Err(Rejection::unreachable(libc::EINVAL));
        };
        let pid = credentials.pid;
        let pidfd = socket::peer_pidfd(socket.as_fd(), credentials).ok();
        let process = pidfd.map(|pidfd| Process { pid, pidfd });
        let guest = Guest::of(pid, process.as_ref());
        let read_mode = self.choose_read_mode(hello, process.as_ref());
        if self.config.read == ReadPolicy::Direct && read_mode != ReadMode::Direct {
            return Err(Rejection {
                tell: Refusal::Invalid,
                reason: DownReason::Unreachable { errno: libc::EACCES },
            });
        }
        Ok(Checked { ring: Arc::new(ring), bell: Arc::new(bell), process, guest, read_mode })
    }

    /// Direct reads if the peer's nonce can be read where it says that it is.
    fn choose_read_mode(&self, hello: &Hello, process: Option<&Process>) -> ReadMode {
        let process = process.filter(|process| process.pid.0 > 0);
        let (true, Some(process)) = (self.config.read != ReadPolicy::Copied, process) else {
            return ReadMode::Copied;
        };
        let mut nonce = [0; 16];
        let read = process::read_memory(process.pid, hello.nonce_address, &mut nonce);
        let is_right = matches!(read, Ok(16)) && nonce == hello.nonce.0;
        if is_right && !process.has_ended() { ReadMode::Direct } else { ReadMode::Copied }
    }

    /// Both greetings are exchanged and good: the connection stands.
    fn complete(&mut self, peer: PeerId, asked: Asked, hello: &Hello, checked: Checked) {
        let Asked { socket, offer } = asked;
        socket.refuse_descriptors();
        self.connecting.retain(|other| *other != peer);
        let number = Watched::Socket(peer).number();
        // One that we have connected is watched already, and that is fine.
        let _ = self.epoll.watch(socket.as_fd(), number);
        if let Some(process) = &checked.process {
            let number = Watched::Process(peer).number();
            let _ = self.epoll.watch(process.pidfd.as_fd(), number);
        }
        let consumer = Consumer::new(offer.ring, self.config.message_max);
        self.inboxes.insert(offer.bit, consumer, peer);
        let link = Link {
            producer: Producer::new(checked.ring),
            message_max: hello.message_max,
            is_fenced: !(self.hears_barriers && hello.makes_barriers),
            bell: checked.bell,
            bell_bit: hello.bell_bit,
            inbox: offer.bit,
            socket: Some(socket),
            eventfd: None,
            process: checked.process,
            guest: checked.guest,
            read_mode: checked.read_mode,
            copied: Copied::default(),
        };
        self.lanes[peer.index()].stage = Stage::Up(Box::new(link));
        let message_max = hello.message_max as usize;
        self.events.push_back(Queued::Up(peer, Limits { message_max }));
        self.needs_attention = true;
    }

    /// Gives up on those whose time is over, and tries again where that may help.
    pub(crate) fn keep_time(&mut self, now: Instant) {
        if let Some(until) = self.listener_muted_until
            && now >= until
        {
            let number = Watched::Listener.number();
            let _ = self.epoll.mute(self.listener.as_fd(), number, false);
            self.listener_muted_until = None;
        }
        let epoll = &self.epoll;
        self.strangers.retain(|stranger| {
            let stays = now < stranger.deadline;
            if !stays {
                epoll.forget(stranger.socket.as_fd());
            }
            stays
        });
        let mut at = 0;
        self.is_asking = false;
        while let Some(peer) = self.connecting.get(at).copied() {
            at += 1;
            let Stage::Connecting(connecting) = &self.lanes[peer.index()].stage else {
                continue;
            };
            self.is_asking |= connecting.asked.is_none();
            // A greeting that waits to be heard has no deadline: the other process is there, and may
            // not look for minutes. Its end closes the socket.
            if now >= connecting.deadline && connecting.asked.is_none() {
                let errno = match connecting.errno {
                    0 => libc::ETIMEDOUT,
                    errno => errno,
                };
                self.finish(peer, DownReason::Unreachable { errno });
                at -= 1;
            } else if connecting.asked.is_none()
                && !connecting.crossed
                && now >= connecting.retry_at
            {
                let before = self.connecting.len();
                self.ask(peer, now);
                at -= before - self.connecting.len();
            }
        }
    }

    /// When [`Shm::keep_time`] has something to do next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let strangers = self.strangers.iter().map(|stranger| stranger.deadline);
        let connecting = self.connecting.iter().filter_map(|peer| {
            let Stage::Connecting(connecting) = &self.lanes.get(peer.index())?.stage else {
                return None;
            };
            match &**connecting {
                Connecting { asked: Some(_), .. } => None,
                Connecting { crossed: true, .. } => Some(connecting.deadline),
                _ => Some(connecting.retry_at.min(connecting.deadline)),
            }
        });
        strangers.chain(connecting).chain(self.listener_muted_until).min()
    }
}

/// `EPERM` if the process at the other end is of another user.
fn check_user(socket: &PeerSocket) -> io::Result<()> {
    let uid = socket::credentials(socket.as_fd())?.uid;
    if process::is_own_user(uid) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

/// What a good greeting has brought.
struct Checked {
    ring: Arc<Ring>,
    bell: Arc<Bell>,
    process: Option<Process>,
    /// The process, if this is a connection that it has made to us.
    guest: Option<Guest>,
    read_mode: ReadMode,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ShmConfig;
    use tagmatch_device::{Device, Event};

    #[test]
    fn a_pending_connection_that_says_nothing_leaves_polls_short() {
        let mut shm = Shm::new(ShmConfig::default()).unwrap();
        assert!(matches!(shm.poll(), Some(Event::PeerUp { .. })));
        let silent = socket::connect(shm.name.socket_name().as_bytes()).unwrap();
        let start = Instant::now();
        while shm.strangers.is_empty() {
            assert!(shm.poll().is_none() && start.elapsed() < Duration::from_secs(20));
        }
        assert!(shm.poll().is_none());
        assert!(!shm.needs_attention);
        // Nor does one that we have begun, until it is answered.
        let mut busy = Shm::new(ShmConfig::default()).unwrap();
        let peer = shm.connect(&busy.address()).unwrap();
        for _ in 0..100_000 {
            assert!(shm.poll().is_none());
        }
        assert!(!shm.needs_attention && !shm.connecting.is_empty());
        while !matches!(shm.poll(), Some(Event::PeerUp { peer: up, .. }) if up == peer) {
            busy.poll();
            assert!(start.elapsed() < Duration::from_secs(20));
        }
        drop(silent);
        while !shm.strangers.is_empty() {
            assert!(shm.poll().is_none() && start.elapsed() < Duration::from_secs(20));
        }
    }
}
