//! The socket and the pidfd of a connection, after the handshake.
//!
//! They only tell how the connection ends: by a last packet, or because the peer's worker or its
//! process has ended. A worker with few peers watches them itself. With more peers, a thread that
//! has a descriptor table of its own does ([`watching`](super::watching)), so a worker needs
//! no more descriptors, whatever the number of its peers.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tagmatch_device::{DownReason, PeerId};
use tagmatch_os::peer_socket::PeerSocket;
use tagmatch_os::socket::{self, LastWord};
use tagmatch_os::{event, process};

use super::orders::{LifelineOrder, LifelineThread};

/// A thread sees an end once by each descriptor, and once if it can't watch one of them.
const ENDS_SEEN_MAX: u32 = 3;

/// The socket of a connection, and the pidfd of the peer's process, if the kernel gives one.
pub(crate) struct EndDescriptors {
    pub(crate) socket: PeerSocket,
    pub(crate) pidfd: Option<OwnedFd>,
    /// Whether the worker watches the socket.
    pub(crate) is_socket_watched: bool,
    /// Whether the worker watches the pidfd.
    pub(crate) is_pidfd_watched: bool,
}

/// Where the descriptors of a connection are.
enum Whereabouts {
    /// In the table of the program.
    Here(EndDescriptors),
    /// In the table of a thread.
    There(Arc<LifelineThread<Lifeline>>),
    Closed,
}

/// How a connection ends, shared by the worker and the thread that watches it.
pub(crate) struct Lifeline {
    peer: PeerId,
    place: Mutex<Whereabouts>,
    /// How often the thread has seen the end.
    ends_seen: AtomicU32,
}

impl Lifeline {
    pub(crate) fn new(peer: PeerId, descriptors: EndDescriptors) -> Arc<Self> {
        let place = Mutex::new(Whereabouts::Here(descriptors));
        Arc::new(Lifeline { peer, place, ends_seen: AtomicU32::new(0) })
    }

    pub(crate) fn peer(&self) -> PeerId {
        self.peer
    }

    fn place(&self) -> MutexGuard<'_, Whereabouts> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `look` with the descriptors, if they are in the program's table.
    pub(crate) fn look_here<T>(&self, look: impl FnOnce(&EndDescriptors) -> T) -> Option<T> {
        match &*self.place() {
            Whereabouts::Here(descriptors) => Some(look(descriptors)),
            _ => None,
        }
    }

    /// Calls `watch` with the descriptors, if they are in the program's table.
    pub(crate) fn watch_here(&self, watch: impl FnOnce(&mut EndDescriptors)) {
        if let Whereabouts::Here(descriptors) = &mut *self.place() {
            watch(descriptors);
        }
    }

    /// Whether the descriptors are in the program's table, so that [`Lifeline::has_ended`] is
    /// certain.
    pub(crate) fn is_here(&self) -> bool {
        matches!(*self.place(), Whereabouts::Here(_))
    }

    /// Whether a thread has the descriptors.
    pub(super) fn is_watched_by(&self, thread: &Arc<LifelineThread<Lifeline>>) -> bool {
        matches!(&*self.place(), Whereabouts::There(other) if Arc::ptr_eq(other, thread))
    }

    /// Leaves the descriptors to a thread. They stay here if it can't take them now.
    pub(crate) fn move_to(self: &Arc<Self>, thread: &Arc<LifelineThread<Lifeline>>) -> bool {
        let mut place = self.place();
        let Whereabouts::Here(EndDescriptors { socket, pidfd, .. }) = &*place else { return true };
        if !thread.take(self, socket.as_fd(), pidfd.as_ref().map(AsFd::as_fd)) {
            return false;
        }
        let before = std::mem::replace(&mut *place, Whereabouts::There(Arc::clone(thread)));
        if let Whereabouts::Here(EndDescriptors { socket, .. }) = before {
            // The thread has the socket open: this closes a number, and ends nothing.
            drop(socket.into_descriptor());
        }
        true
    }

    /// How the connection has ended, if it has. Only for descriptors in the program's table: the
    /// thread reports the other ends.
    pub(crate) fn end_here(&self) -> Option<DownReason> {
        self.look_here(|descriptors| {
            let pidfd = descriptors.pidfd.as_ref().map(AsFd::as_fd);
            // Before its end, the process may have sent the packet by which its worker leaves.
            let is_dead = pidfd.is_some_and(event::is_readable);
            reason_of(socket::last_word(descriptors.socket.as_fd()), is_dead)
        })?
    }

    /// Whether the peer's process has ended, or its worker has hung up. A thread may notice that
    /// late.
    pub(crate) fn has_ended(&self) -> bool {
        let here = self.look_here(|EndDescriptors { socket, pidfd, .. }| match pidfd {
            Some(pidfd) => process::has_ended_or_hung_up(pidfd.as_fd(), socket.as_fd()),
            None => event::is_readable(socket.as_fd()),
        });
        here.unwrap_or_else(|| self.ends_seen.load(Acquire) > 0)
    }

    /// The thread has seen the end.
    pub(crate) fn note_end(&self) {
        let seen = self.ends_seen.fetch_add(1, Release);
        debug_assert!(seen < ENDS_SEEN_MAX, "the end of {:?} is seen again and again", self.peer);
    }

    /// Says that this side ends the connection in order. All messages were written before.
    pub(crate) fn say_bye(self: &Arc<Self>) {
        match &*self.place() {
            Whereabouts::Here(descriptors) => socket::send_bye(&descriptors.socket),
            Whereabouts::There(thread) => thread.tell(LifelineOrder::Bye(Arc::clone(self))),
            Whereabouts::Closed => {}
        }
    }

    /// Ends the connection and closes its descriptors.
    pub(crate) fn close(self: &Arc<Self>) {
        match std::mem::replace(&mut *self.place(), Whereabouts::Closed) {
            Whereabouts::There(thread) => thread.tell(LifelineOrder::Close(Arc::clone(self))),
            Whereabouts::Here(_) | Whereabouts::Closed => {}
        }
    }
}

/// Why a connection is at its end.
pub(crate) fn reason_of(word: LastWord, is_dead: bool) -> Option<DownReason> {
    match word {
        LastWord::Bye => Some(DownReason::Left),
        LastWord::End => Some(DownReason::Gone),
        LastWord::Nonsense => {
            Some(DownReason::Misbehaved { what: "an unexpected packet on the socket" })
        }
        LastWord::None => is_dead.then_some(DownReason::Gone),
    }
}
