//! The handshake: what each packet does.
//!
//! 1. Both ends prove that they know the secret of the address that was connected to
//!    (`Connection`). No packet of an end that has not proved itself is looked at.
//! 2. The caller sends a hello. The listener answers with its own hello. The caller says that it is
//!    ready. So no message arrives before its receiver knows the sender.
//! 3. If both sides connect at once, the connection of the smaller address counts: its worker
//!    refuses the peer's hello as crossed; the peer accepts the hello that it got and drops its own
//!    attempt.

use std::time::Instant;

use tagmatch_device::matching::MatchingEvent;
use tagmatch_device::{DownReason, OrBug, PeerId};

use super::connection::{Connection, Heard};
use super::ending::{break_with, report_unknown};
use super::hello::{Hello, Packet, Refusal};
use super::host::MeetingHost;
use super::kind::MeetingKind;
use super::peers::PeerState;

/// Handles an event of a connection: bytes have come, or there is room to send.
pub fn hear<H: MeetingHost>(host: &mut H, id: u32, now: Instant) {
    let meeting = host.meeting_mut();
    let Some(mut connection) = meeting.connections.remove(&id) else { return };
    let was_pending = connection.owner.is_none();
    if connection.flush() {
        let _ = meeting.listeners.epoll.watch_room(connection.socket(), id.into(), false);
    }
    // The loop ends: a connection gives at most a hello, a ready and a leave packet.
    let keeps = loop {
        match connection.hear() {
            Heard::Nothing => break true,
            Heard::Packet(packet) => {
                if !take_packet(host, id, &mut connection, packet) {
                    break false;
                }
            }
            Heard::End(errno) => {
                if let Some(peer) = connection.owner {
                    lost(host, peer, errno, now);
                }
                break false;
            }
            Heard::Misbehaved(what) => {
                match connection.owner {
                    Some(peer) if connection.is_proven() => {
                        break_with(host, peer, DownReason::Misbehaved { what });
                    }
                    // The process at this host is not the peer.
                    Some(peer) => lost(host, peer, libc::EACCES, now),
                    None => {}
                }
                break false;
            }
        }
    };
    let meeting = host.meeting_mut();
    meeting.pending -= usize::from(was_pending && (!keeps || connection.owner.is_some()));
    if keeps {
        if !connection.flush() {
            let _ = meeting.listeners.epoll.watch_room(connection.socket(), id.into(), true);
        }
        meeting.connections.insert(id, connection);
    } else {
        meeting.listeners.epoll.forget(connection.socket());
        drop(connection);
    }
}

/// Handles the end of a peer's connection.
fn lost<H: MeetingHost>(host: &mut H, peer: PeerId, errno: i32, now: Instant) {
    let meeting = host.meeting_mut();
    let entry = match meeting.peers.find_mut(peer).or_bug("the device has numbered the peer") {
        Ok(entry) => entry,
        Err(bug) => return report_unknown(host, peer, bug),
    };
    if entry.state == PeerState::Connecting {
        return entry.attempt_failed(errno, now);
    }
    break_with(host, peer, DownReason::Gone);
}

/// Handles a packet; `false` ends the connection.
fn take_packet<H: MeetingHost>(
    host: &mut H,
    id: u32,
    connection: &mut Connection,
    packet: Packet,
) -> bool {
    let Some(peer) = connection.owner else {
        let Packet::Hello(hello) = packet else { return false };
        return take_pending(host, id, connection, &hello);
    };
    let Some(entry) = host.meeting_mut().peers.find(peer) else { return false };
    let state = entry.state;
    let says_bye = entry.says_bye;
    match (state, packet) {
        (PeerState::Connecting, Packet::Hello(hello)) => {
            take_answer(host, peer, connection, &hello)
        }
        (PeerState::Connecting, Packet::Refusal(Refusal::Crossed)) => {
            if let Some(entry) = host.meeting_mut().peers.find_mut(peer) {
                entry.attempt_crossed();
            }
            false
        }
        (PeerState::Connecting, Packet::Refusal(refusal)) => {
            break_with(host, peer, reason_of(refusal, host.meeting().kind));
            false
        }
        (PeerState::Unconfirmed | PeerState::Up, Packet::Ready) if connection.awaits_ready => {
            connection.awaits_ready = false;
            // A peer whose first message came earlier is up already.
            if state == PeerState::Unconfirmed {
                come_up(host, peer);
            }
            true
        }
        (PeerState::Unconfirmed | PeerState::Up, Packet::Bye) if !says_bye => {
            if let Some(entry) = host.meeting_mut().peers.find_mut(peer) {
                entry.says_bye = true;
            }
            true
        }
        (PeerState::Leaving { .. } | PeerState::Ending { .. } | PeerState::Down, _) => false,
        _ => {
            let what = "a packet of the handshake out of turn";
            break_with(host, peer, DownReason::Misbehaved { what });
            false
        }
    }
}

/// Handles the hello of a pending connection whose other end has proved itself.
fn take_pending<H: MeetingHost>(
    host: &mut H,
    id: u32,
    connection: &mut Connection,
    hello: &Hello,
) -> bool {
    if host.meeting_mut().is_closed {
        return false;
    }
    match welcome(host, hello) {
        Ok(peer) => {
            connection.owner = Some(peer);
            connection.awaits_ready = true;
            connection.say(Packet::Hello(Box::new(host.meeting().hello(peer))));
            if let Some(entry) = host.meeting_mut().peers.find_mut(peer) {
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
fn welcome<H: MeetingHost>(host: &mut H, hello: &Hello) -> Result<PeerId, Refusal> {
    let meeting = host.meeting_mut();
    let known = meeting.peers.by_address.get(&hello.address).copied();
    if let Some(entry) = known.and_then(|peer| meeting.peers.find(peer)) {
        if entry.state != PeerState::Connecting {
            return Err(Refusal::Known);
        }
        if entry.connection.is_some() && meeting.address < hello.address {
            return Err(Refusal::Crossed);
        }
    }
    meeting.check(hello, known)?;
    let peer = match known {
        Some(peer) => peer,
        None => meeting.peers.add(hello.address).ok_or(Refusal::Full)?,
    };
    if let Some(id) = meeting.peers.find_mut(peer).and_then(|entry| entry.connection.take()) {
        meeting.hang_up(id);
    }
    if let Err(refusal) = adopt(host, peer, hello) {
        break_with(host, peer, reason_of(refusal, host.meeting().kind));
        return Err(refusal);
    }
    host.meeting_mut().peers.set_state(peer, PeerState::Unconfirmed);
    Ok(peer)
}

/// Handles the answer to this worker's hello.
fn take_answer<H: MeetingHost>(
    host: &mut H,
    peer: PeerId,
    connection: &mut Connection,
    hello: &Hello,
) -> bool {
    if host.meeting_mut().peers.find(peer).is_none_or(|entry| entry.address != hello.address) {
        let what = "an answer of another worker than the one that the hello went to";
        break_with(host, peer, DownReason::Misbehaved { what });
        return false;
    }
    let checked = host.meeting().check(hello, Some(peer));
    let adopted = checked.and_then(|()| adopt(host, peer, hello));
    if let Err(refusal) = adopted {
        break_with(host, peer, reason_of(refusal, host.meeting().kind));
        return false;
    }
    connection.say(Packet::Ready);
    come_up(host, peer);
    true
}

/// Makes the way to a peer that has sent its hello.
fn adopt<H: MeetingHost>(host: &mut H, peer: PeerId, hello: &Hello) -> Result<(), Refusal> {
    if hello.own_source.is_some_and(|own| !host.meeting_mut().peers.claim(peer, own)) {
        return Err(Refusal::SameNumber);
    }
    host.adopt(peer, hello)?;
    if let Some(entry) = host.meeting_mut().peers.find_mut(peer) {
        entry.our_number = hello.number;
        entry.is_adopted = true;
    }
    Ok(())
}

/// Marks a peer as up: it can be sent to from now on.
pub fn come_up<H: MeetingHost>(host: &mut H, peer: PeerId) {
    host.meeting_mut().peers.set_state(peer, PeerState::Up);
    host.tell(MatchingEvent::PeerUp { peer });
    host.launch_waiting(peer);
}

/// The error number of a refusal, for the peer that is refused.
fn reason_of(refusal: Refusal, kind: &MeetingKind) -> DownReason {
    let unreachable = |errno| DownReason::Unreachable { errno };
    match refusal {
        Refusal::Crossed | Refusal::Known => unreachable(libc::ECONNRESET),
        Refusal::Full => unreachable(libc::EUSERS),
        Refusal::NoTransport => unreachable(libc::EHOSTUNREACH),
        Refusal::Invalid => unreachable(libc::EPROTO),
        Refusal::Layout => DownReason::Misbehaved { what: kind.another_layout },
        Refusal::SameNumber => {
            DownReason::Misbehaved { what: "another peer has the same own_source" }
        }
    }
}
