//! A datagram socket for each endpoint: packets of all senders arrive in one queue, in order.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::wire::{Name, PACKET_MAX};

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The receiver's socket has it.
    Yes,
    /// The receiver's socket is full.
    Full,
    /// There is no such endpoint.
    Gone,
}

/// An endpoint's socket. It never blocks.
pub(crate) struct Transport {
    socket: UnixDatagram,
    nic: String,
    room: Box<[u8]>,
}

impl Transport {
    /// The socket of an endpoint on a NIC. Endpoints of different NICs don't reach each other.
    pub(crate) fn new(nic: &str, name: Name) -> io::Result<Self> {
        let socket = UnixDatagram::bind_addr(&address(nic, name)?)?;
        socket.set_nonblocking(true)?;
        Ok(Transport { socket, nic: nic.into(), room: vec![0; PACKET_MAX + 1].into() })
    }

    /// Sends a packet.
    pub(crate) fn send(&self, to: Name, packet: &[u8]) -> Sent {
        let sent = address(&self.nic, to).and_then(|to| self.socket.send_to_addr(packet, &to));
        match sent {
            Ok(_) => Sent::Yes,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Sent::Full
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Sent::Full,
            Err(_) => Sent::Gone,
        }
    }

    /// The next packet's bytes. One that is longer than any packet comes cut off, which no packet
    /// is.
    pub(crate) fn receive(&mut self) -> Option<&[u8]> {
        let length = self.socket.recv(&mut self.room).ok()?;
        self.room.get(..length)
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn address(nic: &str, name: Name) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("tagmatch-cxi/{nic}/{:016x}", name.0))
}
