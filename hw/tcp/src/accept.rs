//! Accepting connections. Nothing but its greeting is received of a process that has not proved
//! that it knows the secret.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use tagmatch_device::slab::Key;
use tagmatch_device::{Address, DownReason, Event, PeerId, Shortage};
use tagmatch_os::{socket, tcp};

use super::device::Tcp;
use super::greeting::CallRefusal;
use super::handshake::{Asking, Caller, Halt, Listener};
use super::hosts::{self, Host};
use super::numbers::Watched;
use super::peers::PeerState;

/// Most connections that have not proved themselves. With one more, the oldest is closed if it is
/// slow.
const PENDING_MAX: usize = 256;
/// A handshake that takes longer is slow. A caller whose connection is closed for it tries again.
const SLOW: Duration = Duration::from_millis(100);
/// Most connections that are accepted at a time.
const ACCEPTS_MAX: usize = 64;
/// How long no connection is accepted after one could not be, for example for want of descriptors.
const MUTE_TIME: Duration = Duration::from_millis(20);

impl Tcp {
    /// Accepts the connections that wait at a listener.
    pub(crate) fn accept(&mut self, place: usize) {
        self.accept_waiting(place);
        // The kernel asks for a descriptor before it looks whether a connection waits.
        self.listeners.restore_spare();
    }

    fn accept_waiting(&mut self, place: usize) {
        let now = self.clock.time();
        for _ in 0..ACCEPTS_MAX {
            if self.pending.len() >= PENDING_MAX && !self.close_slow_pending() {
                return self.mute_listeners();
            }
            let Some(listener) = self.listeners.socket(place) else { return };
            let socket = match socket::accept(listener.as_fd()) {
                Ok(socket) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_of_one_connection(&error) => continue,
                // No descriptors or memory are left.
                Err(_) if self.listeners.use_spare() || self.close_slow_pending() => continue,
                Err(_) => return self.mute_listeners(),
            };
            // Those that connect leave some descriptors, all but one: only its greeting tells which
            // peer this worker lacks descriptors for. A peer that this worker connects to may be
            // the caller.
            let is_of_the_last = |pending: &Listener| hosts::is_of_the_last(pending.talk.socket());
            if hosts::is_of_the_last(socket.as_fd())
                && self.pending.iter().any(is_of_the_last)
                && !self.close_slow_pending()
                && self.peers.connecting().is_empty()
            {
                drop(socket);
                return self.mute_listeners();
            }
            let deadline = now + self.config.connect_timeout;
            if tcp::set_options(socket.as_fd(), self.options()).is_err() {
                continue;
            }
            let Ok(pending) = Listener::new(socket, self.address, deadline) else { continue };
            let Ok(key) = self.pending.insert(pending, u32::MAX) else { return };
            let number = Watched::Pending(key.index).number();
            let watched = self
                .pending
                .get(key)
                .map(|pending| self.epoll.watch(pending.talk.socket(), number));
            if watched.is_none_or(|watched| watched.is_err()) {
                self.pending.remove(key);
                return self.mute_listeners();
            }
            self.is_timer_stale = true;
            self.hear_pending(key.index);
        }
    }

    fn mute_listeners(&mut self) {
        self.listeners.mute(&self.epoll, Some(self.clock.time() + MUTE_TIME));
        self.is_timer_stale = true;
    }

    /// Resumes listeners whose pause is over.
    pub(crate) fn resume_listeners(&mut self) {
        if self.listeners.muted_until.is_some_and(|until| until <= self.clock.time()) {
            self.listeners.mute(&self.epoll, None);
            self.listeners.restore_spare();
        }
    }

    /// The socket of a pending connection is ready.
    pub(crate) fn hear_pending(&mut self, index: u32) {
        let Some(key) = self.pending.key_at(index) else { return };
        let Some(pending) = self.pending.get_mut(key) else { return };
        match pending.advance(&self.secret) {
            Err(Halt::Later) => {
                let wants_room = pending.talk.has_to_send();
                let number = Watched::Pending(index).number();
                let _ = self.epoll.watch_room(pending.talk.socket(), number, wants_room);
            }
            Ok(Some(asking)) => {
                // A socket that stays watched can't fail to be watched as that of a peer.
                if let Some(pending) = self.pending.remove(key) {
                    self.admit(pending, &asking);
                }
            }
            Ok(None) => {
                self.refused_machines.tell(pending.talk.socket(), "it has another secret");
                if let Some(pending) = self.take_pending(key) {
                    pending.refuse_proof();
                }
            }
            Err(Halt::Wrong(what)) => {
                self.refused_machines.tell(pending.talk.socket(), what);
                drop(self.take_pending(key));
            }
            Err(Halt::End(_)) => drop(self.take_pending(key)),
        }
    }

    /// Takes a caller that has proved itself, or refuses it.
    fn admit(&mut self, pending: Listener, asking: &Asking) {
        let known = match self.known_peer(asking.address()) {
            Ok(known) => known,
            Err(refusal) => return self.refuse(pending, asking, refusal),
        };
        // The caller is none that this worker connects to.
        let mut host = None;
        if known.is_none() {
            let socket = pending.talk.socket();
            if self.listeners.lacks_spare() || hosts::is_of_the_last(socket) {
                let refusal = self.note_shortage(*asking.address());
                self.refuse(pending, asking, refusal);
                return self.listeners.restore_spare();
            }
            let Ok(address) = tcp::peer_address(socket) else { return };
            if !self.hosts.has_room(&Host::of(address)) {
                self.refused_machines.tell(socket, "its machine has as many peers as it may have");
                return self.refuse(pending, asking, CallRefusal::Full);
            }
            host = Some(Host::of(address));
        }
        let message_max = self.config.message_max;
        let accepted = pending.accept(&self.secret, asking, message_max);
        let Some((socket, unsent)) = accepted else { return };
        let peer = match known {
            Some(peer) => peer,
            None => match self.peers.add(*asking.address(), PeerState::Down { lost: 0 }) {
                Ok(peer) => peer,
                Err(_) => return,
            },
        };
        self.waiting.forget(asking.address());
        self.come_up(peer, socket, asking.message_max);
        let Some(connection) = self.peers.connection_mut(peer) else { return };
        if let Some(host) = host {
            connection.counted_for = Some(host);
            self.hosts.add(host);
        }
        if !unsent.is_empty() {
            connection.out.send_first(&unsent);
            self.note_busy(peer);
            self.watch_room(peer);
        }
    }

    fn refuse(&self, pending: Listener, asking: &Asking, why: CallRefusal) {
        self.epoll.forget(pending.talk.socket());
        pending.refuse(&self.secret, asking, why);
    }

    /// Notes that there is no descriptor for a peer that has proved itself. A peer that has tried
    /// for as long as connecting may take is reported.
    fn note_shortage(&mut self, address: Address) -> CallRefusal {
        if !self.waiting.note(address, self.clock.time(), self.config.connect_timeout) {
            return CallRefusal::Busy;
        }
        if let Ok(peer) = self.peers.add(address, PeerState::Down { lost: 0 }) {
            let reason = DownReason::Shortage(Shortage::Descriptors);
            self.events.push_back(Event::PeerDown { peer, reason });
        }
        CallRefusal::Lacking
    }

    /// The peer that a caller is, if this worker tries to connect to it. That attempt ends once the
    /// caller has its answer: the caller may go on with the attempt if it gets none.
    ///
    /// Of two connections that cross, the one of the smaller address counts, unless that worker has
    /// not sent its proof yet: then the other worker can't have accepted it, and the one that is
    /// further is taken.
    fn known_peer(&mut self, address: &Address) -> Result<Option<PeerId>, CallRefusal> {
        let is_smaller = self.address < *address;
        // No worker asks for a route that both don't find.
        self.check_route(address).map_err(|_| CallRefusal::Known)?;
        let Some(peer) = self.peers.find(address) else {
            return if self.peers.is_full() { Err(CallRefusal::Full) } else { Ok(None) };
        };
        let Some(attempt) = self.peers.connecting_mut(peer) else { return Err(CallRefusal::Known) };
        if is_smaller && attempt.caller.as_ref().is_some_and(Caller::has_asked) {
            return Err(CallRefusal::Crossed);
        }
        Ok(Some(peer))
    }

    fn take_pending(&mut self, key: Key) -> Option<Listener> {
        let pending = self.pending.remove(key)?;
        self.epoll.forget(pending.talk.socket());
        Some(pending)
    }

    /// Makes room for another pending connection. `false` if all of them are new.
    fn close_slow_pending(&mut self) -> bool {
        let slow = self.clock.time() + self.config.connect_timeout.saturating_sub(SLOW);
        let keys = self.pending.keys_where(|pending| pending.deadline <= slow);
        let oldest = |key: &Key| self.pending.get(*key).map(|pending| pending.deadline);
        let oldest = keys.into_iter().min_by_key(oldest);
        oldest.and_then(|key| self.take_pending(key)).is_some()
    }

    /// Closes pending connections that took too long.
    pub(crate) fn close_late_pending(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let now = self.clock.time();
        for key in self.pending.keys_where(|pending| pending.deadline <= now) {
            if let Some(pending) = self.take_pending(key) {
                self.refused_machines.tell(pending.talk.socket(), "it said nothing, or too little");
            }
        }
    }

    /// Closes all pending connections.
    pub(crate) fn drop_pending(&mut self) {
        for key in self.pending.keys_where(|_| true) {
            drop(self.take_pending(key));
        }
    }

    /// When [`Tcp::close_late_pending`] and [`Tcp::resume_listeners`] have something to do next.
    pub(crate) fn next_pending(&self) -> Option<Duration> {
        let keys = self.pending.keys_where(|_| true);
        let deadlines = keys.into_iter().filter_map(|key| Some(self.pending.get(key)?.deadline));
        deadlines.chain(self.listeners.muted_until).min()
    }
}

/// Whether accept(2) failed because of the connection, and not for want of something.
fn is_of_one_connection(error: &io::Error) -> bool {
    let passing =
        [libc::EINTR, libc::ECONNABORTED, libc::EPROTO, libc::ENETDOWN, libc::EHOSTUNREACH];
    error.raw_os_error().is_some_and(|errno| passing.contains(&errno))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::address::TcpAddress;
    use crate::config::TcpConfig;
    use crate::greeting::{ANSWER_BYTES, Admission, OPENING_BYTES, Opening, question};
    use tagmatch_device::contents::Contents;
    use tagmatch_device::{Device, Join, Network, PeerNumbers};
    use tagmatch_secret::{PROOF_BYTES, Secret};

    /// A worker at a place of shared memory, with TCP.
    fn at_place(place: u8) -> (Tcp, Address) {
        let secret = Secret::from_bytes(&[7; 16]).ok();
        let listen = vec![std::net::Ipv4Addr::LOCALHOST.into()];
        let mut tcp = Tcp::new(TcpConfig { secret, listen, ..TcpConfig::default() }).unwrap();
        let own = tcp.address();
        let section = tcp.section(Contents::ROOM);
        let place = [place; Network::SHM_BYTES];
        let contents = Contents::new(Contents::of(&own).unwrap().name);
        let contents = contents.with(Network::Shm, &place).with(Network::Tcp, &section);
        let address = contents.address().unwrap();
        tcp.join(address, &PeerNumbers::of_several_devices());
        (tcp, address)
    }

    #[test]
    fn after_a_long_absence_a_caller_is_heard_before_it_is_late() {
        let secret = Secret::from_bytes(&[7; 16]).ok();
        let listen = vec![std::net::Ipv4Addr::LOCALHOST.into()];
        let connect_timeout = Duration::from_millis(150);
        let config = TcpConfig { secret, listen, connect_timeout, ..TcpConfig::default() };
        let mut tcp = Tcp::new(config).unwrap();
        assert!(tcp.poll().is_some(), "it is up itself");
        let own = TcpAddress::parse(&tcp.address).unwrap();
        let mut caller = TcpStream::connect((own.hosts[0], own.port)).unwrap();
        let address = Address::from_bytes(&[9; 20]).unwrap();
        caller.write_all(&Opening { nonce: [1; 16], address }.emit()).unwrap();
        let mut opening = [0; OPENING_BYTES];
        caller.set_nonblocking(true).unwrap();
        while caller.peek(&mut opening).is_err() {
            assert!(tcp.poll().is_none());
        }
        caller.set_nonblocking(false).unwrap();
        caller.read_exact(&mut opening).unwrap();
        assert!(tcp.arm(&[]));
        caller.write_all(&question(&[0; PROOF_BYTES], 1 << 20)).unwrap();
        std::thread::sleep(2 * connect_timeout);
        tcp.disarm();
        while !tcp.pending.is_empty() {
            assert!(tcp.poll().is_none());
        }
        let mut answer = [0; ANSWER_BYTES];
        caller.read_exact(&mut answer).unwrap();
        assert!(matches!(
            Admission::parse(&answer),
            Ok(Admission::Refused { why: CallRefusal::Proof, .. })
        ));
    }

    #[test]
    fn a_caller_that_is_to_come_over_shared_memory_is_not_taken() {
        let (mut tcp, _) = at_place(1);
        let [(_, neighbour), (_, far)] = [1, 2].map(at_place);
        assert_eq!(tcp.known_peer(&neighbour), Err(CallRefusal::Known));
        assert!(tcp.connect(&neighbour).is_err());
        assert_eq!(tcp.known_peer(&far), Ok(None));
        assert!(tcp.connect(&far).is_ok());
    }
}
