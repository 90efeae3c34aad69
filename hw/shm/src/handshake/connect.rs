//! The connecting side of the handshake: attempts to connect, their answers, and when to try again.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use tagmatch_device::{Address, DeviceError, DownReason, PeerId, Shortage};
use tagmatch_os::{fails_for_now, process, socket};

use super::establish::{Accepted, HelloKind, PairMemory, Rejection, shortage_of, verify};
use super::local::LocalEnd;
use super::step::HandshakeStep;
use crate::name::ShmName;
use crate::packet::{HandshakePacket, HelloRefusal, PACKET_MAX};
use crate::peers::{ConnectingPeer, HelloAttempt, PeerState, Peers};
use crate::processes::OwnUsersSocket;
use crate::watcher::Watched;

/// Time until the next attempt, after one that may succeed later.
const RETRY_DELAY: Duration = Duration::from_millis(1);
/// Most young attempts that are under way at a time, so that a worker which connects to all others
/// of a machine needs few descriptors.
const YOUNG_MAX: usize = 4;
/// Where processors are few, an answer takes longer than this. Older attempts are counted apart.
const YOUNG: Duration = Duration::from_millis(10);
/// One of so many descriptors that the process may have is for an attempt that isn't old.
const DESCRIPTORS_OF_AN_ATTEMPT: u64 = 16;
/// Old attempts don't count: peers that don't poll keep nobody from connecting to others.
const OLD: Duration = Duration::from_secs(1);
/// Time until the next look whether another attempt may begin.
const QUEUE_DELAY: Duration = Duration::from_micros(100);
/// Time until the next try at what this process, or the peer's, lacks descriptors or memory for.
const SHORTAGE_DELAY: Duration = Duration::from_millis(5);

impl HandshakeStep<'_> {
    /// See [`Device::connect`](tagmatch_device::Device::connect).
    pub(crate) fn start(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        let HandshakeStep { local, connections, now } = self;
        let now = *now;
        if let Some(peer) = connections.peers.find(address) {
            return Ok(peer);
        }
        local.check_route(address)?;
        let state = PeerState::Connecting(Box::new(ConnectingPeer {
            deadline: now + local.config.connect_timeout,
            retry_at: now,
            errno: 0,
            shortage: None,
            attempt: None,
            answer_at: None,
            crossed: false,
        }));
        if connections.inboxes.free_count() == 0 {
            let limit = local.config.peers_max as usize;
            return Err(DeviceError::Exhausted { what: "peer", limit });
        }
        let limit = process::descriptor_limit();
        let may_begin = attempts_to_begin(&connections.peers, limit, now) > 0;
        let peer = connections.peers.add(*address, state)?;
        connections.needs_attention = true;
        if may_begin {
            self.attempt(peer, *address);
        }
        Ok(peer)
    }

    /// Sends a hello to a peer, or finds out that the peer can't be reached.
    fn attempt(&mut self, peer: PeerId, address: Address) {
        let result = self.try_attempt(peer, &address);
        let HandshakeStep { connections, now, .. } = self;
        let Some(connecting) = connections.peers.connecting_mut(peer) else { return };
        connecting.shortage = result.as_ref().err().and_then(shortage_of);
        match result.map_err(|error| error.raw_os_error().unwrap_or(0)) {
            Ok(attempt) => connecting.attempt = Some(attempt),
            Err(errno @ (libc::ECONNREFUSED | libc::EPERM)) => {
                connections.finish(peer, DownReason::Unreachable { errno });
            }
            Err(errno) => {
                // Such as a full queue (EAGAIN), or a shortage of this process: that may change.
                connecting.errno = errno;
                connecting.retry_at = *now + RETRY_DELAY;
            }
        }
    }

    fn try_attempt(&mut self, peer: PeerId, address: &Address) -> io::Result<HelloAttempt> {
        let HandshakeStep { local, connections, now } = self;
        let name = ShmName::parse(address).map_err(|_| io::ErrorKind::InvalidInput)?;
        // The user is checked first, since the hello lets the listener write to this worker's
        // memory.
        let socket = OwnUsersSocket::new(socket::connect(name.socket_name().as_bytes())?)?;
        let room = local.room(&connections.inboxes);
        let pair = LocalEnd::pair_memory(room)?;
        let memory = pair.map()?;
        let offer = local.offer(&mut connections.inboxes)?;
        let sent = connections
            .watcher
            .watch(socket.as_fd(), Watched::Socket(peer))
            .and_then(|()| local.send_hello(socket.as_fd(), &offer, Some(&pair), room));
        let attempt = HelloAttempt { begun: *now, socket, memory, room, offer };
        match sent {
            Ok(()) => Ok(attempt),
            Err(error) => {
                connections.withdraw(attempt);
                // The listener was closed with this connection in its queue.
                let is_gone = matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET));
                let again = io::Error::from_raw_os_error(libc::EAGAIN);
                Err(if is_gone { again } else { error })
            }
        }
    }

    /// The socket on which a hello was sent is readable: the peer's answer, or the end.
    pub(crate) fn receive_answer(&mut self, peer: PeerId) {
        let HandshakeStep { local, connections, now } = self;
        let now = *now;
        let Some((address, connecting)) = connections.peers.attempt_mut(peer) else { return };
        let Some(attempt) = &connecting.attempt else { return };
        let mut bytes = [0; PACKET_MAX];
        // The answer stays in the socket until it is accepted, since this process may lack what
        // that takes. The peer counts the connection as made.
        let packet = match socket::peek(attempt.socket.as_fd(), &mut bytes) {
            Err(error) if fails_for_now(&error) => return,
            Err(_) => None,
            Ok(packet) => (packet.length > 0).then_some(packet),
        };
        let was_postponed = connecting.answer_at.take().is_some();
        let Some(attempt) = connecting.attempt.take() else { return };
        let Some(packet) = packet else {
            // The peer closed the socket without an answer: it was busy, or is closed. The next
            // attempt will tell.
            connecting.retry_at = now + RETRY_DELAY;
            return connections.withdraw(attempt);
        };
        let answer = if packet.truncated {
            Err("a handshake packet is too long")
        } else {
            HandshakePacket::parse(&bytes[..packet.length])
        };
        let reason = match answer {
            Ok(HandshakePacket::Hello(hello)) if hello.address == address => {
                let kind = HelloKind::Answer { room: attempt.room };
                match verify(local, &attempt.socket, &hello, packet, kind) {
                    Ok((mut hello, _)) => {
                        hello.counted_for = None;
                        if was_postponed {
                            let socket = attempt.socket.as_fd();
                            connections.watcher.mute(socket, Watched::Socket(peer), false);
                        }
                        socket::take(attempt.socket.as_fd());
                        let HelloAttempt { socket, memory, room, offer, .. } = attempt;
                        let pair = PairMemory { memory, room, is_own: true };
                        return self.establish(
                            peer,
                            socket.socket,
                            Accepted { offer, pair, hello },
                        );
                    }
                    Err(Rejection { reason: DownReason::Shortage(shortage), .. }) => {
                        return self.postpone(peer, attempt, shortage);
                    }
                    Err(rejection) => rejection.reason,
                }
            }
            Ok(HandshakePacket::Hello(_)) => {
                DownReason::Misbehaved { what: "a hello with the address of another worker" }
            }
            Ok(HandshakePacket::Refusal(
                refusal @ (HelloRefusal::Crossed | HelloRefusal::Busy),
            )) => {
                // A busy peer lives, and says when it gives up.
                connecting.retry_at = now + SHORTAGE_DELAY;
                connecting.deadline = now + local.config.connect_timeout;
                connecting.crossed = refusal == HelloRefusal::Crossed;
                return connections.withdraw(attempt);
            }
            Ok(HandshakePacket::Refusal(refusal)) => DownReason::Unreachable {
                errno: match refusal {
                    HelloRefusal::Full => libc::EUSERS,
                    HelloRefusal::Lacking => libc::EMFILE,
                    HelloRefusal::Known => libc::ECONNRESET,
                    _ => libc::EPROTO,
                },
            },
            Err(what) => DownReason::Misbehaved { what },
        };
        connections.withdraw(attempt);
        connections.finish(peer, reason);
    }

    /// Leaves an answer in the socket until this process has what it takes to accept the answer.
    fn postpone(&mut self, peer: PeerId, attempt: HelloAttempt, shortage: Shortage) {
        let HandshakeStep { local, connections, now } = self;
        let Some(connecting) = connections.peers.connecting_mut(peer) else { return };
        if connecting.shortage.replace(shortage).is_none() {
            connecting.deadline = *now + local.config.connect_timeout;
        }
        connections.watcher.mute(attempt.socket.as_fd(), Watched::Socket(peer), true);
        connecting.answer_at = Some(*now + SHORTAGE_DELAY);
        connecting.attempt = Some(attempt);
    }

    /// Gives up peers whose deadline is over, and tries again to connect to others. Returns whether
    /// a peer is left without an attempt under way, so that this is to be called again.
    pub(crate) fn keep_time(&mut self) -> bool {
        let now = self.now;
        let connections = &mut *self.connections;
        if connections.peers.connecting().is_empty() {
            return false;
        }
        let mut has_retries = false;
        let limit = process::descriptor_limit();
        let mut to_begin = attempts_to_begin(&connections.peers, limit, now);
        // A copy, since peers that are given up leave the list.
        for peer in connections.peers.connecting().to_vec() {
            let connections = &mut *self.connections;
            let Some(address) = connections.peers.address(peer) else { continue };
            let Some(connecting) = connections.peers.connecting_mut(peer) else { continue };
            // A hello that waits for its answer has no deadline: the peer's process is there, and
            // may not poll for minutes. When it ends, its socket is closed. An answer that can't be
            // accepted has one.
            if connecting.attempt.is_some() && connecting.answer_at.is_none() {
                continue;
            }
            has_retries = true;
            if now >= connecting.deadline {
                let errno = if connecting.errno == 0 { libc::ETIMEDOUT } else { connecting.errno };
                let unreachable = DownReason::Unreachable { errno };
                let reason = connecting.shortage.map_or(unreachable, DownReason::Shortage);
                connections.finish(peer, reason);
            } else if let Some(at) = connecting.answer_at {
                if now >= at {
                    self.receive_answer(peer);
                }
            } else if !connecting.crossed && now >= connecting.retry_at {
                if to_begin > 0 {
                    self.attempt(peer, address);
                    to_begin -= 1;
                } else {
                    connecting.retry_at = now + QUEUE_DELAY;
                    if connecting.errno == 0 && connecting.shortage.is_none() {
                        connecting.deadline = now + self.local.config.connect_timeout;
                    }
                }
            }
        }
        has_retries
    }
}

/// How many attempts may begin now. `limit`: the descriptors that this process may have.
fn attempts_to_begin(peers: &Peers, limit: Option<u64>, now: Instant) -> usize {
    let limit = limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit / DESCRIPTORS_OF_AN_ATTEMPT).unwrap_or(usize::MAX)
    });
    let mut young = 0;
    let mut counted = 0;
    for peer in peers.connecting() {
        if let Some(PeerState::Connecting(connecting)) = peers.state(*peer)
            && let Some(attempt) = &connecting.attempt
        {
            let age = now.duration_since(attempt.begun);
            young += usize::from(age < YOUNG);
            counted += usize::from(age < OLD);
        }
    }
    YOUNG_MAX.saturating_sub(young).min(limit.max(YOUNG_MAX).saturating_sub(counted))
}

/// When [`HandshakeStep::keep_time`] has something to do next.
pub(crate) fn next_deadline(peers: &Peers) -> Option<Instant> {
    let deadline = |peer: &PeerId| match peers.state(*peer)? {
        PeerState::Connecting(connecting) => match &**connecting {
            ConnectingPeer { attempt: Some(_), answer_at, deadline, .. } => {
                answer_at.map(|at| at.min(*deadline))
            }
            ConnectingPeer { crossed: true, .. } => Some(connecting.deadline),
            _ => Some(connecting.retry_at.min(connecting.deadline)),
        },
        _ => None,
    };
    peers.connecting().iter().filter_map(deadline).min()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use tagmatch_device::Device as _;

    use super::*;
    use crate::{Shm, ShmConfig};

    #[test]
    fn few_attempts_are_young_and_those_that_are_not_old_leave_descriptors_to_others() {
        let [mut shm, one, two, three, four] =
            [(); 5].map(|()| Shm::new(ShmConfig::default()).unwrap());
        let begun = Instant::now();
        for other in [one, two, three, four].each_ref() {
            shm.connect(&other.address()).unwrap();
        }
        let latest = Instant::now();
        let peers = &shm.connections.peers;
        let to_begin = |limit, now| attempts_to_begin(peers, limit, now);
        assert_eq!(to_begin(None, begun), 0);
        let grown_up = latest + YOUNG;
        let old = latest + OLD;
        assert_eq!(
            [Some(64), Some(80), Some(1024), None].map(|it| to_begin(it, grown_up)),
            [0, 1, 4, 4]
        );
        assert_eq!([Some(16), Some(64), None].map(|limit| to_begin(limit, old)), [4; 3]);
    }

    /// The peers don't poll. Attempts that begin in one look have the same time.
    #[test]
    fn few_attempts_begin_at_a_time() {
        let others: Vec<_> = (0..10).map(|_| Shm::new(ShmConfig::default()).unwrap()).collect();
        let mut shm = Shm::new(ShmConfig::default()).unwrap();
        for other in &others {
            shm.connect(&other.address()).unwrap();
        }
        let begun = |shm: &mut Shm| -> Vec<Instant> {
            let peers = &mut shm.connections.peers;
            let peer_ids = peers.connecting().to_vec();
            let attempts = peer_ids.into_iter().filter_map(|peer| {
                peers.connecting_mut(peer)?.attempt.as_ref().map(|attempt| attempt.begun)
            });
            attempts.collect()
        };
        let start = Instant::now();
        while begun(&mut shm).len() < others.len() {
            assert!(start.elapsed() < Duration::from_secs(20), "not all attempts begin");
            shm.poll();
            let begun = begun(&mut shm);
            for time in &begun {
                let count = begun.iter().filter(|other| *other == time).count();
                assert!(count <= YOUNG_MAX, "{count} begin at a time");
            }
        }
    }
}
