//! A completion queue.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use tagmatch_device::slab::Key;
use tagmatch_ofi_sys::calls::{Errno, Result};
use tagmatch_os::event::Epoll;
use tagmatch_os::sleep::EventFd;

use super::entry::Entry;
use super::output::Output;

/// A completion queue. It never overruns: the entries that wait take memory of this process, and an
/// operation adds at most one entry (for a multi-receive buffer: one for each message).
#[derive(Default)]
pub(crate) struct Queue {
    /// The oldest entries, as long as they are of sends that have succeeded at once: context and
    /// flags are all that such an entry tells.
    sent: VecDeque<(usize, u64)>,
    /// The entries behind them.
    entries: VecDeque<Entry>,
    /// The endpoints whose operations end here, each once for each binding.
    pub(crate) endpoints: Vec<Key>,
    /// What a thread sleeps on. `None`: no thread may sleep (`FI_WAIT_NONE`).
    pub(crate) waiter: Option<Arc<Waiter>>,
    /// A thread sleeps, or may sleep, on the descriptor: an entry has to make it readable.
    pub(crate) is_armed: bool,
    /// Threads that sleep on the descriptor.
    pub(crate) sleepers: usize,
    /// `fi_cq_signal` was called.
    pub(crate) is_signalled: bool,
}

/// The descriptor of a completion queue: readable once an endpoint has an event, and once another
/// thread has added an entry.
pub(crate) struct Waiter {
    epoll: Epoll,
    event: EventFd,
}

impl Waiter {
    /// A descriptor that watches no endpoint yet.
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let event = EventFd::new()?;
        epoll.watch(event.as_fd(), 0)?;
        Ok(Waiter { epoll, event })
    }

    /// Watches an endpoint's event descriptor.
    pub(crate) fn watch(&self, events: BorrowedFd<'_>) -> io::Result<()> {
        match self.epoll.watch(events, 1) {
            // The endpoint is bound twice, for sends and for receives.
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
            watched => watched,
        }
    }

    /// Stops watching an endpoint.
    pub(crate) fn forget(&self, events: BorrowedFd<'_>) {
        self.epoll.forget(events);
    }

    /// Makes the descriptor readable.
    pub(crate) fn wake(&self) {
        self.event.signal();
    }

    /// Earlier wakes don't make the descriptor readable any more.
    pub(crate) fn clear(&self) {
        self.event.clear();
    }

    /// The descriptor that is readable once somebody has called [`Waiter::wake`].
    pub(crate) fn wakes(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl AsFd for Waiter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Queue {
    /// A queue without entries.
    pub(crate) fn new(waiter: Option<Arc<Waiter>>) -> Self {
        Queue { waiter, ..Queue::default() }
    }

    /// Adds an entry, and wakes who sleeps.
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) {
        self.entries.push_back(entry);
        if self.is_armed {
            self.wake();
        }
    }

    /// Adds the entry of a send that has succeeded at once: its context and its flags.
    #[inline(always)]
    pub(crate) fn push_sent(&mut self, context: usize, flags: u64) {
        if !self.entries.is_empty() {
            return self.push(Entry::new(context, flags));
        }
        self.sent.push_back((context, flags));
        if self.is_armed {
            self.wake();
        }
    }

    /// Wakes who sleeps on the descriptor.
    #[cold]
    pub(crate) fn wake(&mut self) {
        if let Some(waiter) = &self.waiter {
            waiter.wake();
        }
    }

    /// The descriptor is not waited for any more.
    pub(crate) fn disarm(&mut self) {
        self.is_armed = false;
        self.clear();
    }

    /// Entries so far are known: they don't make the descriptor readable any more.
    pub(crate) fn clear(&mut self) {
        if let Some(waiter) = &self.waiter {
            waiter.clear();
        }
    }

    /// Moves entries that wait to a caller's array, up to an error entry.
    #[inline(always)]
    pub(crate) fn take(&mut self, output: &mut Output) {
        while let Some((context, flags)) = self.sent.front() {
            if !output.put(&Entry::new(*context, *flags)) {
                return;
            }
            self.sent.pop_front();
        }
        if !self.entries.is_empty() {
            self.take_entries(output);
        }
    }

    #[inline(never)]
    fn take_entries(&mut self, output: &mut Output) {
        while let Some(entry) = self.entries.front() {
            if entry.failure.is_some() || !output.put(entry) {
                output.shut();
                return;
            }
            self.entries.pop_front();
        }
    }

    /// The answer to a read: how many entries the caller has got, or that there are none, or that
    /// the next one is an error entry.
    #[inline]
    pub(crate) fn taken(&self, output: &Output) -> Result<usize> {
        match (output.taken(), self.entries.front()) {
            (0, _) if !self.sent.is_empty() => Ok(0),
            (0, None) => Err(Errno::AGAIN),
            (0, Some(first)) if first.failure.is_some() => Err(Errno::AVAIL),
            (taken, _) => Ok(taken),
        }
    }

    /// The oldest entry, unless it is of a send that has succeeded at once.
    #[inline]
    pub(crate) fn first(&self) -> Option<&Entry> {
        self.entries.front().filter(|_| self.sent.is_empty())
    }

    /// Whether one of the oldest `count` entries is an error entry.
    pub(crate) fn has_failure(&self, count: usize) -> bool {
        let count = count.saturating_sub(self.sent.len());
        self.entries.iter().take(count).any(|entry| entry.failure.is_some())
    }

    /// Takes the oldest entry out.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }

    /// How many entries wait.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.sent.len() + self.entries.len()
    }
}
