//! The two ends of a connection in one process share how far each of its two rings was read.
//! Each message says it to the peer.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Shared by the reading end and the writing end of a connection in one process. Both are
/// positions. They have cache lines of their own: the memory beside them could be another thread's.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Piggyback {
    /// How far this process has read the peer's ring. The reading end stores it.
    taken: AtomicU32,
    /// How far the peer has read this process's ring, by its last message. The reading end
    /// stores it, and the writing end checks it.
    peer_progress: AtomicU32,
}

impl Piggyback {
    /// Both ends are at this position.
    #[cfg(all(test, not(loom)))]
    pub(super) fn starting_at(start: u32) -> Self {
        Piggyback { taken: start.into(), peer_progress: start.into() }
    }

    /// Stands for a message that this process sends and the peer takes.
    #[cfg(test)]
    pub(crate) fn tell(&self, peer: &Piggyback) {
        peer.peer_progress.store(self.taken(), Relaxed);
    }

    /// A message was taken. `peer_progress`: how far the peer has read, by the word of the message.
    #[inline(always)]
    pub(super) fn take(&self, taken: u32, peer_progress: u32) {
        self.taken.store(taken, Relaxed);
        self.peer_progress.store(peer_progress, Relaxed);
    }

    #[inline(always)]
    pub(super) fn taken(&self) -> u32 {
        self.taken.load(Relaxed)
    }

    #[inline(always)]
    pub(super) fn peer_progress(&self) -> u32 {
        self.peer_progress.load(Relaxed)
    }
}
