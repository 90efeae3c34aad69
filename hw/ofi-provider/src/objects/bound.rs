//! What an endpoint is bound to, and where the ends of its operations go.

use std::collections::BTreeMap;
use std::sync::Arc;

use tagmatch_device::slab::{Key, Slab};
use tagmatch_device::{Bug, OrBug};
use tagmatch_ofi_sys as sys;

use super::counter::Counter;
use super::entry::Entry;
use super::output::Output;
use super::queue::{Queue, Waiter};
use super::vector::Vector;
use crate::hints::Opened;

/// The least room of a multi-receive buffer, in bytes, until a program sets another one.
const MULTI_MIN: usize = 64;
/// What counters count.
const COUNTED: u64 = sys::FI_SEND
    | sys::FI_RECV
    | sys::FI_READ
    | sys::FI_WRITE
    | sys::FI_REMOTE_READ
    | sys::FI_REMOTE_WRITE;
/// The bits of no key of a queue.
const NO_QUEUE: u64 = u64::MAX;

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
    /// `FI_SEND`, `FI_RECV`, `FI_READ`, `FI_WRITE` and others.
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
    /// The endpoint is enabled, and its sends are told or counted.
    may_send: bool,
    /// The endpoint is enabled, and its receives are told or counted.
    may_receive: bool,
    /// The endpoint is enabled, and its one-sided operations are told or counted.
    may_begin_remote: bool,
    /// The success of each send is an entry, whatever the flags of the send.
    each_send_tells: bool,
    /// The success of each receive is an entry.
    each_receive_tells: bool,
    /// A counter counts sends or receives.
    is_counting: bool,
    /// The bits of the key of the completion queue of receives, if no counter counts them;
    /// [`NO_QUEUE`] until the endpoint is enabled.
    direct_queue: u64,
    /// A thread sleeps, or may sleep, until a queue of this endpoint has an entry.
    pub is_armed: bool,
    /// [`rounds`](crate::ProviderEndpoint::rounds) after the progress thread's last turn.
    pub(crate) thread_rounds: u32,
    /// A multi-receive buffer with less room than this is given back (`FI_OPT_MIN_MULTI_RECV`).
    pub multi_min: usize,
}

/// A domain's objects but its endpoints. `A`: an address, as the provider has it.
pub(crate) struct DomainTables<A> {
    pub(crate) queues: Slab<Queue>,
    pub(crate) counters: Slab<Counter>,
    pub(crate) vectors: Slab<Vector<A>>,
    /// The counters of what peers change in memory regions, by the regions' keys.
    pub(crate) region_counters: BTreeMap<u64, Vec<Key>>,
    /// The progress thread (`FI_PROGRESS_AUTO`), if the domain has one.
    pub(crate) thread: Option<ThreadWatch>,
    /// Where threads sleep that wait for a counter, once one has slept.
    pub(crate) counter_sleep: Option<CounterSleep>,
}

/// How a progress thread sleeps and is woken.
pub(crate) struct ThreadWatch {
    pub(crate) waiter: Arc<Waiter>,
    /// The thread sleeps, or is about to, until an endpoint has an event: each enabled endpoint is
    /// armed.
    pub(crate) is_watching: bool,
}

/// How threads sleep in `fi_cntr_wait`. The descriptor watches all endpoints of the domain, since
/// any of them may serve a region that a counter is bound to.
pub(crate) struct CounterSleep {
    pub(crate) waiter: Arc<Waiter>,
    /// Threads that sleep on the descriptor: each enabled endpoint is armed while there are any.
    pub(crate) sleepers: usize,
}

impl<A> DomainTables<A> {
    /// A counter was changed: threads that wait for one look at it.
    #[inline]
    pub(crate) fn wake_counter_waits(&self) {
        if let Some(sleep) = &self.counter_sleep
            && sleep.sleepers > 0
        {
            sleep.waiter.wake();
        }
    }

    /// Wakes the progress thread.
    pub(crate) fn wake_thread(&self) {
        if let Some(thread) = &self.thread {
            thread.waiter.wake();
        }
    }

    /// A call makes progress: the thread leaves that to the calls.
    pub(crate) fn relieve_thread(&mut self) {
        if let Some(thread) = self.thread.as_mut().filter(|thread| thread.is_watching) {
            thread.is_watching = false;
            thread.waiter.wake();
        }
    }

    /// Whether a queue of this endpoint, a thread that waits for a counter, or the progress thread
    /// waits for its events.
    pub(crate) fn is_waited_for(&self, bound: &Bindings) -> bool {
        let is_armed = |key| self.queues.get(key).is_some_and(|queue| queue.is_armed);
        self.thread.as_ref().is_some_and(|thread| thread.is_watching)
            || self.counter_sleep.as_ref().is_some_and(|sleep| sleep.sleepers > 0)
            || bound.queues().any(is_armed)
    }
}

impl<A> Default for DomainTables<A> {
    fn default() -> Self {
        let queues = Slab::default();
        let counters = Slab::default();
        let vectors = Slab::default();
        let region_counters = BTreeMap::new();
        DomainTables {
            queues,
            counters,
            vectors,
            region_counters,
            thread: None,
            counter_sleep: None,
        }
    }
}

/// Where the ends of an endpoint's operations go.
pub struct Sinks<'a, A> {
    pub(crate) tables: &'a mut DomainTables<A>,
    /// A caller reads a completion queue now.
    pub(crate) output: Option<&'a mut Output>,
}

impl<A> Sinks<'_, A> {
    /// The address vectors of the domain.
    #[inline]
    pub fn vectors(&self) -> &Slab<Vector<A>> {
        &self.tables.vectors
    }

    /// For how many entries the caller that reads now has room, if it reads all queues of the
    /// endpoint.
    pub fn room(&self, bound: &Bindings) -> Option<usize> {
        let output = self.output.as_ref()?;
        bound.queues().all(|queue| queue == output.queue()).then(|| output.room())
    }

    /// The array of the caller that reads now, if entries of the endpoint's receives may go
    /// straight into it, and it has room: the caller reads their queue, and an entry needs neither
    /// a counter nor a source.
    #[inline(always)]
    pub fn direct(&mut self, bound: &Bindings) -> Option<&mut Output> {
        let output = self.output.as_deref_mut()?;
        let is_direct = output.is_of(bound.direct_queue)
            && output.room() > 0
            && !(bound.opened.source && output.tells_sources());
        is_direct.then_some(output)
    }

    /// Peers have changed a memory region so many times.
    pub fn count_changes(&mut self, region: u64, count: u64) {
        let DomainTables { counters, region_counters, .. } = &mut self.tables;
        for counter in region_counters.get(&region).into_iter().flatten() {
            if let Some(counter) = counters.get_mut(*counter) {
                counter.add_all(count);
            }
        }
        self.tables.wake_counter_waits();
    }

    /// Adds an entry to a queue. Further entries of that queue go behind it, also those of this
    /// call.
    fn push(&mut self, key: Key, entry: Entry) {
        let Ok(queue) = self.queue(key) else { return };
        queue.push(entry);
        if let Some(output) = &mut self.output
            && output.queue() == key
        {
            output.shut();
        }
    }

    #[inline(always)]
    fn queue(&mut self, key: Key) -> Result<&mut Queue, Bug> {
        self.tables.queues.get_mut(key).or_bug("a bound queue is not closed")
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
            may_send: false,
            may_receive: false,
            may_begin_remote: false,
            each_send_tells: false,
            each_receive_tells: false,
            is_counting: false,
            direct_queue: NO_QUEUE,
            is_armed: false,
            thread_rounds: 0,
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

    /// `fi_enable` is called. From now on the endpoint is bound to nothing else.
    pub(crate) fn enable(&mut self) {
        self.is_enabled = true;
        let has = |direction| self.opened.caps & direction != 0;
        self.may_send =
            has(sys::FI_SEND) && (self.transmit.is_some() || self.is_counted(sys::FI_SEND));
        self.may_receive =
            has(sys::FI_RECV) && (self.receive.is_some() || self.is_counted(sys::FI_RECV));
        self.may_begin_remote =
            self.transmit.is_some() || self.is_counted(sys::FI_READ | sys::FI_WRITE);
        let each_tells = |binding: Option<Binding>| binding.is_some_and(|bound| !bound.selective);
        self.each_send_tells = each_tells(self.transmit);
        self.each_receive_tells = each_tells(self.receive);
        self.is_counting = self.is_counted(COUNTED);
        let direct = self.receive.filter(|_| !self.is_counted(sys::FI_RECV));
        self.direct_queue = direct.map_or(NO_QUEUE, |binding| binding.queue.to_bits());
    }

    /// Whether `fi_enable` was called.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Whether the endpoint is enabled and its sends are told or counted.
    #[inline]
    pub fn may_send(&self) -> bool {
        self.may_send
    }

    /// Whether the endpoint is enabled and its receives are told or counted.
    #[inline]
    pub fn may_receive(&self) -> bool {
        self.may_receive
    }

    /// Whether the endpoint is enabled and its one-sided operations are told or counted.
    pub fn may_begin_remote(&self) -> bool {
        self.may_begin_remote
    }

    /// Whether the success of a send with these flags is an entry.
    #[inline]
    pub fn send_tells(&self, flags: u64) -> bool {
        self.each_send_tells || flags & sys::FI_COMPLETION != 0
    }

    /// Whether the success of a receive with these flags is an entry.
    #[inline]
    pub fn receive_tells(&self, flags: u64) -> bool {
        self.each_receive_tells || flags & sys::FI_COMPLETION != 0
    }

    /// A send, or `kind` of message, has succeeded: counts it, and puts its entry into the
    /// completion queue if `tells`. For a call that sends.
    #[inline(always)]
    pub fn tell_sent<A>(&self, sinks: &mut Sinks<'_, A>, context: usize, kind: u64, tells: bool) {
        self.count(sinks, kind, true);
        if tells
            && let Some(Binding { queue, .. }) = self.transmit
            && let Ok(queue) = sinks.queue(queue)
        {
            queue.push_sent(context, kind);
        }
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
            let is_begun_here = entry.flags & (sys::FI_SEND | sys::FI_READ | sys::FI_WRITE) != 0;
            let binding = if is_begun_here { self.transmit } else { self.receive };
            let Some(Binding { queue: key, .. }) = binding else { return };
            if let Some(output) = &mut sinks.output
                && output.queue() == key
                && entry.failure.is_none()
                && output.put(&entry)
            {
                return;
            }
            sinks.push(key, entry);
        }
    }

    /// Counts an operation that has ended, or an injected message.
    #[inline]
    pub fn count<A>(&self, sinks: &mut Sinks<'_, A>, flags: u64, is_success: bool) {
        if self.is_counting {
            self.count_in_each(sinks, flags, is_success);
        }
    }

    /// Counts operations of peers that have succeeded.
    pub fn count_all<A>(&self, sinks: &mut Sinks<'_, A>, flags: u64, count: u64) {
        for counts in self.counters.iter().filter(|counts| counts.flags & flags & COUNTED != 0) {
            if let Some(counter) = sinks.tables.counters.get_mut(counts.counter) {
                counter.add_all(count);
            }
        }
        sinks.tables.wake_counter_waits();
    }

    fn count_in_each<A>(&self, sinks: &mut Sinks<'_, A>, flags: u64, is_success: bool) {
        for counts in &self.counters {
            if counts.flags & flags & COUNTED != 0
                && let Some(counter) = sinks.tables.counters.get_mut(counts.counter)
            {
                counter.add(is_success);
            }
        }
        sinks.tables.wake_counter_waits();
    }
}
