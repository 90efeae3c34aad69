//! A peer, and the connection to it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use super::bell::{Bell, BellBit};
use super::copied::Copied;
use super::guests::Guest;
use super::ring::{Producer, PushError, Ring};
use tagmatch_device::{Address, DownReason, ReadMode};
use tagmatch_os::memory::SealedMemory;
use tagmatch_os::peer_socket::PeerSocket;
use tagmatch_os::process::{self, Pid};
use tagmatch_os::sleep::EventFd;
use tagmatch_os::socket;

/// One peer, as long as the device lives.
pub(crate) struct Lane {
    pub(crate) address: Address,
    pub(crate) stage: Stage,
}

/// Where a peer is in its life. It goes down this list and never back.
///
/// ```text
/// Connecting ──> Up ──> Draining ──> Down
///     └───────────┴───────────────────┘
/// ```
pub(crate) enum Stage {
    /// We try to reach it, or wait for it to reach us.
    Connecting(Box<Connecting>),
    /// Messages go both ways.
    Up(Box<Link>),
    /// It is gone; what it wrote before is still to be delivered.
    Draining(Box<Link>, DownReason),
    /// It is gone and was reported.
    Down,
}

impl Lane {
    /// The connection, if it stands.
    #[inline]
    pub(crate) fn link_mut(&mut self) -> Option<&mut Link> {
        match &mut self.stage {
            Stage::Up(link) => Some(link),
            _ => None,
        }
    }
}

/// An attempt to reach a peer.
pub(crate) struct Connecting {
    /// When to give up.
    pub(crate) deadline: Instant,
    /// When to try again, while there is no socket.
    pub(crate) retry_at: Instant,
    /// What the last attempt said, for the report.
    pub(crate) errno: i32,
    /// Our greeting was sent on this, and the answer is to come.
    pub(crate) asked: Option<Asked>,
    /// The peer has refused ours because its own is under way.
    pub(crate) crossed: bool,
}

/// A socket on which our greeting was sent, and the ring that it offered.
pub(crate) struct Asked {
    pub(crate) socket: PeerSocket,
    pub(crate) offer: Offer,
}

/// A ring for a peer to write to, and the bit of our bell for it.
pub(crate) struct Offer {
    pub(crate) memory: SealedMemory,
    pub(crate) ring: Arc<Ring>,
    pub(crate) bit: BellBit,
}

/// A process, pinned so that its number can't come to mean another.
pub(crate) struct Process {
    /// 0 if it is not in our pid namespace: then it can't be read directly.
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
}

impl Process {
    pub(crate) fn has_ended(&self) -> bool {
        process::has_ended(self.pidfd.as_fd())
    }

    pub(crate) fn inode(&self) -> u64 {
        process::inode(self.pidfd.as_fd())
    }
}

/// A connection that stands. The receiving end is among the [`Inboxes`](super::inboxes::Inboxes).
pub(crate) struct Link {
    pub(crate) producer: Producer,
    /// Longest message that the peer receives.
    pub(crate) message_max: u32,
    /// Whether each send needs a fence, since the peer can't put a barrier on us.
    pub(crate) is_fenced: bool,
    /// The peer's bell, and our bit in it.
    pub(crate) bell: Arc<Bell>,
    pub(crate) bell_bit: BellBit,
    /// The bit of our bell for this peer.
    pub(crate) inbox: BellBit,
    /// `None` for oneself.
    pub(crate) socket: Option<PeerSocket>,
    /// What wakes the owner of the bell in the socket's stead, if that is oneself.
    pub(crate) eventfd: Option<Arc<EventFd>>,
    /// `None` for oneself, and where the kernel doesn't tell.
    pub(crate) process: Option<Process>,
    /// Whose connection it counts as: `None` if we have made it.
    pub(crate) guest: Option<Guest>,
    pub(crate) read_mode: ReadMode,
    pub(crate) copied: Copied,
}

impl Link {
    /// Writes a message of the engine, then rings the peer's bell if it wants that. The caller has
    /// checked the length.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        header: &[u8],
        payload: &[u8],
        immediate: Option<u32>,
    ) -> Result<(), PushError> {
        self.producer.push(header, payload, immediate, false)?;
        self.notify();
        Ok(())
    }

    /// Rings the peer's bell if it wants that, after something was written.
    #[inline(always)]
    pub(crate) fn notify(&self) {
        if self.producer.is_bell_wanted(self.is_fenced) {
            self.ring_bell();
        }
    }

    #[cold]
    fn ring_bell(&self) {
        if self.bell.ring(self.bell_bit) {
            self.send_wake();
        }
    }

    /// Wakes the peer if it sleeps, because there is room for it again.
    pub(crate) fn wake(&self) {
        if self.bell.take_sleeper() {
            self.send_wake();
        }
    }

    fn send_wake(&self) {
        #[cfg(all(loom, test))]
        self.bell.wakes.send();
        if let Some(socket) = &self.socket {
            socket::send_wake(socket);
        }
        if let Some(eventfd) = &self.eventfd {
            eventfd.signal();
        }
    }
}
