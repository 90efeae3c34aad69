//! The descriptors that were found ready, and are still to be looked at.

use tagmatch_os::event::{BATCH, Epoll, ReadyDescriptor};

use super::numbers::Watched;

/// Descriptors that were ready when the kernel was last asked.
pub(crate) struct ReadyList {
    found: [ReadyDescriptor; BATCH],
    next: usize,
    count: usize,
}

impl Default for ReadyList {
    fn default() -> Self {
        ReadyList { found: [ReadyDescriptor::default(); BATCH], next: 0, count: 0 }
    }
}

impl ReadyList {
    /// Whether a descriptor is still to be looked at.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.next >= self.count
    }

    /// Asks the kernel. `false` if nothing is ready.
    #[inline]
    pub(crate) fn fill(&mut self, epoll: &Epoll) -> bool {
        self.count = epoll.ready_with_room(&mut self.found);
        self.next = 0;
        self.count > 0
    }

    /// The next descriptor.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(Watched, ReadyDescriptor)> {
        let ready = *self.found[..self.count].get(self.next)?;
        self.next += 1;
        Some((Watched::of(ready.number), ready))
    }
}
