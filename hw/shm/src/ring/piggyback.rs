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
    /// How far the peer has read this process's ring, as its last message said. The reading end
    /// stores it, and the writing end checks it.
    heard: AtomicU32,
}

impl Piggyback {
    /// Both ends are at this position.
    #[cfg(all(test, not(loom)))]
    pub(super) fn starting_at(start: u32) -> Self {
        Piggyback { taken: start.into(), heard: start.into() }
    }

    /// Stands for a message that this process sends and the peer takes.
    #[cfg(test)]
    pub(crate) fn tell(&self, peer: &Piggyback) {
        peer.heard.store(self.taken(), Relaxed);
    }

    /// A message was taken, whose word has said `heard`.
    #[inline(always)]
    pub(super) fn take(&self, taken: u32, heard: u32) {
        self.taken.store(taken, Relaxed);
        self.heard.store(heard, Relaxed);
    }

    #[inline(always)]
    pub(super) fn taken(&self) -> u32 {
        self.taken.load(Relaxed)
    }

    #[inline(always)]
    pub(super) fn heard(&self) -> u32 {
        self.heard.load(Relaxed)
    }
}
