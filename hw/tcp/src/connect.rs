//! Connecting to peers. The hosts of an address are tried one after the other. No call blocks.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tagmatch_device::contents::route;
use tagmatch_device::{Address, Bug, DeviceError, DownReason, Network, OrBug, PeerId};
use tagmatch_os::{stream, tcp};

use super::address::TcpAddress;
use super::device::Tcp;
use super::greeting::CallRefusal;
use super::handshake::{Called, Caller, Halt};
use super::numbers::Watched;
use super::peers::{ConnectAttempts, PeerState};

/// Time until the next attempt, after one that failed for a passing reason.
const RETRY_DELAY: Duration = Duration::from_millis(5);
/// How long one host of several is tried at first. The time doubles each time that all hosts have
/// been tried, if one of them may be a peer that is busy.
const WAY_TIME: Duration = Duration::from_secs(3);
const WAY_TIME_MAX: Duration = Duration::from_secs(60);
/// What is so of a peer with attempts.
const IS_CONNECTING: &str = "the peer is being connected";
/// A peer with another secret.
const OTHER_SECRET: &str = "it has another secret (TAGMATCH_SECRET, TAGMATCH_SECRET_FILE)";

impl Tcp {
    /// See [`Device::connect`](tagmatch_device::Device::connect).
    pub(crate) fn start_connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        if let Some(peer) = self.peers.find(address) {
            return Ok(peer);
        }
        self.check_route(address)?;
        let hosts = TcpAddress::parse(address)?.hosts.len();
        if self.listeners.is_closed() {
            let why = "the device was closed";
            return Err(DeviceError::Unsupported { what: "another connection", why });
        }
        let now = self.clock.time();
        let attempt = ConnectAttempts {
            caller: None,
            hosts,
            deadline: now + self.config.connect_timeout,
            way: 0,
            way_time: WAY_TIME,
            way_until: now,
            next_at: now,
            is_silent: false,
            is_crossed: false,
            errno: 0,
            wrong: None,
        };
        let peer = self.peers.add(*address, PeerState::Connecting(Box::new(attempt)))?;
        let result = self.try_ways(peer);
        self.end_if_bug(peer, result);
        self.is_timer_stale = true;
        Ok(peer)
    }

    /// Whether the worker with this address is to be reached over TCP.
    pub(crate) fn check_route(&self, peer: &Address) -> Result<(), DeviceError> {
        let why = "its worker is reached over another network";
        match route(&self.address, peer)? {
            Network::Tcp => Ok(()),
            _ => Err(DeviceError::BadAddress { why }),
        }
    }

    /// Begins a connection to the next host to which one can be begun.
    fn try_ways(&mut self, peer: PeerId) -> Result<(), Bug> {
        let now = self.clock.time();
        let own = self.address;
        let options = self.options();
        let connect_timeout = self.config.connect_timeout;
        let (address, attempt) = self.peers.attempt_mut(peer).or_bug(IS_CONNECTING)?;
        let parsed = TcpAddress::parse(&address).ok().or_bug("the address of a peer was parsed")?;
        loop {
            let Some(host) = parsed.hosts.get(attempt.way) else {
                let has_time = attempt.errno == libc::ETIMEDOUT && attempt.deadline > now;
                if !attempt.is_silent && !has_time {
                    return self.give_up(peer);
                }
                attempt.way = 0;
                attempt.way_time = (attempt.way_time * 2).min(WAY_TIME_MAX);
                attempt.next_at = now + RETRY_DELAY;
                if attempt.is_silent {
                    // A machine has taken a connection, and its worker was busy. If no machine
                    // does so in the next round, the peer is gone.
                    attempt.is_silent = false;
                    let round = attempt.way_time * u32::try_from(attempt.hosts).unwrap_or(1);
                    attempt.deadline = now + round.max(connect_timeout);
                }
                return Ok(());
            };
            let caller = stream::connect_tcp(SocketAddr::new(*host, parsed.port))
                .and_then(|socket| begin(socket, own, options));
            match caller {
                Ok(caller) => {
                    let number = Watched::Peer(peer).number();
                    let socket = caller.talk.socket();
                    let watched = self.epoll.watch(socket, number);
                    if watched.and_then(|()| self.epoll.watch_room(socket, number, true)).is_ok() {
                        attempt.way_until = now + attempt.way_time;
                        attempt.caller = Some(caller);
                        return Ok(());
                    }
                    attempt.next_at = now + RETRY_DELAY;
                    return Ok(());
                }
                // No descriptors or ports are left: the next attempt may succeed.
                Err(error) if is_passing(&error) => {
                    attempt.errno = error.raw_os_error().unwrap_or(0);
                    attempt.next_at = now + RETRY_DELAY;
                    return Ok(());
                }
                Err(error) => {
                    attempt.errno = error.raw_os_error().unwrap_or(0);
                    attempt.way += 1;
                }
            }
        }
    }

    /// Reports that no host of a peer can be reached, or what the last one did wrong.
    fn give_up(&mut self, peer: PeerId) -> Result<(), Bug> {
        let attempt = self.peers.connecting_mut(peer).or_bug(IS_CONNECTING)?;
        let reason = match attempt.wrong {
            Some(what) => DownReason::Misbehaved { what },
            None if attempt.errno == 0 => DownReason::Unreachable { errno: libc::ETIMEDOUT },
            None => DownReason::of_failed_call(attempt.errno),
        };
        self.finish(peer, reason);
        Ok(())
    }

    /// Ends a peer that this worker can't go on with, because it has met a bug of its own.
    fn end_if_bug(&mut self, peer: PeerId, result: Result<(), Bug>) {
        if let Err(bug) = result {
            self.finish(peer, DownReason::Bug(bug));
        }
    }

    /// Takes the handshake back, and goes on with the next host, or with this one later.
    fn next_way(&mut self, peer: PeerId, way_step: usize, delay: Duration) -> Result<(), Bug> {
        let now = self.clock.time();
        let attempt = self.peers.connecting_mut(peer).or_bug(IS_CONNECTING)?;
        if let Some(caller) = attempt.caller.take() {
            self.epoll.forget(caller.talk.socket());
        }
        attempt.way += way_step;
        attempt.next_at = now + delay;
        self.is_timer_stale = true;
        if delay.is_zero() { self.try_ways(peer) } else { Ok(()) }
    }

    /// The socket of an attempt is ready.
    pub(crate) fn hear_answer(&mut self, peer: PeerId) {
        let result = self.take_answer(peer);
        self.end_if_bug(peer, result);
    }

    fn take_answer(&mut self, peer: PeerId) -> Result<(), Bug> {
        let message_max = self.config.message_max;
        let (wanted, attempt) = self.peers.attempt_mut(peer).or_bug(IS_CONNECTING)?;
        let Some(caller) = &mut attempt.caller else { return Ok(()) };
        match caller.advance(&self.secret, &wanted, message_max) {
            Err(Halt::Later) => {
                let wants_room = caller.talk.has_to_send();
                let number = Watched::Peer(peer).number();
                let _ = self.epoll.watch_room(caller.talk.socket(), number, wants_room);
            }
            Ok(Called::Accepted { message_max }) => {
                if let Some(caller) = attempt.caller.take() {
                    self.come_up(peer, caller.talk.into_socket(), message_max);
                }
            }
            Ok(Called::Another) => {
                attempt.errno = libc::ECONNREFUSED;
                return self.next_way(peer, 1, Duration::ZERO);
            }
            Ok(Called::Refused(CallRefusal::Crossed)) => {
                attempt.is_crossed = true;
                attempt.deadline = self.clock.time() + self.config.connect_timeout;
                return self.next_way(peer, 0, self.config.connect_timeout);
            }
            Ok(Called::Refused(CallRefusal::Known)) => {
                self.finish(peer, DownReason::Unreachable { errno: libc::ECONNRESET });
            }
            Ok(Called::Refused(CallRefusal::Full)) => {
                self.finish(peer, DownReason::Unreachable { errno: libc::EUSERS });
            }
            Ok(Called::Refused(CallRefusal::Lacking)) => {
                self.finish(peer, DownReason::Unreachable { errno: libc::EMFILE });
            }
            // The peer lives, and says when it gives up.
            Ok(Called::Refused(CallRefusal::Busy)) => {
                attempt.errno = libc::EBUSY;
                attempt.deadline = self.clock.time() + self.config.connect_timeout;
                return self.next_way(peer, 0, 4 * RETRY_DELAY);
            }
            Ok(Called::Refused(CallRefusal::Proof)) => {
                attempt.wrong = Some(OTHER_SECRET);
                return self.next_way(peer, 1, Duration::ZERO);
            }
            Err(Halt::Wrong(what)) => {
                attempt.wrong = Some(what);
                return self.next_way(peer, 1, Duration::ZERO);
            }
            // The worker has closed the connection unanswered: it has too many, or has ended. The
            // next attempt finds out.
            Err(Halt::End(0 | libc::ECONNRESET | libc::EPIPE)) => {
                attempt.errno = libc::ECONNRESET;
                // The machine had taken the connection, and the worker was busy beyond the
                // deadline.
                let now = self.clock.time();
                if attempt.deadline <= now {
                    attempt.deadline = now + self.config.connect_timeout;
                }
                return self.next_way(peer, 0, 4 * RETRY_DELAY);
            }
            Err(Halt::End(errno)) => {
                attempt.errno = errno;
                return self.next_way(peer, 1, Duration::ZERO);
            }
        }
        Ok(())
    }

    /// Does what is due for the attempts.
    pub(crate) fn tend_attempts(&mut self) {
        if !self.peers.connecting().is_empty() {
            for peer in self.peers.connecting().to_vec() {
                let result = self.tend_attempt(peer);
                self.end_if_bug(peer, result);
            }
        }
    }

    fn tend_attempt(&mut self, peer: PeerId) -> Result<(), Bug> {
        let now = self.clock.time();
        let attempt = self.peers.connecting_mut(peer).or_bug(IS_CONNECTING)?;
        let is_late = attempt.deadline <= now;
        let Some(caller) = &attempt.caller else {
            return if is_late && !attempt.is_silent {
                self.give_up(peer)
            } else if attempt.next_at <= now {
                self.try_ways(peer)
            } else {
                Ok(())
            };
        };
        if !caller.talk.is_established {
            if is_late && !attempt.is_silent {
                return self.give_up(peer);
            }
            if attempt.way_until <= now {
                attempt.errno = libc::ETIMEDOUT;
                return self.next_way(peer, 1, Duration::ZERO);
            }
        } else if attempt.way_until <= now && attempt.hosts > 1 && !caller.has_asked() {
            // This host may be another machine than the peer's.
            attempt.is_silent = true;
            return self.next_way(peer, 1, Duration::ZERO);
        }
        Ok(())
    }

    /// When [`Tcp::tend_attempts`] has something to do next.
    pub(crate) fn next_attempt(&self) -> Option<Duration> {
        let due = |peer: &PeerId| match self.peers.state(*peer)? {
            PeerState::Connecting(attempt) => match &attempt.caller {
                None if attempt.is_silent => Some(attempt.next_at),
                None => Some(attempt.next_at.min(attempt.deadline)),
                Some(caller) if caller.talk.is_established => {
                    (attempt.hosts > 1 && !caller.has_asked()).then_some(attempt.way_until)
                }
                Some(_) => Some(attempt.way_until.min(attempt.deadline)),
            },
            _ => None,
        };
        let now = self.clock.time();
        let later = |due: Duration| if due > now { due } else { now + RETRY_DELAY };
        self.peers.connecting().iter().filter_map(due).map(later).min()
    }
}

fn begin(socket: OwnedFd, own: Address, options: tcp::TcpOptions) -> io::Result<Caller> {
    use std::os::fd::AsFd;
    tcp::set_options(socket.as_fd(), options)?;
    Caller::new(socket, own)
}

fn is_passing(error: &io::Error) -> bool {
    let passing = [
        libc::EAGAIN,
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOBUFS,
        libc::ENOMEM,
        libc::EADDRNOTAVAIL,
    ];
    error.raw_os_error().is_some_and(|errno| passing.contains(&errno))
}
