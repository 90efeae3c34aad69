//! A connection that this worker has ended: what was sent goes out, the peer is told, and the
//! socket is kept until all of it is acknowledged.
//!
//! A socket that is closed while bytes wait in it to be received resets its connection, and what is
//! under way to the peer is lost. So what the peer still sends is received, and dropped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use tagmatch_device::PeerId;
use tagmatch_os::event::Epoll;
use tagmatch_os::peer_socket::PeerSocket;
use tagmatch_os::{fails_for_now, stream, tcp};

use super::connection::Connection;
use super::send_half::SendHalf;
use super::sources::SharedMemory;

/// Most calls that receive and drop bytes at a time.
const DROPS_MAX: usize = 16;

/// A connection that this worker has ended.
pub(crate) struct Leaving {
    pub(crate) peer: PeerId,
    socket: PeerSocket,
    out: SendHalf,
    /// Messages that were not acknowledged when the connection was ended.
    pub(crate) messages: usize,
    /// When the socket is closed all the same.
    pub(crate) until: Duration,
    has_ended_sending: bool,
    /// The peer sends nothing more. It still receives if it leaves as well.
    has_heard_end: bool,
}

/// How far a connection is that this worker has ended.
#[derive(PartialEq, Eq)]
pub(crate) enum LeavingState {
    /// Bytes are not acknowledged.
    Under,
    /// Everything is acknowledged, and the peer may send more.
    Acknowledged,
    /// Both ends have sent all, and it is acknowledged; or the connection is broken.
    Ended,
}

impl Leaving {
    /// Ends a connection. The peer's reads end, except for a piece that is partly sent.
    pub(crate) fn new(peer: PeerId, mut connection: Connection, until: Duration) -> Self {
        let messages = connection.unacknowledged_messages();
        let (socket, mut out) = connection.into_sending_half();
        out.leave();
        let has_ended_sending = false;
        let has_heard_end = false;
        Leaving { peer, socket, out, messages, until, has_ended_sending, has_heard_end }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Has the socket reported while there is something to do with it. It is watched already.
    pub(crate) fn watch(&self, epoll: &Epoll, number: u64) -> io::Result<()> {
        let wants_room = self.out.has_to_send();
        if !self.has_heard_end {
            return epoll.watch_room(self.socket(), number, wants_room);
        }
        // The end would be reported again and again, also where nothing waits to be sent.
        if wants_room {
            return epoll.watch_room_alone(self.socket(), number);
        }
        epoll.forget(self.socket());
        Ok(())
    }

    /// Sends what waits, and drops what has come.
    pub(crate) fn advance(&mut self, memory: &SharedMemory) -> LeavingState {
        match self.out.push(self.socket.as_fd(), memory.for_peer(self.peer, None)) {
            Err(_) => return LeavingState::Ended,
            Ok(false) => {}
            Ok(true) if !self.has_ended_sending => {
                self.has_ended_sending = true;
                tcp::end_sending(self.socket.as_fd());
            }
            Ok(true) => {}
        }
        let mut dropped = [0; 4096];
        for _ in 0..DROPS_MAX {
            match stream::receive(self.socket.as_fd(), &mut dropped) {
                Ok(0) => {
                    self.has_heard_end = true;
                    break;
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if fails_for_now(&error) => break,
                Err(_) => return LeavingState::Ended,
            }
        }
        if self.has_heard_end && tcp::is_over(self.socket()) {
            LeavingState::Ended
        } else if self.has_ended_sending && self.is_acknowledged() {
            LeavingState::Acknowledged
        } else {
            LeavingState::Under
        }
    }

    pub(crate) fn is_acknowledged(&self) -> bool {
        !self.out.has_to_send() && tcp::unacknowledged(self.socket()).is_ok_and(|left| left == 0)
    }
}
