//! A completion queue.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tagmatch_ofi_sys::calls::{Errno, Result};
use tagmatch_os::event::Epoll;

use crate::effects::Completion;

/// An endpoint, as the queue that makes its progress knows it.
pub(crate) trait Progress: Send + Sync {
    /// Makes progress.
    fn progress(&self);
    /// Whether the endpoint goes on without a packet: nobody may sleep.
    fn is_busy(&self) -> bool;
}

/// A completion with its source as the endpoint's address vector has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) completion: Completion,
    pub(crate) source: u64,
}

/// A completion queue. Reading it makes progress on its endpoints, and nothing else does.
pub(crate) struct Queue {
    entries: Mutex<VecDeque<Entry>>,
    endpoints: Mutex<Vec<Weak<dyn Progress>>>,
    /// For programs that sleep: readable when a packet has arrived.
    epoll: Option<Epoll>,
}

impl Queue {
    /// An empty queue, with a descriptor to sleep on or without one.
    pub(crate) fn new(has_descriptor: bool) -> std::io::Result<Self> {
        let epoll = if has_descriptor { Some(Epoll::new()?) } else { None };
        Ok(Queue { entries: Mutex::default(), endpoints: Mutex::default(), epoll })
    }

    fn entries(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds an endpoint. `socket`: what wakes a program that sleeps.
    pub(crate) fn bind(
        &self,
        endpoint: Weak<dyn Progress>,
        socket: Option<BorrowedFd<'_>>,
    ) -> Result<()> {
        if let (Some(epoll), Some(socket)) = (&self.epoll, socket) {
            epoll.watch(socket, 0).map_err(|_| Errno::NO_MEMORY)?;
        }
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner).push(endpoint);
        Ok(())
    }

    fn bound(&self) -> Vec<Arc<dyn Progress>> {
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.retain(|endpoint| endpoint.strong_count() > 0);
        endpoints.iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether an endpoint is bound.
    pub(crate) fn is_bound(&self) -> bool {
        !self.bound().is_empty()
    }

    /// Adds a completion.
    pub(crate) fn push(&self, entry: Entry) {
        self.entries().push_back(entry);
    }

    /// Makes progress on the endpoints.
    pub(crate) fn progress(&self) {
        self.bound().iter().for_each(|endpoint| endpoint.progress());
    }

    /// Whether a program may sleep on the descriptor.
    pub(crate) fn may_sleep(&self) -> bool {
        // The lock of the entries is inside that of an endpoint.
        let is_empty = self.entries().is_empty();
        is_empty && !self.bound().iter().any(|endpoint| endpoint.is_busy())
    }

    /// Takes successes from the front, for as long as `take` has room for them.
    ///
    /// # Errors
    /// The first completion is a failure (`FI_EAVAIL`), or there is none (`FI_EAGAIN`).
    pub(crate) fn read(&self, room: usize, mut take: impl FnMut(usize, &Entry)) -> Result<usize> {
        let mut entries = self.entries();
        let is_success = |entry: &&Entry| entry.completion.failure.is_none();
        let mut count = 0;
        while count < room
            && let Some(entry) = entries.front().filter(is_success)
        {
            take(count, entry);
            entries.pop_front();
            count += 1;
        }
        match entries.front() {
            _ if count > 0 => Ok(count),
            None => Err(Errno::AGAIN),
            Some(entry) if entry.completion.failure.is_some() => Err(Errno::AVAIL),
            Some(_) => Ok(0),
        }
    }

    /// Takes the failure at the front.
    pub(crate) fn take_failure(&self) -> Result<Entry> {
        let mut entries = self.entries();
        let is_failure = entries.front().is_some_and(|entry| entry.completion.failure.is_some());
        if is_failure { entries.pop_front().ok_or(Errno::AGAIN) } else { Err(Errno::AGAIN) }
    }

    /// The descriptor to sleep on.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.as_ref().map(AsFd::as_fd)
    }
}
