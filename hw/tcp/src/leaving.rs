//! Leaving in order: what was sent goes out, the peer is told, and the connection is closed once all
//! of it is acknowledged.
//!
//! A socket that is closed while bytes wait in it to be received resets its connection, and what is
//! under way to the peer is lost. So what the peer still sends is received, and dropped.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::device::Tcp;
use super::exposure::Exposures;
use super::numbers::Watched;
use super::send_half::SendHalf;
use tagmatch_device::PeerId;
use tagmatch_device::slab::Slab;
use tagmatch_os::event::Epoll;
use tagmatch_os::peer_socket::PeerSocket;
use tagmatch_os::sleep::sleep_until_readable;
use tagmatch_os::{stream, tcp};

/// Most calls that receive and drop bytes at a time.
const DROPS_MAX: usize = 16;
/// How often acknowledgements are looked for while the device is dropped: nothing reports them.
const LOOK_TIME: Duration = Duration::from_millis(1);

/// A connection that this worker has ended.
pub(crate) struct Leaving {
    peer: PeerId,
    socket: PeerSocket,
    out: SendHalf,
    messages: usize,
    until: Duration,
    has_ended_sending: bool,
}

/// How far a connection is that this worker has ended.
#[derive(PartialEq, Eq)]
enum State {
    /// Bytes are not acknowledged, or the peer has not closed its end.
    Under,
    /// Everything is acknowledged.
    Acknowledged,
    /// The peer has closed its end, or the connection is broken.
    Ended,
}

impl Leaving {
    /// Ends a connection. The reads of the peer end, a piece that was begun aside.
    pub(crate) fn new(peer: PeerId, mut connection: Connection, until: Duration) -> Self {
        let messages = connection.unacknowledged_messages();
        let (socket, mut out) = connection.into_sending_half();
        out.leave();
        Leaving { peer, socket, out, messages, until, has_ended_sending: false }
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends what waits, and drops what has come.
    fn advance(&mut self, exposures: &Exposures) -> State {
        match self.out.push(self.socket.as_fd(), exposures) {
            Err(_) => return State::Ended,
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
                Ok(0) => return State::Ended,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return State::Ended,
            }
        }
        if self.has_ended_sending && self.is_acknowledged() {
            State::Acknowledged
        } else {
            State::Under
        }
    }

    fn is_acknowledged(&self) -> bool {
        !self.out.has_to_send() && tcp::unacknowledged(self.socket()).is_ok_and(|left| left == 0)
    }
}

impl Tcp {
    /// Watches a connection until it has ended.
    pub(crate) fn enter_leaving(&mut self, mut leaving: Leaving) {
        if leaving.advance(&self.exposures) == State::Ended {
            return;
        }
        let Ok(key) = self.leaving.insert(leaving, u32::MAX) else { return };
        let Some(leaving) = self.leaving.get(key) else { return };
        let number = Watched::Leaving(key.index).number();
        let watched = self.epoll.watch(leaving.socket(), number);
        if watched.and_then(|()| self.watch_leaving(key.index)).is_err() {
            self.leaving.remove(key);
        }
        self.is_timer_stale = true;
    }

    fn watch_leaving(&self, index: u32) -> std::io::Result<()> {
        let key = self.leaving.key_at(index);
        let Some(leaving) = key.and_then(|key| self.leaving.get(key)) else { return Ok(()) };
        let number = Watched::Leaving(index).number();
        self.epoll.watch_room(leaving.socket(), number, leaving.out.has_to_send())
    }

    /// The socket of a connection that this worker has ended is ready.
    pub(crate) fn look_at_leaving(&mut self, index: u32) {
        let Some(key) = self.leaving.key_at(index) else { return };
        let Some(leaving) = self.leaving.get_mut(key) else { return };
        if leaving.advance(&self.exposures) == State::Ended {
            self.end_leaving(index);
        } else {
            let _ = self.watch_leaving(index);
        }
    }

    fn end_leaving(&mut self, index: u32) {
        let Some(leaving) = self.leaving.key_at(index).and_then(|key| self.leaving.remove(key))
        else {
            return;
        };
        self.epoll.forget(leaving.socket());
        if !leaving.is_acknowledged()
            && let Some(lost) = self.peers.lost_mut(leaving.peer)
        {
            *lost = leaving.messages;
        }
    }

    /// Ends the connections that took too long to leave.
    pub(crate) fn end_late_leaving(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let now = self.clock.time();
        for key in self.leaving.keys_where(|leaving| leaving.until <= now) {
            self.end_leaving(key.index);
        }
    }

    /// When [`Tcp::end_late_leaving`] has something to do next.
    pub(crate) fn next_leaving(&self) -> Option<Duration> {
        let keys = self.leaving.keys_where(|_| true);
        keys.into_iter().filter_map(|key| Some(self.leaving.get(key)?.until)).min()
    }

    /// Ends all connections, and waits until what was sent is acknowledged, for a limited time.
    /// During a panic it doesn't wait.
    pub(crate) fn leave_all(&mut self) {
        self.listeners.close(&self.epoll);
        self.drop_pending();
        for peer in self.peers.up() {
            self.leave_peer(peer);
        }
        self.timer.set(None);
        let start = Instant::now();
        let mut leaving = std::mem::take(&mut self.leaving);
        loop {
            end_acknowledged(&mut leaving, &self.exposures, &self.epoll);
            let is_late = start.elapsed() >= self.config.leave_timeout;
            if leaving.is_empty() || is_late || std::thread::panicking() {
                return;
            }
            let _ = sleep_until_readable(&[self.epoll.as_fd()], LOOK_TIME);
        }
    }
}

/// Closes the connections that are done. If others are still leaving, those stay open: their peers
/// may be leaving as well, and need this end to receive.
fn end_acknowledged(leaving: &mut Slab<Leaving>, exposures: &Exposures, epoll: &Epoll) {
    let mut is_done = true;
    for key in leaving.keys_where(|_| true) {
        let Some(entry) = leaving.get_mut(key) else { continue };
        match entry.advance(exposures) {
            State::Ended => {
                epoll.forget(entry.socket());
                leaving.remove(key);
            }
            State::Acknowledged => {}
            State::Under => is_done = false,
        }
    }
    if is_done {
        *leaving = Slab::default();
    }
}
