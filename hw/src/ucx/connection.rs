//! A connection of the handshake: packets over a stream.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use super::hello::{PACKET_MAX, Packet};
use crate::PeerId;
use crate::os::{socket, stream};

/// Bytes taken at a time.
const PIECE: usize = 4096;

pub(super) struct Connection {
    socket: OwnedFd,
    /// Whose it is; a stranger's until it has said who it is.
    pub(super) owner: Option<PeerId>,
    /// When a stranger is sent away.
    pub(super) deadline: Instant,
    /// Over a name on this machine, or over TCP.
    pub(super) is_local: bool,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// Why nothing can be sent any more.
    errno: Option<i32>,
}

/// What came over a connection.
pub(super) enum Heard {
    Packet(Packet),
    /// Nothing more for now.
    Nothing,
    /// It has ended; the error number, 0 for an orderly end.
    End(i32),
    /// It broke a rule.
    Misbehaved(&'static str),
}

impl Connection {
    pub(super) fn new(
        socket: OwnedFd,
        owner: Option<PeerId>,
        is_local: bool,
        deadline: Instant,
    ) -> Self {
        Connection {
            socket,
            owner,
            deadline,
            is_local,
            inbox: Vec::new(),
            outbox: Vec::new(),
            errno: None,
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a packet, or keeps it for [`Connection::flush`].
    pub(super) fn say(&mut self, packet: &Packet) {
        self.outbox.extend_from_slice(&packet.emit());
    }

    /// Whether all has been sent that was said. An error is told by [`Connection::hear`].
    pub(super) fn flush(&mut self) -> bool {
        while !self.outbox.is_empty() {
            match stream::send(self.socket.as_fd(), &self.outbox) {
                Ok(count) => drop(self.outbox.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // Not connected yet.
                Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => return false,
                Err(error) => {
                    self.errno = error.raw_os_error();
                    self.outbox.clear();
                }
            }
        }
        true
    }

    /// The next packet, or why there is none.
    pub(super) fn hear(&mut self) -> Heard {
        loop {
            match Packet::take(&mut self.inbox) {
                Ok(Some(packet)) => return Heard::Packet(packet),
                Ok(None) if self.inbox.len() > PACKET_MAX + 4 => {
                    return Heard::Misbehaved("a greeting that is too long");
                }
                Ok(None) => {}
                Err(what) => return Heard::Misbehaved(what),
            }
            let mut piece = [0; PIECE];
            match stream::receive(self.socket.as_fd(), &mut piece) {
                // What a send has told isn't told again.
                Ok(0) => return Heard::End(self.errno.unwrap_or(0)),
                Ok(count) => self.inbox.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Heard::Nothing,
                // Not connected yet, or never.
                Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
                    return self.errno.map_or(Heard::Nothing, Heard::End);
                }
                Err(error) => return Heard::End(error.raw_os_error().unwrap_or(libc::EIO)),
            }
        }
    }

    /// Ends it for all who hold it open, forked children included.
    pub(super) fn end(self) {
        socket::shut_down(&self.socket);
    }
}
