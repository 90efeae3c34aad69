//! Sockets that end for all processes when their owner drops them, and whose closing doesn't block.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::background_close::close_in_background;
use super::process::Pid;
use super::socket;
use super::socket_calls::{SO_PASSRIGHTS, set_option};

/// A socket that is shut down when its owner drops it, for all processes that have it open.
/// Dropping it in a forked child shuts down nothing.
pub struct SharedSocket<const LISTENS: bool> {
    socket: ManuallyDrop<OwnedFd>,
    owner: Pid,
}

/// A socket that is connected to a peer.
pub type PeerSocket = SharedSocket<false>;

/// A socket that peers connect to.
pub type Listener = SharedSocket<true>;

impl<const LISTENS: bool> SharedSocket<LISTENS> {
    /// Takes over a connected or listening socket.
    pub fn new(socket: OwnedFd) -> Self {
        SharedSocket { socket: ManuallyDrop::new(socket), owner: Pid::own() }
    }

    /// Ends the connection, or refuses further connections, for all processes that have the socket
    /// open. Connections in a listener's queue can still be accepted.
    pub fn shut_down(&self) {
        socket::shut_down(&self.socket);
    }
}

impl PeerSocket {
    /// The socket, for the thread that the end of the connection is left to.
    pub fn into_descriptor(self) -> OwnedFd {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: the socket is taken once, here: `this` is neither used afterwards nor dropped.
        unsafe { ManuallyDrop::take(&mut this.socket) }
    }

    /// Makes the kernel refuse descriptors that the peer sends from now on. Does nothing before
    /// Linux 6.16, which has no `SO_PASSRIGHTS`.
    pub fn refuse_descriptors(&self) {
        let _ = set_option(self.as_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, 0);
    }
}

impl<const LISTENS: bool> AsFd for SharedSocket<LISTENS> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<const LISTENS: bool> Drop for SharedSocket<LISTENS> {
    fn drop(&mut self) {
        // SAFETY: the socket is taken once, here, and `self` is not used afterwards.
        let socket = unsafe { ManuallyDrop::take(&mut self.socket) };
        if self.owner != Pid::own() {
            return;
        }
        socket::shut_down(&socket);
        if !LISTENS {
            if !socket::holds_plain_packets(socket.as_fd()) {
                close_in_background(vec![socket]);
            }
        } else if let Ok(first) = socket::accept(socket.as_fd()) {
            // Closing the listener closes the connections in its queue, with the descriptors that
            // lie in them. That can block if there is one.
            close_in_background(vec![first, socket]);
        }
    }
}
