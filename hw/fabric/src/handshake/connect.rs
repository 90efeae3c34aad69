//! Connecting to peers, and accepting connections. A peer on this machine is reached by the name of
//! its socket, any other by its hosts, one after the other. No call blocks.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use tagmatch_device::{Address, DeviceError, DownReason, OrBug, PeerId};
use tagmatch_os::background_close;
use tagmatch_os::peer_socket::PeerSocket;
use tagmatch_os::{process, socket, stream};

use super::address::MeetingAddress;
use super::connection::{Connection, NewConnection};
use super::ending::{break_with, report_unknown};
use super::hello::Packet;
use super::host::MeetingHost;
use super::kind::MeetingKind;
use super::meeting::Meeting;
use super::packets::hear;
use super::peers::{Attempt, RETRY_DELAY};
use super::proof::with_jobs;

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

/// Starts to connect to a peer:
/// [`MatchingDevice::connect`](tagmatch_device::matching::MatchingDevice::connect).
///
/// # Errors
/// The address is none, the device was closed, or there are too many peers.
pub fn start_connect<H: MeetingHost>(
    host: &mut H,
    address: &Address,
) -> Result<PeerId, DeviceError> {
    let meeting = host.meeting_mut();
    if let Some(peer) = meeting.peers.by_address.get(address) {
        return Ok(*peer);
    }
    MeetingAddress::parse(address, meeting.kind)?;
    if meeting.is_closed {
        let why = "the device was closed";
        return Err(DeviceError::Unsupported { what: "another connection", why });
    }
    let limit = meeting.peers.limit();
    let peer = meeting.peers.add(*address).ok_or(DeviceError::Exhausted {
        what: "peer, those that went down included (the source field numbers them)",
        limit,
    })?;
    let now = Instant::now();
    if let Some(entry) = meeting.peers.find_mut(peer) {
        let deadline = now + meeting.connect_timeout;
        entry.attempt =
            Some(Attempt { deadline, next_at: now, way: 0, errno: 0, is_crossed: false });
    }
    meeting.peers.connecting.push(peer);
    try_ways(host, peer, now);
    Ok(peer)
}

/// Continues an attempt: begins a connection to the next of the peer's addresses to which one
/// can be begun.
fn try_ways<H: MeetingHost>(host: &mut H, peer: PeerId, now: Instant) {
    let meeting = host.meeting_mut();
    let Some((address, mut attempt)) =
        meeting.peers.find(peer).and_then(|entry| Some((entry.address, entry.attempt?)))
    else {
        return;
    };
    let Ok(parsed) = MeetingAddress::parse(&address, meeting.kind) else { return };
    loop {
        let socket = match attempt.way {
            0 => connect_named(&parsed, meeting.kind),
            way => match parsed.hosts.get(way - 1) {
                Some(host) => stream::connect_tcp(SocketAddr::new(*host, parsed.port)),
                None => {
                    let reason = match attempt.errno {
                        libc::EACCES => DownReason::Misbehaved { what: NO_PROOF },
                        errno => DownReason::of_failed_call(errno),
                    };
                    return break_with(host, peer, reason);
                }
            },
        };
        let connection = socket.and_then(|socket| {
            Connection::new(NewConnection {
                socket,
                kind: meeting.kind,
                owner: Some(peer),
                is_local: attempt.way == 0,
                deadline: now + meeting.connect_timeout,
                secret: with_jobs(&parsed.secret, meeting.job.as_ref()),
            })
        });
        match connection {
            Ok(connection) => {
                attempt.next_at = now + HOST_TIMEOUT;
                save_attempt(meeting, peer, attempt);
                return send_hello(meeting, peer, connection, now);
            }
            // The peer's backlog is full, or no descriptors are left: the next attempt may
            // succeed.
            Err(error) if is_passing(&error) => {
                attempt.errno = error.raw_os_error().unwrap_or(0);
                attempt.next_at = now + RETRY_DELAY;
                return save_attempt(meeting, peer, attempt);
            }
            Err(error) => {
                attempt.errno = error.raw_os_error().unwrap_or(0);
                attempt.way += 1;
            }
        }
    }
}

fn save_attempt<L: Default>(meeting: &mut Meeting<L>, peer: PeerId, attempt: Attempt) {
    if let Some(entry) = meeting.peers.find_mut(peer) {
        entry.attempt = Some(attempt);
    }
}

/// Sends the hello packet to a peer, over a connection that may not be established yet.
fn send_hello<L: Default>(
    meeting: &mut Meeting<L>,
    peer: PeerId,
    mut connection: Connection,
    now: Instant,
) {
    connection.say(Packet::Hello(Box::new(meeting.hello(peer))));
    let entered = meeting.enter(connection);
    let Some(entry) = meeting.peers.find_mut(peer) else { return };
    match (entered, &mut entry.attempt) {
        (Ok(id), _) => entry.connection = Some(id),
        (Err(error), Some(attempt)) => {
            attempt.errno = error.raw_os_error().unwrap_or(0);
            attempt.next_at = now + RETRY_DELAY;
        }
        (Err(_), None) => {}
    }
}

/// Accepts the connections that wait at a listener.
fn accept<H: MeetingHost>(host: &mut H, place: usize, now: Instant) {
    for _ in 0..PENDING_MAX {
        let meeting = host.meeting_mut();
        let Some(listener) = meeting.listeners.listeners.get(place) else { return };
        if background_close::is_busy() {
            return meeting.listeners.mute(Some(now + MUTE_DELAY));
        }
        let socket = match socket::accept(listener.as_fd()) {
            Ok(socket) => socket,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) => continue,
            Err(_) => return meeting.listeners.mute(Some(now + MUTE_DELAY)),
        };
        // Nothing is received from a process of another user, and nothing is sent to it.
        if place == 0 && !is_own_user(socket.as_fd()) {
            drop(PeerSocket::new(socket));
            continue;
        }
        let begin = NewConnection {
            socket,
            kind: meeting.kind,
            owner: None,
            is_local: place == 0,
            deadline: now + meeting.connect_timeout,
            secret: with_jobs(&meeting.own.secret, meeting.job.as_ref()),
        };
        let Ok(connection) = Connection::new(begin) else { continue };
        meeting.pending += 1;
        match meeting.enter(connection) {
            Ok(id) => hear(host, id, now),
            Err(_) => meeting.pending -= 1,
        }
        let meeting = host.meeting_mut();
        if meeting.pending > PENDING_MAX {
            close_oldest_pending(meeting);
        }
    }
}

fn close_oldest_pending<L: Default>(meeting: &mut Meeting<L>) {
    let pending = meeting.connections.iter().filter(|(_, other)| other.owner.is_none());
    let first = pending.min_by_key(|(_, other)| other.deadline).map(|(id, _)| *id);
    if let Some(id) = first {
        meeting.hang_up(id);
    }
}

/// Handles events of the handshake's sockets, and deadlines that have passed.
pub fn look<H: MeetingHost>(host: &mut H, now: Instant) {
    let meeting = host.meeting_mut();
    meeting.listeners.resume(now);
    let mut numbers = [0; tagmatch_os::event::BATCH];
    let count = meeting.listeners.epoll.ready(&mut numbers);
    for number in &numbers[..count] {
        match u32::try_from(*number) {
            Ok(id) => hear(host, id, now),
            Err(_) => {
                accept(host, usize::try_from(u64::MAX - number).unwrap_or(usize::MAX), now);
            }
        }
    }
    for peer in host.meeting().peers.connecting.clone() {
        tend_attempt(host, peer, now);
    }
    let meeting = host.meeting_mut();
    if meeting.pending > 0 {
        let overdue = meeting
            .connections
            .iter()
            .filter(|(_, other)| other.owner.is_none() && other.deadline <= now);
        for id in overdue.map(|(id, _)| *id).collect::<Vec<_>>() {
            meeting.hang_up(id);
        }
    }
}

fn tend_attempt<H: MeetingHost>(host: &mut H, peer: PeerId, now: Instant) {
    let meeting = host.meeting_mut();
    let entry = match meeting.peers.find_mut(peer).or_bug("the device has numbered the peer") {
        Ok(entry) => entry,
        Err(bug) => return report_unknown(host, peer, bug),
    };
    let connection = entry.connection;
    let Some(attempt) = &mut entry.attempt else { return };
    if attempt.deadline <= now {
        let errno = if attempt.errno == 0 { libc::ETIMEDOUT } else { attempt.errno };
        return break_with(host, peer, DownReason::of_failed_call(errno));
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
        meeting.hang_up(id);
    }
    try_ways(host, peer, now);
}

/// Connects to the device of this machine that has the name, if one of this user has it.
fn connect_named(to: &MeetingAddress, kind: &MeetingKind) -> io::Result<OwnedFd> {
    let socket = stream::connect_abstract(to.socket_name(kind).as_bytes())?;
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
