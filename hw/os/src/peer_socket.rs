//! Sockets that end for all processes when their owner drops them, and whose closing doesn't block.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::background_close::close_in_background;
use super::process::Pid;
use super::socket;
use super::socket_calls::{SO_PASSRIGHTS, set_option};

/// A socket that is connected to a peer. Dropping it ends the connection for all processes that
/// have the socket open; dropping it in a forked child ends nothing.
pub struct PeerSocket {
    socket: ManuallyDrop<OwnedFd>,
    owner: Pid,
}

impl PeerSocket {
    /// Takes over a connected socket.
    pub fn new(socket: OwnedFd) -> Self {
        PeerSocket { socket: ManuallyDrop::new(socket), owner: Pid::own() }
    }

    /// Makes the kernel refuse descriptors that the peer sends from now on. Does nothing before
    /// Linux 6.16, which has no `SO_PASSRIGHTS`.
    pub fn refuse_descriptors(&self) {
        let _ = set_option(self.as_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, 0);
    }

    /// Ends the connection for all processes that have the socket open.
    pub fn shut_down(&self) {
        socket::shut_down(&self.socket);
    }
}

impl AsFd for PeerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for PeerSocket {
    fn drop(&mut self) {
        // SAFETY: the socket is taken once, here, and `self` is not used afterwards.
        let socket = unsafe { ManuallyDrop::take(&mut self.socket) };
        if self.owner == Pid::own() {
            socket::shut_down(&socket);
            if !socket::holds_plain_packets(socket.as_fd()) {
                close_in_background(vec![socket]);
            }
        }
    }
}

/// A socket that peers connect to. Dropping it stops listening in all processes that have the
/// socket open; dropping it in a forked child stops nothing.
pub struct Listener {
    socket: ManuallyDrop<OwnedFd>,
    owner: Pid,
}

impl Listener {
    /// Takes over a listening socket.
    pub fn new(socket: OwnedFd) -> Self {
        Listener { socket: ManuallyDrop::new(socket), owner: Pid::own() }
    }

    /// Refuses further connections. Connections in the queue can still be accepted.
    pub fn shut_down(&self) {
        socket::shut_down(&self.socket);
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // SAFETY: the socket is taken once, here, and `self` is not used afterwards.
        let socket = unsafe { ManuallyDrop::take(&mut self.socket) };
        if self.owner == Pid::own() {
            socket::shut_down(&socket);
            // Closing the listener closes the connections in its queue, with the descriptors that
            // lie in them. That can block if there is one.
            if let Ok(first) = socket::accept(socket.as_fd()) {
                close_in_background(vec![first, socket]);
            }
        }
    }
}
