//! What an endpoint is bound to, and where the ends of its operations go.

use std::sync::Arc;

use tagmatch_device::OrBug;
use tagmatch_device::slab::{Key, Slab};
use tagmatch_ofi_sys as sys;

use super::counter::Counter;
use super::entry::Entry;
use super::output::Output;
use super::queue::Queue;
use super::vector::Vector;
use crate::hints::Opened;

/// The least room of a multi-receive buffer, in bytes, until a program sets another one.
const MULTI_MIN: usize = 64;

/// The completion queue of one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    /// The queue.
    pub(crate) queue: Key,
    /// `FI_SELECTIVE_COMPLETION`: an operation has an entry only if its flags have `FI_COMPLETION`.
    pub(crate) selective: bool,
}

/// A counter, and the operations that it counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// The counter.
    pub(crate) counter: Key,
    /// `FI_SEND`, `FI_RECV` or both; other flags name operations that there are not.
    pub(crate) flags: u64,
}

/// What libfabric knows of an endpoint: how it was opened, and what it is bound to.
#[derive(Debug)]
pub struct Bindings {
    /// The process that has opened the endpoint.
    process: u32,
    /// The settings that it was opened with.
    pub opened: Opened,
    /// Its address vector.
    pub(crate) vector: Option<Key>,
    /// The completion queue of its sends.
    pub(crate) transmit: Option<Binding>,
    /// The completion queue of its receives.
    pub(crate) receive: Option<Binding>,
    /// Its counters.
    pub(crate) counters: Vec<Counts>,
    /// Event queues that are bound to the endpoint. They have no events of it.
    pub(crate) events: Vec<Arc<()>>,
    /// `fi_enable` was called.
    pub(crate) is_enabled: bool,
    /// A thread sleeps, or may sleep, until a queue of this endpoint has an entry.
    pub is_armed: bool,
    /// A multi-receive buffer with less room than this is given back (`FI_OPT_MIN_MULTI_RECV`).
    pub multi_min: usize,
}

/// Where the ends of an endpoint's operations go. `A`: an address, as the provider has it.
pub struct Sinks<'a, A> {
    pub(crate) queues: &'a mut Slab<Queue>,
    pub(crate) counters: &'a mut Slab<Counter>,
    /// The address vectors of the domain.
    pub vectors: &'a Slab<Vector<A>>,
    /// A caller reads entries of this completion queue now.
    pub(crate) reader: Option<(Key, &'a mut Output)>,
}

impl<A> Sinks<'_, A> {
    /// For how many entries the caller that reads now has room, if it reads all queues of the
    /// endpoint.
    #[inline]
    pub fn room(&self, bound: &Bindings) -> Option<usize> {
        let (key, output) = self.reader.as_ref()?;
        bound.queues().all(|queue| queue == *key).then(|| output.room())
    }
}

impl Bindings {
    /// An endpoint of this process that is bound to nothing yet.
    pub fn new(opened: Opened) -> Self {
        Bindings {
            process: std::process::id(),
            opened,
            vector: None,
            transmit: None,
            receive: None,
            counters: Vec::new(),
            events: Vec::new(),
            is_enabled: false,
            is_armed: false,
            multi_min: MULTI_MIN,
        }
    }

    /// Whether this process is a forked child of the one that has opened the endpoint.
    pub fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// The completion queues of both directions.
    pub(crate) fn queues(&self) -> impl Iterator<Item = Key> {
        [self.transmit, self.receive].into_iter().flatten().map(|binding| binding.queue)
    }

    /// The endpoint's address vector.
    pub fn vector_in<'a, A>(&self, vectors: &'a Slab<Vector<A>>) -> Option<&'a Vector<A>> {
        self.vector.and_then(|vector| vectors.get(vector))
    }

    /// Whether a counter counts operations of this direction.
    pub(crate) fn is_counted(&self, direction: u64) -> bool {
        self.counters.iter().any(|counts| counts.flags & direction != 0)
    }

    /// Whether `fi_enable` was called.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Whether the endpoint is enabled and its sends are told or counted.
    #[inline]
    pub fn may_send(&self) -> bool {
        self.is_enabled && (self.transmit.is_some() || self.is_counted(sys::FI_SEND))
    }

    /// Whether the endpoint is enabled and its receives are told or counted.
    #[inline]
    pub fn may_receive(&self) -> bool {
        self.is_enabled && (self.receive.is_some() || self.is_counted(sys::FI_RECV))
    }

    /// Whether the success of a send with these flags is an entry.
    #[inline]
    pub fn send_tells(&self, flags: u64) -> bool {
        self.transmit.is_some_and(|binding| !binding.selective) || flags & sys::FI_COMPLETION != 0
    }

    /// Whether the success of a receive with these flags is an entry.
    #[inline]
    pub fn receive_tells(&self, flags: u64) -> bool {
        self.receive.is_some_and(|binding| !binding.selective) || flags & sys::FI_COMPLETION != 0
    }

    /// Puts an entry into the completion queue of its direction, and counts it.
    #[inline(always)]
    pub fn tell<A>(&self, sinks: &mut Sinks<'_, A>, entry: Entry, tells: bool) {
        self.count(sinks, entry.flags, entry.failure.is_none());
        self.put(sinks, entry, tells);
    }

    /// Puts an entry into the completion queue of its direction, without counting it.
    #[inline(always)]
    pub fn put<A>(&self, sinks: &mut Sinks<'_, A>, entry: Entry, tells: bool) {
        if tells || entry.failure.is_some() {
            let is_send = entry.flags & sys::FI_SEND != 0;
            let binding = if is_send { self.transmit } else { self.receive };
            let Some(Binding { queue: key, .. }) = binding else { return };
            let queue = sinks.queues.get_mut(key).or_bug("a bound queue is not closed");
            let Ok(queue) = queue else { return };
            if let Some((reads, output)) = &mut sinks.reader
                && *reads == key
                && queue.len() == 0
                && entry.failure.is_none()
                && output.put(&entry)
            {
                return;
            }
            queue.push(entry);
        }
    }

    /// Counts an operation that has ended, or an injected message.
    #[inline]
    pub fn count<A>(&self, sinks: &mut Sinks<'_, A>, flags: u64, is_success: bool) {
        if !self.counters.is_empty() {
            self.count_in_each(sinks, flags, is_success);
        }
    }

    fn count_in_each<A>(&self, sinks: &mut Sinks<'_, A>, flags: u64, is_success: bool) {
        for counts in &self.counters {
            if counts.flags & flags & (sys::FI_SEND | sys::FI_RECV) != 0
                && let Some(counter) = sinks.counters.get_mut(counts.counter)
            {
                counter.add(is_success);
            }
        }
    }
}
