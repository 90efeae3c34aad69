//! What the packets of the handshake do.
//!
//! Nobody is heard who hasn't proved to know the secret of the address that was connected to ([`Connection`]).
//! Then who connects greets; who takes the greeting answers with its own; the first says that it is ready. So
//! no message comes before its receiver knows whose it is. Both sides may begin at once: the connection
//! that the smaller address began counts. Its worker refuses the other's greeting as crossed, the other
//! takes the greeting and withdraws its own.

use std::time::Instant;

use super::Ucx;
use super::connection::{Connection, Heard};
use super::hello::{Hello, Packet, Refusal};
use super::peers::PeerState;
use tagmatch_device::matching::MatchingEvent;
use tagmatch_device::{DownReason, PeerId};

impl Ucx {
    /// Something has come over a connection, or it has room.
    pub(super) fn hear(&mut self, id: u32, now: Instant) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        let was_pending = connection.owner.is_none();
        if connection.flush() {
            let _ = self.listeners.epoll.watch_room(connection.socket(), id.into(), false);
        }
        // This loop ends: a connection gives at most a greeting, a ready and a goodbye.
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
                        // Not the peer, but somebody else at one of its hosts.
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

    /// The connection of a peer has ended.
    fn lost(&mut self, peer: PeerId, errno: i32, now: Instant) {
        let Some(entry) = self.peers.find(peer) else { return };
        if entry.state == PeerState::Connecting {
            return self.attempt_failed(peer, errno, now);
        }
        self.break_with(peer, DownReason::Gone);
    }

    /// Does what a packet asks for; `false` ends the connection.
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
            (PeerState::Greeted | PeerState::Up, Packet::Ready) if connection.awaits_ready => {
                connection.awaits_ready = false;
                // Unless its first message came before.
                if state == PeerState::Greeted {
                    self.come_up(peer);
                }
                true
            }
            (PeerState::Greeted | PeerState::Up, Packet::Bye) if !says_bye => {
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

    /// A stranger that knows our address has greeted.
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

    /// Takes a stranger's greeting, or refuses it.
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
        self.peers.set_state(peer, PeerState::Greeted);
        Ok(peer)
    }

    /// The peer that we have greeted has answered.
    fn take_answer(&mut self, peer: PeerId, connection: &mut Connection, hello: &Hello) -> bool {
        if self.peers.find(peer).is_none_or(|entry| entry.address != hello.address) {
            let what = "an answer of another than the one that was greeted";
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

    /// Whether we can have to do with who greets so.
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

    /// Makes the way to a peer that has greeted.
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

    /// A peer can be sent to from now on.
    pub(super) fn come_up(&mut self, peer: PeerId) {
        self.peers.set_state(peer, PeerState::Up);
        self.events.push_back(MatchingEvent::PeerUp { peer });
        self.launch_waiting(peer);
    }
}

/// What a refusal means to who is refused.
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
