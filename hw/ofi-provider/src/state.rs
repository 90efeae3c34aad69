//! A domain's objects: endpoints, completion queues, counters and address vectors.
//!
//! All of them lie in one [`State`] under one lock, and name each other by keys. Closing an object
//! makes its key invalid, so a call on a closed object is an error.

use std::collections::BTreeMap;

use tagmatch_device::slab::{Key, Slab};
use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result};

use crate::objects::{Binding, Counts, DomainTables, Output, Sinks, Waiter};
use crate::policy::{Provider, ProviderEndpoint};
use crate::remote::SharedRegion;

mod counter_sleep;
mod regions;
mod turn;

/// Most objects of one kind in a domain.
const OBJECTS_MAX: u32 = 1 << 20;

/// The objects of a domain.
pub(crate) struct State<P: Provider> {
    pub(crate) endpoints: Slab<P::Endpoint>,
    /// The memory regions that peers may use, by their keys.
    regions: BTreeMap<u64, (SharedRegion, RegionServers)>,
    /// The place in `endpoints` of the next one that [`State::progress_another`] serves.
    next_served: u32,
    pub(crate) tables: DomainTables<P::Address>,
}

impl<P: Provider> Default for State<P> {
    fn default() -> Self {
        let endpoints = Slab::default();
        State {
            endpoints,
            regions: BTreeMap::new(),
            next_served: 0,
            tables: DomainTables::default(),
        }
    }
}

/// Which endpoints serve a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionServers {
    /// All endpoints of the domain.
    All,
    /// All of them, once the region is enabled (`FI_MR_RMA_EVENT`).
    AllOnceEnabled,
    /// None, since the region is not bound to one yet (`FI_MR_ENDPOINT`).
    Unbound,
    /// This one, once the region is enabled.
    OneOnceEnabled(Key),
    /// This one.
    One(Key),
}

/// An object that was closed.
pub(crate) fn closed<T>(found: Option<T>) -> Result<T> {
    found.ok_or(Errno::CLOSED)
}

/// Adds an object.
pub(crate) fn insert<T>(table: &mut Slab<T>, object: T) -> Result<Key> {
    table.insert(object, OBJECTS_MAX).map_err(|_| Errno::NO_MEMORY)
}

/// Something was done on an endpoint while other threads sleep: they are woken for what has ended
/// by that, and the endpoint goes on to wake them.
#[cold]
#[inline(never)]
pub(crate) fn keep_armed<A>(endpoint: &mut impl ProviderEndpoint<A>, sinks: &mut Sinks<'_, A>) {
    endpoint.progress(sinks);
    if !endpoint.arm() || !endpoint.may_sleep() {
        for queue in endpoint.bound().queues() {
            if let Some(queue) = sinks.tables.queues.get_mut(queue).filter(|queue| queue.is_armed) {
                queue.wake();
            }
        }
        sinks.tables.wake_counter_waits();
        if sinks.tables.thread.as_ref().is_some_and(|thread| thread.is_watching) {
            sinks.tables.wake_thread();
        }
    }
}

/// [`keep_armed`], for a call that makes progress.
#[cold]
#[inline(never)]
fn keep_armed_by_call<A>(endpoint: &mut impl ProviderEndpoint<A>, sinks: &mut Sinks<'_, A>) {
    keep_armed(endpoint, sinks);
    sinks.tables.relieve_thread();
}

impl<P: Provider> State<P> {
    /// An endpoint, and where the ends of its operations go.
    #[inline(always)]
    pub(crate) fn endpoint(
        &mut self,
        key: Key,
    ) -> Result<(&mut P::Endpoint, Sinks<'_, P::Address>)> {
        let State { endpoints, tables, .. } = self;
        let endpoint = closed(endpoints.get_mut(key))?;
        Ok((endpoint, Sinks { tables, output: None }))
    }

    /// Adds an endpoint, whose peers may use the regions of the domain from now on.
    pub(crate) fn add_endpoint(&mut self, mut endpoint: P::Endpoint) -> Result<Key> {
        for (region, servers) in self.regions.values() {
            if *servers == RegionServers::All {
                endpoint.expose(region)?;
            }
        }
        self.watch_endpoint(&endpoint)?;
        insert(&mut self.endpoints, endpoint)
    }

    /// Binds an endpoint to an address vector.
    pub(crate) fn bind_vector(&mut self, endpoint: Key, vector: Key) -> Result<()> {
        let bound = closed(self.tables.vectors.get_mut(vector))?;
        let endpoint = closed(self.endpoints.get_mut(endpoint))?.bound_mut();
        if endpoint.is_enabled || endpoint.vector.is_some() {
            return Err(Errno::BAD_STATE);
        }
        endpoint.vector = Some(vector);
        bound.endpoints += 1;
        Ok(())
    }

    /// Binds an endpoint to a completion queue, for sends, receives or both (fi_endpoint(3)).
    pub(crate) fn bind_queue(&mut self, key: Key, queue: Key, flags: u64) -> Result<()> {
        const KNOWN: u64 = sys::FI_TRANSMIT | sys::FI_RECV | sys::FI_SELECTIVE_COMPLETION;
        if flags & !KNOWN != 0 || flags & (sys::FI_TRANSMIT | sys::FI_RECV) == 0 {
            return Err(Errno::BAD_FLAGS);
        }
        let bound = closed(self.tables.queues.get_mut(queue))?;
        let opened = closed(self.endpoints.get_mut(key))?;
        let endpoint = opened.bound();
        let binding = Binding { queue, selective: flags & sys::FI_SELECTIVE_COMPLETION != 0 };
        let is_taken = |wanted: u64, has: &Option<Binding>| flags & wanted != 0 && has.is_some();
        if endpoint.is_enabled
            || is_taken(sys::FI_TRANSMIT, &endpoint.transmit)
            || is_taken(sys::FI_RECV, &endpoint.receive)
        {
            return Err(Errno::BAD_STATE);
        }
        if let Some(waiter) = &bound.waiter
            && let Some(descriptor) = opened.event_descriptor()
        {
            waiter.watch(descriptor).map_err(|_| Errno::NO_MEMORY)?;
        }
        let endpoint = opened.bound_mut();
        if flags & sys::FI_TRANSMIT != 0 {
            endpoint.transmit = Some(binding);
        }
        if flags & sys::FI_RECV != 0 {
            endpoint.receive = Some(binding);
        }
        if !bound.endpoints.contains(&key) {
            bound.endpoints.push(key);
        }
        Ok(())
    }

    /// Binds an endpoint to a counter of operations of any kinds.
    pub(crate) fn bind_counter(&mut self, key: Key, counter: Key, flags: u64) -> Result<()> {
        const KNOWN: u64 = sys::FI_SEND
            | sys::FI_RECV
            | sys::FI_READ
            | sys::FI_WRITE
            | sys::FI_REMOTE_READ
            | sys::FI_REMOTE_WRITE;
        if flags & !KNOWN != 0 || flags == 0 {
            return Err(Errno::BAD_FLAGS);
        }
        let bound = closed(self.tables.counters.get_mut(counter))?;
        let endpoint = closed(self.endpoints.get_mut(key))?.bound_mut();
        // One counter for each kind of operation (fi_endpoint(3)).
        if endpoint.is_enabled || endpoint.is_counted(flags) {
            return Err(Errno::BAD_STATE);
        }
        endpoint.counters.push(Counts { counter, flags });
        if !bound.endpoints.contains(&key) {
            bound.endpoints.push(key);
        }
        Ok(())
    }

    /// Opens an endpoint for operations.
    ///
    /// # Errors
    /// The endpoint is bound to no address vector, or a direction that it was opened for
    /// has no completion queue and no counter.
    pub(crate) fn enable(&mut self, key: Key) -> Result<()> {
        let endpoint = closed(self.endpoints.get_mut(key))?.bound_mut();
        if endpoint.is_enabled {
            return Err(Errno::BAD_STATE);
        }
        if endpoint.vector.is_none() {
            return Err(Errno::NO_AV);
        }
        let lacks = |direction: u64, binding: &Option<Binding>| {
            endpoint.opened.caps & direction != 0
                && binding.is_none()
                && !endpoint.is_counted(direction)
        };
        if lacks(sys::FI_SEND, &endpoint.transmit)
            || lacks(sys::FI_READ | sys::FI_WRITE, &endpoint.transmit)
            || lacks(sys::FI_RECV, &endpoint.receive)
        {
            return Err(Errno::NO_CQ);
        }
        endpoint.enable();
        self.tables.wake_thread();
        self.tables.wake_counter_waits();
        Ok(())
    }

    /// Takes an endpoint out. Dropping it delivers what it has accepted, which may take as long as
    /// its peers need: the caller drops it without holding the lock.
    pub(crate) fn close_endpoint(&mut self, key: Key) -> Result<P::Endpoint> {
        let mut endpoint = closed(self.endpoints.remove(key))?;
        // What is delivered afterwards must not wait for regions that the program closes meanwhile.
        conceal_all(&mut endpoint, self.regions.keys());
        let bound = endpoint.bound();
        // A forked child has its parent's descriptors: what it removes is gone there, too.
        let descriptor = endpoint.event_descriptor().filter(|_| !bound.is_forked());
        let forget = |waiter: &Waiter| {
            if let Some(descriptor) = descriptor {
                waiter.forget(descriptor);
            }
        };
        let thread = self.tables.thread.as_ref().map(|thread| &thread.waiter);
        let counters = self.tables.counter_sleep.as_ref().map(|sleep| &sleep.waiter);
        for waiter in thread.into_iter().chain(counters) {
            forget(waiter);
        }
        for queue in bound.queues() {
            if let Some(queue) = self.tables.queues.get_mut(queue) {
                queue.endpoints.retain(|bound| *bound != key);
                if let Some(waiter) = &queue.waiter {
                    forget(waiter);
                }
            }
        }
        for counts in &bound.counters {
            if let Some(counter) = self.tables.counters.get_mut(counts.counter) {
                counter.endpoints.retain(|bound| *bound != key);
            }
        }
        if let Some(vector) = bound.vector.and_then(|vector| self.tables.vectors.get_mut(vector)) {
            vector.endpoints -= 1;
        }
        Ok(endpoint)
    }

    /// Takes all endpoints out, at the end of the process.
    pub(crate) fn take_endpoints(&mut self) -> Vec<P::Endpoint> {
        let mut endpoints: Vec<_> = std::mem::take(&mut self.endpoints).into_entries().collect();
        for endpoint in &mut endpoints {
            conceal_all(endpoint, self.regions.keys());
        }
        endpoints
    }

    /// Closes a completion queue that no endpoint is bound to.
    pub(crate) fn close_queue(&mut self, key: Key) -> Result<()> {
        if !closed(self.tables.queues.get(key))?.endpoints.is_empty() {
            return Err(Errno::BUSY);
        }
        self.tables.queues.remove(key);
        Ok(())
    }

    /// Closes a counter that no endpoint and no memory region is bound to.
    pub(crate) fn close_counter(&mut self, key: Key) -> Result<()> {
        let counter = closed(self.tables.counters.get(key))?;
        if !counter.endpoints.is_empty() || counter.regions > 0 {
            return Err(Errno::BUSY);
        }
        self.tables.counters.remove(key);
        Ok(())
    }

    /// Closes an address vector that no endpoint is bound to.
    pub(crate) fn close_vector(&mut self, key: Key) -> Result<()> {
        if closed(self.tables.vectors.get(key))?.endpoints > 0 {
            return Err(Errno::BUSY);
        }
        self.tables.vectors.remove(key);
        Ok(())
    }

    /// Whether the domain has no objects.
    pub(crate) fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
            && self.tables.queues.is_empty()
            && self.tables.counters.is_empty()
            && self.tables.vectors.is_empty()
    }

    /// Takes an address out of a vector. Its peer stays connected.
    pub(crate) fn remove_address(&mut self, key: Key, address: u64) -> Result<()> {
        closed(self.tables.vectors.get_mut(key))?.remove(address)?;
        for endpoint in self.endpoints.keys_where(|endpoint| endpoint.bound().vector == Some(key)) {
            if let Some(endpoint) = self.endpoints.get_mut(endpoint) {
                endpoint.forget(address);
            }
        }
        Ok(())
    }

    /// Reads entries of a completion queue. Makes progress if fewer wait than are wanted.
    #[inline(always)]
    pub(crate) fn read(&mut self, output: &mut Output) -> Result<usize> {
        let key = output.queue();
        if P::READS_ALONE_PROGRESS {
            self.progress_queue(key, None)?;
        }
        let queue = closed(self.tables.queues.get_mut(key))?;
        if queue.len() > 0 {
            queue.take(output);
            if output.taken() > 0 && output.room() == 0 {
                return Ok(output.taken());
            }
        }
        if !P::READS_ALONE_PROGRESS {
            match queue.endpoints[..] {
                [only] if !queue.is_armed => self.progress(only, Some(output)),
                _ => self.progress_queue(key, Some(output))?,
            }
            if output.taken() == 0 && self.endpoints.len() > 1 {
                self.progress_another();
            }
        }
        if output.taken() > 0 {
            return Ok(output.taken());
        }
        if output.room() > 0 {
            // An entry that waits would have taken the room.
            return Err(Errno::AGAIN);
        }
        closed(self.tables.queues.get(key))?.taken(output)
    }

    /// Makes progress on the endpoints of a completion queue. Entries go straight to a caller's
    /// array, if there is one and no other entry waits.
    pub(crate) fn progress_queue(
        &mut self,
        key: Key,
        mut output: Option<&mut Output>,
    ) -> Result<()> {
        let queue = closed(self.tables.queues.get_mut(key))?;
        if queue.is_armed && queue.sleepers == 0 {
            self.disarm(key);
        }
        let mut index = 0;
        while let Some(queue) = self.tables.queues.get(key)
            && let Some(endpoint) = queue.endpoints.get(index)
        {
            self.progress(*endpoint, output.as_deref_mut());
            index += 1;
        }
        Ok(())
    }

    /// Makes progress on one more endpoint of the domain, each in its turn: a program that waits
    /// for a message on one queue alone counts on what it has injected elsewhere to leave.
    #[cold]
    #[inline(never)]
    fn progress_another(&mut self) {
        let next = self.endpoints.next_key(self.next_served).or_else(|| self.endpoints.next_key(0));
        if let Some(key) = next {
            self.next_served = key.index + 1;
            self.progress(key, None);
        }
    }

    /// Makes progress for a call that reads no entries.
    pub(crate) fn progress_unless_reading(&mut self, key: Key) -> Result<()> {
        if P::READS_ALONE_PROGRESS {
            return closed(self.tables.queues.get(key)).map(|_| ());
        }
        self.progress_queue(key, None)
    }

    /// Makes progress on the endpoints of a counter.
    pub(crate) fn progress_counter(&mut self, key: Key) -> Result<()> {
        let counter = closed(self.tables.counters.get(key))?;
        // Any endpoint may serve a region.
        let all = || self.endpoints.keys_where(|_| true);
        let endpoints = if counter.regions > 0 { all() } else { counter.endpoints.clone() };
        for endpoint in endpoints {
            self.progress(endpoint, None);
        }
        Ok(())
    }

    /// Makes progress on all endpoints that are enabled.
    pub(crate) fn progress_all(&mut self) {
        for endpoint in self.endpoints.keys_where(|endpoint| endpoint.bound().is_enabled()) {
            self.progress(endpoint, None);
        }
    }

    #[inline(always)]
    fn progress(&mut self, endpoint: Key, output: Option<&mut Output>) {
        let State { endpoints, tables, .. } = self;
        if let Some(endpoint) = endpoints.get_mut(endpoint) {
            let mut sinks = Sinks { tables, output };
            endpoint.progress(&mut sinks);
            if endpoint.bound().is_armed {
                keep_armed_by_call(endpoint, &mut sinks);
            }
        }
    }

    /// Makes the descriptor of a completion queue readable at the next event. `false`: there is
    /// something to read, or to do, already.
    ///
    /// # Errors
    /// The queue has no descriptor (`FI_WAIT_NONE`).
    pub(crate) fn arm(&mut self, key: Key) -> Result<bool> {
        self.progress_unless_reading(key)?;
        let queue = closed(self.tables.queues.get_mut(key))?;
        if queue.waiter.is_none() {
            return Err(Errno::INVALID);
        }
        if queue.len() > 0 {
            return Ok(false);
        }
        let endpoints = queue.endpoints.clone();
        let sleeps = |key: &Key| self.endpoints.get(*key).is_none_or(P::Endpoint::may_sleep);
        if !endpoints.iter().all(sleeps) {
            return Ok(false);
        }
        if P::READS_ALONE_PROGRESS {
            return Ok(true);
        }
        // A signal is for a thread that sleeps already.
        if queue.sleepers == 0 || !queue.is_signalled {
            queue.clear();
        }
        queue.is_armed = true;
        let is_armed = endpoints.iter().all(|key| {
            self.endpoints.get_mut(*key).is_none_or(|endpoint| {
                endpoint.bound_mut().is_armed = true;
                endpoint.arm()
            })
        });
        match self.tables.queues.get_mut(key) {
            // Threads that sleep have not seen what there is to do, and go on to be woken.
            Some(queue) if !is_armed && queue.sleepers > 0 => queue.wake(),
            _ if !is_armed => self.disarm(key),
            _ => {}
        }
        Ok(is_armed)
    }

    /// A thread is about to sleep on the descriptor of a queue. `false`: there is something to do.
    pub(crate) fn begin_sleep(&mut self, key: Key) -> Result<bool> {
        let may_sleep = self.arm(key)?;
        if may_sleep && let Some(queue) = self.tables.queues.get_mut(key) {
            queue.sleepers += 1;
        }
        Ok(may_sleep)
    }

    /// A thread has slept.
    pub(crate) fn end_sleep(&mut self, key: Key) {
        if let Some(queue) = self.tables.queues.get_mut(key) {
            queue.sleepers -= 1;
        }
    }

    #[cold]
    #[inline(never)]
    fn disarm(&mut self, key: Key) {
        let Some(queue) = self.tables.queues.get_mut(key) else { return };
        queue.disarm();
        for endpoint in queue.endpoints.clone() {
            self.disarm_endpoint(endpoint);
        }
    }

    /// A thread no longer waits for the events of an endpoint. Others may go on to do so, such as
    /// one that sleeps on the queue of the other direction.
    fn disarm_endpoint(&mut self, key: Key) {
        let State { endpoints, tables, .. } = self;
        if let Some(endpoint) = endpoints.get_mut(key)
            && !tables.is_waited_for(endpoint.bound())
        {
            endpoint.bound_mut().is_armed = false;
            endpoint.disarm();
        }
    }
}

/// Peers no longer use regions over an endpoint that closes. If one of them may still write, the
/// endpoint waits for that when it is dropped.
fn conceal_all<'a, E: ProviderEndpoint<A>, A>(
    endpoint: &mut E,
    keys: impl Iterator<Item = &'a u64>,
) {
    for key in keys {
        let _ = endpoint.conceal(*key);
    }
}

#[cfg(test)]
mod tests;
