//! Which of the accepted messages have not left this process yet, and which never will.
//!
//! A message has left once it reaches its peer, if the peer lives, whatever this process does next:
//! 1. It was sent from its peer's backlog, behind which it had to wait for a connection, for credit
//!    or for room.
//! 2. If the peer reads its payload out of this process's memory (a rendezvous), the FIN has come.
//! 3. The device says that it has left ([`Device::flush`](tagmatch_device::Device::flush)), which
//!    may take an acknowledgement.
//!
//! Messages to oneself don't count, nor do acknowledgements of messages that have left.

use tagmatch_device::PeerId;
use tagmatch_device::slab::Key;

use crate::error::PeerFault;

/// Messages to one peer that have not left this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// The peer.
    pub peer: PeerId,
    /// How many messages, at least 1.
    pub messages: usize,
    /// Why the messages have not left, or why they are lost.
    pub why: WhyUnsent,
}

/// Why messages have not left this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WhyUnsent {
    /// The peer is not connected yet.
    #[error("not connected yet")]
    NotConnected,
    /// The peer is connected. It has not made room for the messages, has not received and read the
    /// large ones, or its transport has not acknowledged them.
    #[error("connected, but has not taken them")]
    NotTaken,
    /// The peer is down: the messages are lost, or it isn't known whether they arrived.
    #[error("down: {0}")]
    Down(PeerFault),
}

/// A flush that is under way: for each peer, the messages that were accepted before it began.
#[derive(Clone, Debug)]
pub struct Flushing {
    pub(crate) peers: Vec<PeerFlush>,
}

/// The part of a flush that concerns one peer.
#[derive(Clone, Debug)]
pub(crate) struct PeerFlush {
    pub(crate) peer: PeerId,
    /// The value that `sends_gone` of the peer reaches when the sends have gone that were in the
    /// backlog when the flush began.
    pub(crate) sends_gone: u64,
    /// The rendezvous that have to end. `None` until the sends have gone that were in the backlog
    /// when the flush began.
    pub(crate) operations: Option<Vec<Key>>,
    /// See [`Device::flush`](tagmatch_device::Device::flush).
    pub(crate) mark: Option<u64>,
}

/// The calls of both engines about messages that have not left.
pub trait FlushEngine {
    /// Begins a flush of everything that was accepted by now.
    fn begin_flush(&mut self) -> Flushing;

    /// Whether everything that was accepted before the flush began has left, or is lost. A device
    /// that matches by itself also waits for later messages, as long as it always has some. Makes
    /// no progress by itself.
    fn is_flushed(&mut self, flushing: &mut Flushing) -> bool;

    /// The messages that have not left yet, by peer. Looks at all peers and operations.
    fn unsent(&mut self) -> Vec<Unsent>;

    /// The messages that were lost because their peer went down. Each peer is told of once.
    fn take_lost(&mut self) -> Vec<Unsent>;
}
