//! The handshake: what each packet does.
//!
//! 1. Both ends prove that they know the secret of the address that was connected to
//!    ([`Connection`]). No packet of an end that has not proved itself is looked at.
//! 2. The caller sends a hello. The listener answers with its own hello. The caller says that it is
//!    ready. So no message arrives before its receiver knows the sender.
//! 3. If both sides connect at once, the connection of the smaller address counts: its worker
//!    refuses the peer's hello as crossed; the peer accepts the hello that it got and drops its own
//!    attempt.

use std::time::Instant;

use tagmatch_device::matching::MatchingEvent;
use tagmatch_device::{DownReason, Expected, PeerId};

use super::Ucx;
use super::connection::{Connection, Heard};
use super::hello::{Hello, Packet, Refusal};
use super::peers::PeerState;

impl Ucx {
    /// Handles an event of a connection: bytes have come, or there is room to send.
    pub(super) fn hear(&mut self, id: u32, now: Instant) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        let was_pending = connection.owner.is_none();
        if connection.flush() {
            let _ = self.listeners.epoll.watch_room(connection.socket(), id.into(), false);
        }
        // The loop ends: a connection gives at most a hello, a ready and a leave packet.
        let keeps = loop {
            match connection.hear() {
                Heard::Nothing => break true,
                Heard::Packet(packet) => {
                    if !self.take_packet(id, &mut connection, packet) {
                        break false;
                    }
                }
                Heard::End(errno) => {
                    if let Some(peer) = connection.owner {
                        self.lost(peer, errno, now);
                    }
                    break false;
                }
                Heard::Misbehaved(what) => {
                    match connection.owner {
                        Some(peer) if connection.is_proven() => {
                            self.break_with(peer, DownReason::Misbehaved { what });
                        }
                        // The process at this host is not the peer.
                        Some(peer) => self.lost(peer, libc::EACCES, now),
                        None => {}
                    }
                    break false;
                }
            }
        };
        self.pending -= usize::from(was_pending && (!keeps || connection.owner.is_some()));
        if keeps {
            if !connection.flush() {
                let _ = self.listeners.epoll.watch_room(connection.socket(), id.into(), true);
            }
            self.connections.insert(id, connection);
        } else {
            self.listeners.epoll.forget(connection.socket());
            drop(connection);
        }
    }

    /// Handles the end of a peer's connection.
    fn lost(&mut self, peer: PeerId, errno: i32, now: Instant) {
        let entry = self.peers.find(peer).expected("the device has numbered the peer");
        let Some(entry) = entry else { return };
        if entry.state == PeerState::Connecting {
            return self.attempt_failed(peer, errno, now);
        }
        self.break_with(peer, DownReason::Gone);
    }

    /// Handles a packet; `false` ends the connection.
    fn take_packet(&mut self, id: u32, connection: &mut Connection, packet: Packet) -> bool {
        let Some(peer) = connection.owner else {
            let Packet::Hello(hello) = packet else { return false };
            return self.take_pending(id, connection, &hello);
        };
        let Some(entry) = self.peers.find(peer) else { return false };
        let (state, says_bye) = (entry.state, entry.says_bye);
        match (state, packet) {
            (PeerState::Connecting, Packet::Hello(hello)) => {
                self.take_answer(peer, connection, &hello)
            }
            (PeerState::Connecting, Packet::Refusal(Refusal::Crossed)) => {
                self.attempt_crossed(peer);
                false
            }
            (PeerState::Connecting, Packet::Refusal(refusal)) => {
                self.break_with(peer, reason_of(refusal));
                false
            }
            (PeerState::Unconfirmed | PeerState::Up, Packet::Ready) if connection.awaits_ready => {
                connection.awaits_ready = false;
                // A peer whose first message came earlier is up already.
                if state == PeerState::Unconfirmed {
                    self.come_up(peer);
                }
                true
            }
            (PeerState::Unconfirmed | PeerState::Up, Packet::Bye) if !says_bye => {
                if let Some(entry) = self.peers.find_mut(peer) {
                    entry.says_bye = true;
                }
                true
            }
            (PeerState::Leaving { .. } | PeerState::Ending { .. } | PeerState::Down, _) => false,
            _ => {
                let what = "a packet of the handshake out of turn";
                self.break_with(peer, DownReason::Misbehaved { what });
                false
            }
        }
    }

    /// Handles the hello of a pending connection whose other end has proved itself.
    fn take_pending(&mut self, id: u32, connection: &mut Connection, hello: &Hello) -> bool {
        if self.is_closed {
            return false;
        }
        match self.welcome(hello) {
            Ok(peer) => {
                connection.owner = Some(peer);
                connection.awaits_ready = true;
                connection.say(Packet::Hello(Box::new(self.hello(peer))));
                if let Some(entry) = self.peers.find_mut(peer) {
                    entry.connection = Some(id);
                }
                true
            }
            Err(refusal) => {
                connection.say(Packet::Refusal(refusal));
                connection.flush();
                false
            }
        }
    }

    /// Accepts the hello of a pending connection, or refuses it.
    fn welcome(&mut self, hello: &Hello) -> Result<PeerId, Refusal> {
        let known = self.peers.by_address.get(&hello.address).copied();
        if let Some(entry) = known.and_then(|peer| self.peers.find(peer)) {
            if entry.state != PeerState::Connecting {
                return Err(Refusal::Known);
            }
            if entry.connection.is_some() && self.address < hello.address {
                return Err(Refusal::Crossed);
            }
        }
        self.check(hello, known)?;
        let peer = match known {
            Some(peer) => peer,
            None => self.peers.add(hello.address).ok_or(Refusal::Full)?,
        };
        if let Some(id) = self.peers.find_mut(peer).and_then(|entry| entry.connection.take()) {
            self.hang_up(id);
        }
        if let Err(refusal) = self.adopt(peer, hello) {
            self.break_with(peer, reason_of(refusal));
            return Err(refusal);
        }
        self.peers.set_state(peer, PeerState::Unconfirmed);
        Ok(peer)
    }

    /// Handles the answer to this worker's hello.
    fn take_answer(&mut self, peer: PeerId, connection: &mut Connection, hello: &Hello) -> bool {
        if self.peers.find(peer).is_none_or(|entry| entry.address != hello.address) {
            let what = "an answer of another worker than the one that the hello went to";
            self.break_with(peer, DownReason::Misbehaved { what });
            return false;
        }
        let adopted = self.check(hello, Some(peer)).and_then(|()| self.adopt(peer, hello));
        if let Err(refusal) = adopted {
            self.break_with(peer, reason_of(refusal));
            return false;
        }
        connection.say(Packet::Ready);
        self.come_up(peer);
        true
    }

    /// Whether this worker can work with a peer that sends this hello.
    fn check(&self, hello: &Hello, known: Option<PeerId>) -> Result<(), Refusal> {
        if !hello.agrees_with(&self.carrier) {
            return Err(Refusal::Layout);
        }
        let number_max = self.carrier.number_max();
        if hello.number > number_max || hello.own_source.is_some_and(|own| own > number_max) {
            return Err(Refusal::Invalid);
        }
        let holder = hello.own_source.and_then(|own| self.peers.of_number(own));
        match holder {
            Some(holder) if Some(holder) != known => Err(Refusal::SameNumber),
            _ => Ok(()),
        }
    }

    /// Makes the endpoint to a peer that has sent its hello.
    fn adopt(&mut self, peer: PeerId, hello: &Hello) -> Result<(), Refusal> {
        if hello.own_source.is_some_and(|own| !self.peers.claim(peer, own)) {
            return Err(Refusal::SameNumber);
        }
        let fault = self.operations.fault();
        let endpoint =
            self.worker.connect(&hello.worker, Some(fault)).map_err(|_| Refusal::NoTransport)?;
        if let Some(entry) = self.peers.find_mut(peer) {
            entry.our_number = hello.number;
            entry.endpoint = Some(endpoint);
            entry.fault = Some(fault);
        }
        Ok(())
    }

    /// Marks a peer as up: it can be sent to from now on.
    pub(super) fn come_up(&mut self, peer: PeerId) {
        self.peers.set_state(peer, PeerState::Up);
        self.events.push_back(MatchingEvent::PeerUp { peer });
        self.launch_waiting(peer);
    }
}

/// The error number of a refusal, for the peer that is refused.
fn reason_of(refusal: Refusal) -> DownReason {
    let unreachable = |errno| DownReason::Unreachable { errno };
    match refusal {
        Refusal::Crossed | Refusal::Known => unreachable(libc::ECONNRESET),
        Refusal::Full => unreachable(libc::EUSERS),
        Refusal::NoTransport => unreachable(libc::EHOSTUNREACH),
        Refusal::Invalid => unreachable(libc::EPROTO),
        Refusal::Layout => DownReason::Misbehaved {
            what: "it carries tags in another way: used, source and own_source must agree",
        },
        Refusal::SameNumber => {
            DownReason::Misbehaved { what: "another peer has the same own_source" }
        }
    }
}
