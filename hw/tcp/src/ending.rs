//! How connections begin and end, and how their sending half is kept going.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use tagmatch_device::{
    AccessEnd, AccessKind, Buffer, DownReason, Event, Flush, Limits, PeerId, ReadError,
    ReadRequest, RegionAccess,
};
use tagmatch_os::peer_socket::PeerSocket;

use super::accesses::{Accesses, EndedAccess};
use super::connection::Connection;
use super::device::Tcp;
use super::flush_wait::FlushWait;
use super::leaving::Leaving;
use super::numbers::Watched;
use super::peers::PeerState;
use super::reads::{EndedRead, ReadOf};
use super::send_half::PUT_RUN_BYTES;

impl Tcp {
    /// Both ends of a connection have proved themselves.
    pub(crate) fn come_up(&mut self, peer: PeerId, socket: PeerSocket, message_max: u32) {
        let number = Watched::Peer(peer).number();
        // The socket of an attempt is watched already.
        let watched = self
            .epoll
            .watch_room(socket.as_fd(), number, false)
            .or_else(|_| self.epoll.watch(socket.as_fd(), number));
        if let Err(error) = watched {
            let errno = error.raw_os_error().unwrap_or(0);
            return self.finish(peer, DownReason::of_failed_call(errno));
        }
        if let Some(attempt) = self.peers.connecting_mut(peer)
            && let Some(caller) = attempt.caller.take()
        {
            self.epoll.forget(caller.talk.socket());
        }
        let message_max = message_max as usize;
        let connection = Connection::new(socket, message_max);
        self.peers.replace(peer, PeerState::Up(Box::new(connection)));
        let limits = Limits { message_max, fragmented_max: 0 };
        self.events.push_back(Event::PeerUp { peer, limits });
    }

    /// See [`Device::read`](tagmatch_device::Device::read).
    pub(crate) fn start_read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        let length = usize::try_from(request.remote.length).ok();
        let Some(length) = length.filter(|length| *length <= request.into.len()) else {
            return Err((request.into, ReadError::BadSpan));
        };
        if !request.into.is_writable() {
            return Err((request.into, ReadError::Failed { errno: libc::EINVAL }));
        }
        let peer = request.peer;
        match self.peers.state_mut(peer) {
            Some(PeerState::Up(connection)) => {
                connection.reads.start(&mut connection.out, request, length);
                self.push_unless_watched(peer);
                Ok(())
            }
            Some(PeerState::Oneself) => {
                let ReadRequest { remote, mut into, token, .. } = request;
                let result =
                    match (self.memory.exposures.readable_by(peer).bytes(remote), into.room()) {
                        (Some(bytes), Some(room)) => {
                            room.fill(bytes);
                            Ok(())
                        }
                        _ => Err(ReadError::BadSpan),
                    };
                self.events.push_back(Event::ReadDone { token, into, result });
                Ok(())
            }
            Some(PeerState::Connecting(_)) => {
                Err((request.into, ReadError::Failed { errno: libc::ENOTCONN }))
            }
            Some(PeerState::Down { .. }) | None => Err((request.into, ReadError::PeerDown)),
        }
    }

    /// See [`Device::access`](tagmatch_device::Device::access).
    pub(crate) fn start_access(&mut self, access: RegionAccess) -> Result<(), Buffer> {
        let RegionAccess { peer, of, kind, ref buffer } = access;
        let can_be_read_into = kind == AccessKind::Write || buffer.is_writable();
        let is_possible = !of.place.is_none() && !buffer.is_empty() && can_be_read_into;
        match self.peers.connection_mut(peer) {
            Some(connection) if is_possible => connection.accesses.add(access),
            _ => return Err(access.buffer),
        }
        self.push_unless_watched(peer);
        Ok(())
    }

    /// Sends what waits for a peer, unless the next poll does: the socket is watched for room. If
    /// each request or answer that comes sent as much as there is room for, what comes behind it
    /// would have no share.
    pub(crate) fn push_unless_watched(&mut self, peer: PeerId) {
        let Some(connection) = self.peers.connection_mut(peer) else { return };
        if !connection.is_room_watched {
            return self.push(peer);
        }
        let Connection { out, reads, accesses, .. } = connection;
        while accesses.may_begin(out) {
            accesses.begin_next(out, reads);
        }
    }

    /// Sends what waits for a peer, as far as there is room.
    pub(crate) fn push(&mut self, peer: PeerId) {
        let Some(connection) = self.peers.connection_mut(peer) else { return };
        if connection.is_broken {
            return;
        }
        let until = connection.out.taken() + PUT_RUN_BYTES as u64;
        loop {
            let Connection { socket, out, reads, accesses, .. } = connection;
            accesses.begin_next(out, reads);
            let sources = self.memory.for_peer(peer, accesses.put());
            let result = out.push(socket.as_fd(), sources);
            if result.is_err() {
                connection.note_broken();
                break;
            }
            // The answers to puts that were sent make the others begin.
            let Connection { out, accesses, .. } = &*connection;
            if !accesses.may_begin(out) || out.taken() >= until && accesses.has_begun() {
                break;
            }
        }
        if connection.busy_since.is_none() {
            self.note_busy(peer);
        }
        self.watch_room(peer);
    }

    /// A read has ended.
    pub(crate) fn end_read(&mut self, peer: PeerId, ended: EndedRead) {
        let EndedRead { of, into, result } = ended;
        match of {
            ReadOf::Exposed(token) => {
                self.events.push_back(Event::ReadDone { token, into, result });
            }
            ReadOf::Region(id) => {
                if let Some(connection) = self.peers.connection_mut(peer) {
                    let is_done = result.is_ok();
                    connection.accesses.end_get(id, EndedAccess { buffer: into, is_done });
                    self.report_accesses(peer);
                }
            }
        }
    }

    /// Reports the accesses to a peer that have ended.
    pub(crate) fn report_accesses(&mut self, peer: PeerId) {
        let Some(connection) = self.peers.connection_mut(peer) else { return };
        report_ended(&mut connection.accesses, peer, &mut self.events);
    }

    /// Has room in a peer's socket reported if something waits for it.
    pub(crate) fn watch_room(&mut self, peer: PeerId) {
        let Some(connection) = self.peers.connection_mut(peer) else { return };
        let is_wanted = connection.out.has_to_send() && !connection.is_broken;
        if is_wanted != connection.is_room_watched {
            let number = Watched::Peer(peer).number();
            let socket = connection.socket.as_fd();
            if self.epoll.watch_room(socket, number, is_wanted).is_ok() {
                connection.is_room_watched = is_wanted;
            }
        }
    }

    /// Ends a connection, or the attempts to connect, now: ends its reads, and reports the peer as
    /// down. All that the peer has sent and that counts was looked at before.
    pub(crate) fn finish(&mut self, peer: PeerId, reason: DownReason) {
        match self.peers.replace(peer, PeerState::Down { lost: 0 }) {
            None | Some(PeerState::Down { .. }) => return,
            Some(PeerState::Oneself) => {
                self.own_messages.clear();
                self.own_bytes = 0;
            }
            Some(PeerState::Connecting(attempt)) => {
                if let Some(caller) = attempt.caller {
                    self.epoll.forget(caller.talk.socket());
                }
            }
            Some(PeerState::Up(connection)) => self.end_connection(peer, *connection, reason),
        }
        self.events.push_back(Event::PeerDown { peer, reason });
    }

    fn end_connection(&mut self, peer: PeerId, mut connection: Connection, reason: DownReason) {
        self.inbox.forget(peer);
        if let Some(host) = connection.counted_for.take() {
            self.hosts.remove(&host);
        }
        if connection.busy_since.is_some() {
            self.busy.retain(|other| *other != peer);
        }
        connection.out.keep_put(self.memory.for_peer(peer, connection.accesses.put()));
        for EndedRead { of, into, result } in connection.reads.take_all() {
            match of {
                ReadOf::Exposed(token) => {
                    self.events.push_back(Event::ReadDone { token, into, result });
                }
                ReadOf::Region(id) => {
                    let ended = EndedAccess { buffer: into, is_done: false };
                    connection.accesses.end_get(id, ended);
                }
            }
        }
        connection.accesses.end_all();
        report_ended(&mut connection.accesses, peer, &mut self.events);
        let unacknowledged = connection.unacknowledged_messages();
        // A peer that has left has received what it wanted to, as far as it was sent.
        let has_taken = reason == DownReason::Left && !connection.out.has_to_send();
        if reason == DownReason::Disconnected && !connection.is_broken {
            let until = self.clock.time() + self.config.leave_timeout;
            return self.enter_leaving(Leaving::new(peer, connection, until));
        }
        self.epoll.forget(connection.socket());
        if !has_taken && let Some(lost) = self.peers.state_mut(peer).and_then(PeerState::lost_mut) {
            *lost = unacknowledged;
        }
    }

    /// Has acknowledgements looked for while the worker sleeps: no descriptor reports them.
    fn await_acknowledgements(&mut self) {
        self.flush_wait = FlushWait::Asked;
        self.is_timer_stale = true;
    }

    /// See [`Device::flush`](tagmatch_device::Device::flush).
    pub(crate) fn flush_peer(&mut self, peer: PeerId, mark: &mut Option<u64>) -> Flush {
        match self.peers.state_mut(peer) {
            Some(PeerState::Up(connection)) => {
                let is_new = mark.is_none();
                let until = *mark.get_or_insert(connection.out.accepted());
                if connection.acknowledged() >= until {
                    return Flush::Done;
                }
                let messages = connection.unacknowledged_messages().max(1);
                if is_new {
                    connection.out.ask_for_acknowledgement();
                    self.push(peer);
                }
                self.await_acknowledgements();
                Flush::Pending { messages }
            }
            Some(PeerState::Down { .. }) => self.flush_left(peer),
            _ => Flush::Done,
        }
    }

    /// How a flush of a peer that is down stands. This worker may have left the peer just now.
    #[cold]
    fn flush_left(&mut self, peer: PeerId) -> Flush {
        if let Some(messages) = self.unacknowledged_of_leaving(peer) {
            self.await_acknowledgements();
            return Flush::Pending { messages };
        }
        match self.peers.state_mut(peer).and_then(PeerState::lost_mut).copied().unwrap_or(0) {
            0 => Flush::Done,
            messages => Flush::Lost { messages },
        }
    }
}

/// Reports accesses that have ended, in their order.
fn report_ended(accesses: &mut Accesses, peer: PeerId, events: &mut VecDeque<Event<'static>>) {
    while let Some(EndedAccess { buffer, is_done }) = accesses.next_ended() {
        events.push_back(Event::AccessDone(AccessEnd { peer, buffer, is_done }));
    }
}
