//! Peers that write into regions while their owner closes one.

use std::os::fd::{AsFd, OwnedFd};

use tagmatch_os::process;

use super::connection::Connection;
use super::ring::Ring;

/// How this worker puts a barrier on peers that say lightly that they write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriterBarrier {
    /// All peers fence.
    NotNeeded,
    /// By membarrier(2).
    Made,
    /// membarrier(2) is refused by now: what peers write can't be known any more.
    Failed,
}

impl WriterBarrier {
    /// Puts a barrier on the peers. `false`: that isn't possible.
    pub(crate) fn make(&mut self) -> bool {
        if *self == WriterBarrier::Made && process::barrier_everywhere().is_err() {
            *self = WriterBarrier::Failed;
        }
        *self != WriterBarrier::Failed
    }
}

/// A peer that may be in the middle of a write, and that was waited for in vain.
pub(crate) struct LateWriter {
    ring: Ring,
    /// The number of that write.
    write: u64,
    /// The process of the writer, if there is one in this namespace.
    pidfd: Option<OwnedFd>,
}

impl LateWriter {
    pub(crate) fn new(connection: &Connection, write: u64) -> Self {
        let pidfd = connection.process().and_then(|process| process::open(process.pid).ok());
        LateWriter { ring: connection.inbound.clone(), write, pidfd }
    }

    pub(crate) fn is_of(&self, connection: &Connection) -> bool {
        std::ptr::eq(self.ring.header(), connection.inbound.header())
    }

    pub(crate) fn may_write(&self) -> bool {
        let has_ended = || self.pidfd.as_ref().is_some_and(|fd| process::has_ended(fd.as_fd()));
        !self.ring.header().claims.0.regions.writing.is_over(self.write) && !has_ended()
    }
}
