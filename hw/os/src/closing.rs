//! Closing descriptors that a peer had a hand in, without waiting for the peer.
//!
//! close(2) may block for as long as the maker of a file likes: a TCP socket with `SO_LINGER` waits for
//! its other end, a file of FUSE waits for its server. The kernel also closes a descriptor that lies in
//! the queue of a unix socket when it closes that socket. So a descriptor that came from a peer, and a
//! socket in which one may lie, are closed by a thread that nobody waits for.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use super::process::Pid;
use super::socket;

/// Threads that close at a time. Each ends when nothing waits to be closed.
const CLOSERS_MAX: usize = 16;

static CLOSING: Mutex<Closing> = Mutex::new(Closing { waiting: Vec::new(), closers: 0 });

struct Closing {
    /// Descriptors that no thread closes yet. Those that one peer sent together stay together: while one of
    /// them blocks a thread, the others block no other thread.
    waiting: Vec<Vec<OwnedFd>>,
    closers: usize,
}

fn closing() -> MutexGuard<'static, Closing> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether as many threads close as may: one more descriptor would have to wait. No connection is accepted then.
pub fn is_busy() -> bool {
    closing().closers >= CLOSERS_MAX
}

/// Closes descriptors on another thread. If that can't be had, they wait for a thread that closes others;
/// nothing is accepted meanwhile that could bring more, so they are few.
fn close_elsewhere(descriptors: Vec<OwnedFd>) {
    let mut closing = closing();
    closing.waiting.push(descriptors);
    let spawn = || thread::Builder::new().name("tagmatch-close".into()).spawn(close_all);
    if closing.closers < CLOSERS_MAX && spawn().is_ok() {
        closing.closers += 1;
    }
}

fn close_all() {
    loop {
        let mut closing = closing();
        let Some(descriptors) = closing.waiting.pop() else {
            closing.closers -= 1;
            return;
        };
        // Before the descriptors are closed, which may block.
        drop(closing);
        drop(descriptors);
    }
}

/// Descriptors that a peer has sent, of which nothing is known yet.
pub struct Unchecked(pub Vec<OwnedFd>);

impl Unchecked {
    /// The descriptors, once the caller knows that to close them can't block.
    pub fn into_checked(mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Unchecked {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            close_elsewhere(std::mem::take(&mut self.0));
        }
    }
}

/// A socket that is connected to a peer. Dropping it ends the connection for all processes that have the
/// socket open; dropping it in a forked child ends nothing.
pub struct PeerSocket {
    socket: ManuallyDrop<OwnedFd>,
    owner: Pid,
}

impl PeerSocket {
    /// Takes over a connected socket.
    pub fn new(socket: OwnedFd) -> Self {
        PeerSocket { socket: ManuallyDrop::new(socket), owner: Pid::own() }
    }

    /// Has the kernel refuse descriptors that the peer sends from now on, where it can (Linux 6.16).
    pub fn refuse_descriptors(&self) {
        let _ = socket::set_option(self.as_fd(), socket::SO_PASSRIGHTS, 0);
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
        // SAFETY: taken once, here; `self` is not used afterwards.
        let socket = unsafe { ManuallyDrop::take(&mut self.socket) };
        if self.owner == Pid::own() {
            socket::shut_down(&socket);
            if !socket::holds_plain_packets(socket.as_fd()) {
                close_elsewhere(vec![socket]);
            }
        }
    }
}

/// A socket that peers connect to. Dropping it ends it for all processes that have it open; dropping it
/// in a forked child ends nothing.
pub struct Listener {
    socket: ManuallyDrop<OwnedFd>,
    owner: Pid,
}

impl Listener {
    /// Takes over a listening socket.
    pub fn new(socket: OwnedFd) -> Self {
        Listener { socket: ManuallyDrop::new(socket), owner: Pid::own() }
    }

    /// Takes no connections any more. Those that wait can still be accepted.
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
        // SAFETY: taken once, here; `self` is not used afterwards.
        let socket = unsafe { ManuallyDrop::take(&mut self.socket) };
        if self.owner == Pid::own() {
            socket::shut_down(&socket);
            // The connections in its queue are closed with it.
            if let Ok(first) = socket::accept(socket.as_fd()) {
                close_elsewhere(vec![first, socket]);
            }
        }
    }
}
