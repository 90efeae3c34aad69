//! An endpoint: a worker, and the operations that are under way on it.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use tagmatch::{End, Error, Match, Message, Peer, Status, Tag, TagMask, Worker};
use tagmatch_device::OrBug;
use tagmatch_device::slab::{Key, Slab};
use tagmatch_ofi_sys as sys;

use super::counter::Counter;
use super::depths::Depths;
use super::entry::{Entry, Failure};
use super::held::HeldReceive;
use super::operation::{
    OPERATIONS_MAX, OperationUnderWay, Pattern, Receive, UNTAGGED, is_receive_of,
};
use super::output::Output;
use super::pending::Pending;
use super::queue::Queue;
use super::stalls::Stalls;
use super::vector::Vector;
use crate::errno::{self, Errno, Reason, Result};
use crate::report;

/// Ends that are taken from the worker in one portion.
const PORTION: usize = 64;

/// The settings that an endpoint was opened with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    /// The capabilities of the endpoint: `FI_SEND`, `FI_RECV` and others.
    pub(crate) caps: u64,
    /// `FI_DIRECTED_RECV`: receives may name their source.
    pub(crate) directed: bool,
    /// `FI_SOURCE`: entries tell the source.
    pub(crate) source: bool,
    /// The flags of sends that are given none.
    pub(crate) send_flags: u64,
    /// The flags of receives that are given none.
    pub(crate) receive_flags: u64,
}

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

/// An endpoint.
pub(crate) struct Endpoint {
    /// The process that has opened the endpoint.
    process: u32,
    pub(crate) worker: Rc<Worker>,
    pub(crate) opened: Opened,
    pub(crate) vector: Option<Key>,
    pub(crate) transmit: Option<Binding>,
    pub(crate) receive: Option<Binding>,
    pub(crate) counters: Vec<Counts>,
    /// Event queues that are bound to the endpoint. They have no events of it.
    pub(crate) events: Vec<Arc<()>>,
    pub(crate) is_enabled: bool,
    /// A thread sleeps, or may sleep, until a queue of this endpoint has an entry.
    pub(crate) is_armed: bool,
    /// A multi-receive buffer with less room than this is given back (`FI_OPT_MIN_MULTI_RECV`).
    pub(crate) multi_min: usize,
    /// The peers of the vector's addresses, as far as they were used.
    peers: Vec<Option<Peer>>,
    /// Peers and their addresses, by the peers' places, which later peers may have.
    sources: Vec<Option<(Peer, u64)>>,
    /// The operations for which no word stands.
    pub(crate) operations: Slab<OperationUnderWay>,
    /// A receive whose source the next call may tell.
    pub(crate) held: Option<HeldReceive>,
    /// Receives of untagged messages that the worker may not have yet, and multi-receive buffers.
    pub(crate) pending: VecDeque<Pending>,
    /// How many of them name their source: as long as there is one, `sorting` matches untagged
    /// messages.
    pub(crate) directed: usize,
    /// Untagged messages that were taken from the worker, and that no receive has matched yet.
    pub(crate) strays: VecDeque<Message>,
    /// So many of the oldest strays are for none of the receives that wait.
    pub(crate) unwanted: usize,
    /// Numbers multi-receive buffers.
    pub(crate) multis: u64,
    /// Messages that were claimed, by the context of the claim.
    pub(crate) claimed: HashMap<usize, Message>,
    /// How long the lists were, for the report.
    pub(crate) depths: Depths,
    /// Sends that wait for their receivers.
    stalls: Stalls,
    /// Room for the worker's ends.
    ends: Vec<End>,
}

/// Where the ends of an endpoint's operations go.
pub(crate) struct Sinks<'a> {
    pub(crate) queues: &'a mut Slab<Queue>,
    pub(crate) counters: &'a mut Slab<Counter>,
    pub(crate) vectors: &'a Slab<Vector>,
    /// A caller reads entries of this completion queue now.
    pub(crate) reader: Option<(Key, &'a mut Output)>,
}

impl Endpoint {
    /// An endpoint that is bound to nothing yet.
    pub(crate) fn new(worker: Worker, opened: Opened, multi_min: usize) -> Self {
        Endpoint {
            process: std::process::id(),
            worker: Rc::new(worker),
            opened,
            vector: None,
            transmit: None,
            receive: None,
            counters: Vec::new(),
            events: Vec::new(),
            is_enabled: false,
            is_armed: false,
            multi_min,
            peers: Vec::new(),
            sources: Vec::new(),
            operations: Slab::default(),
            held: None,
            pending: VecDeque::new(),
            directed: 0,
            strays: VecDeque::new(),
            unwanted: 0,
            multis: 0,
            claimed: HashMap::new(),
            depths: Depths::default(),
            stalls: Stalls::default(),
            ends: Vec::with_capacity(PORTION),
        }
    }

    /// Whether this process is a forked child of the one that has opened the endpoint.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// The completion queues of both directions.
    pub(crate) fn queues(&self) -> impl Iterator<Item = Key> {
        [self.transmit, self.receive].into_iter().flatten().map(|binding| binding.queue)
    }

    /// Something was done on this endpoint while other threads sleep: they are woken for what has
    /// ended by that, and the worker goes on to wake them.
    #[cold]
    pub(crate) fn keep_armed(&mut self, sinks: &mut Sinks<'_>) {
        self.progress(sinks);
        if !self.worker.arm() || self.directed > 0 {
            for queue in self.queues() {
                if let Some(queue) = sinks.queues.get_mut(queue).filter(|queue| queue.is_armed) {
                    queue.wake();
                }
            }
        }
    }

    /// The peer with an address of the vector.
    #[inline]
    pub(crate) fn peer(&mut self, sinks: &Sinks<'_>, address: u64) -> Result<Peer> {
        let index = usize::try_from(address).map_err(|_| Errno::INVALID)?;
        match self.peers.get(index) {
            Some(Some(peer)) => Ok(*peer),
            _ => self.meet(sinks, address, index),
        }
    }

    #[cold]
    fn meet(&mut self, sinks: &Sinks<'_>, number: u64, index: usize) -> Result<Peer> {
        let vector = self.vector.and_then(|vector| sinks.vectors.get(vector));
        let address = vector.ok_or(Errno::NO_AV)?.address(number)?;
        let peer = self.worker.connect(&address).map_err(|_| Errno::HOST_UNREACHABLE)?;
        if self.peers.len() <= index {
            self.peers.resize(index + 1, None);
        }
        self.peers[index] = Some(peer);
        Ok(peer)
    }

    /// The vector no longer has an address. The peer stays connected: what is under way with the
    /// peer goes on.
    pub(crate) fn forget(&mut self, address: u64) {
        let index = usize::try_from(address).unwrap_or(usize::MAX);
        if let Some(peer) = self.peers.get_mut(index) {
            *peer = None;
        }
        let is_of = |source: &&mut Option<(Peer, u64)>| source.is_some_and(|(_, of)| of == address);
        self.sources.iter_mut().filter(is_of).for_each(|source| *source = None);
    }

    /// Whether a counter counts operations of this direction.
    pub(crate) fn is_counted(&self, direction: u64) -> bool {
        self.counters.iter().any(|counts| counts.flags & direction != 0)
    }

    /// Whether the endpoint is enabled and its receives are told or counted.
    #[inline]
    pub(crate) fn may_receive(&self) -> bool {
        self.is_enabled && (self.receive.is_some() || self.is_counted(sys::FI_RECV))
    }

    /// The messages that a receive takes. The pattern's source counts only if the endpoint was
    /// opened with `FI_DIRECTED_RECV` (fi_tagged(3)).
    #[inline]
    pub(crate) fn which(&mut self, sinks: &Sinks<'_>, pattern: Pattern) -> Result<Match> {
        if !self.may_receive() {
            return Err(Errno::BAD_STATE);
        }
        let Pattern { tag, mask, source } = pattern;
        let which = Match::masked(Tag(tag), TagMask(mask));
        Ok(match self.named(sinks, source)? {
            None => which,
            Some(peer) => which.from(peer),
        })
    }

    /// The peer that a receive names as its source, if it names one that counts.
    #[inline]
    pub(crate) fn named(&mut self, sinks: &Sinks<'_>, source: u64) -> Result<Option<Peer>> {
        if !self.opened.directed || source == sys::FI_ADDR_UNSPEC {
            return Ok(None);
        }
        self.peer(sinks, source).map(Some)
    }

    /// The address of the peer that sent a message, if the endpoint is to tell it.
    #[inline]
    pub(crate) fn source(&mut self, vectors: &Slab<Vector>, peer: Peer) -> u64 {
        if !self.opened.source {
            return sys::FI_ADDR_NOTAVAIL;
        }
        match self.sources.get(peer.place()) {
            Some(Some((known, address))) if *known == peer => *address,
            _ => self.find_source(vectors, peer),
        }
    }

    #[cold]
    fn find_source(&mut self, vectors: &Slab<Vector>, peer: Peer) -> u64 {
        let vector = self.vector.and_then(|vector| vectors.get(vector));
        let address = self.worker.peer_address(peer);
        let (Some(vector), Ok(address)) = (vector, address) else { return sys::FI_ADDR_NOTAVAIL };
        let (source, index) = (vector.number(&address), peer.place());
        if source != sys::FI_ADDR_NOTAVAIL {
            if self.sources.len() <= index {
                self.sources.resize(index + 1, None);
            }
            self.sources[index] = Some((peer, source));
        }
        source
    }

    /// A name for an operation that is about to begin.
    #[inline]
    pub(crate) fn vacant(&self) -> Result<Key> {
        self.operations.vacant(OPERATIONS_MAX).ok_or(Errno::AGAIN)
    }

    /// Makes progress, and puts what has ended into completion queues and counters. Gives the
    /// number of ends.
    pub(crate) fn progress(&mut self, sinks: &mut Sinks<'_>) -> usize {
        if self.held.is_some() {
            self.release(sinks, None);
        }
        let mut total = 0;
        loop {
            let count = self.take_ends(sinks);
            total += count;
            if self.pending.is_empty() {
                return total;
            }
            // What waits for the next part of a multi-receive buffer ends that part at once.
            let has_begun = self.settle(sinks);
            if !(has_begun || count > 0) || total >= PORTION {
                return total;
            }
        }
    }

    #[inline]
    fn take_ends(&mut self, sinks: &mut Sinks<'_>) -> usize {
        let worker = Rc::clone(&self.worker);
        let portion = self.portion(sinks);
        let count = if self.opened.source {
            // Finding the source of a message needs the worker.
            let mut ends = std::mem::take(&mut self.ends);
            let count = worker.ends(&mut ends, portion);
            ends.drain(..).for_each(|end| self.end(sinks, &end));
            self.ends = ends;
            count
        } else {
            worker.each_end(portion, |end| self.end(sinks, &end))
        };
        self.depths.progressed(&worker);
        self.stalls.progressed(&worker);
        count
    }

    /// How many ends to take from the worker: all, since those that stay there wake no thread. But
    /// if no thread sleeps, and all ends are for the caller that reads now, no more than the caller
    /// has room for: the worker keeps the others at less cost than a queue.
    #[inline]
    fn portion(&self, sinks: &Sinks<'_>) -> usize {
        match &sinks.reader {
            Some((key, output)) if !self.is_armed && self.queues().all(|queue| queue == *key) => {
                output.room().max(1)
            }
            _ => usize::MAX,
        }
    }

    #[inline(always)]
    fn end(&mut self, sinks: &mut Sinks<'_>, end: &End) {
        let End::Operation { context, result, buffer } = end else { return };
        match Receive::of_word(*context, buffer) {
            Some(receive) => self.finish(sinks, &receive, result),
            None => self.end_kept(sinks, Key::from_bits(*context), result),
        }
    }

    #[inline(never)]
    fn end_kept(
        &mut self,
        sinks: &mut Sinks<'_>,
        key: Key,
        result: &std::result::Result<Status, Error>,
    ) {
        let operation = self.operations.remove(key).or_bug("an end names an operation under way");
        if let Ok(operation) = operation {
            self.finish(sinks, &operation.receive, result);
        }
    }

    #[inline(always)]
    fn finish(
        &mut self,
        sinks: &mut Sinks<'_>,
        receive: &Receive,
        result: &std::result::Result<Status, Error>,
    ) {
        if receive.kind & sys::FI_RECV != 0 {
            self.depths.ended();
        }
        let entry = self.entry(sinks.vectors, receive, result);
        match receive.multi {
            Some(multi) => self.finish_part(sinks, multi, entry, receive.tells),
            None => self.tell(sinks, entry, receive.tells),
        }
    }

    /// The entry of an operation that has ended.
    #[inline(always)]
    fn entry(
        &mut self,
        vectors: &Slab<Vector>,
        receive: &Receive,
        result: &std::result::Result<Status, Error>,
    ) -> Entry {
        let mut entry = Entry::new(receive.context, receive.kind);
        match result {
            Ok(status) if receive.kind & sys::FI_RECV != 0 => {
                entry.start = receive.start;
                self.describe(vectors, &mut entry, status);
                if status.truncated {
                    let overflow = status.length.saturating_sub(receive.room);
                    let (errno, reason) = (Errno::TRUNCATED, Reason::Truncated);
                    entry.length = receive.room;
                    entry.failure = Some(Failure { errno, reason, overflow });
                }
            }
            Ok(_) => {}
            Err(error) => {
                entry.start = receive.start;
                entry.failure = Some(Failure::new(errno::of_error(error)));
            }
        }
        entry
    }

    /// Adds the facts of a message to an entry.
    #[inline]
    pub(crate) fn describe(&mut self, vectors: &Slab<Vector>, entry: &mut Entry, status: &Status) {
        entry.length = status.length;
        entry.tag = status.tag.0 & !UNTAGGED;
        entry.source = self.source(vectors, status.source);
        if let Some(data) = status.immediate {
            entry.data = data.into();
            entry.flags |= sys::FI_REMOTE_CQ_DATA;
        }
    }

    /// Puts an entry into the completion queue of its direction, and counts it.
    #[inline(always)]
    pub(crate) fn tell(&self, sinks: &mut Sinks<'_>, entry: Entry, tells: bool) {
        if !self.counters.is_empty() {
            self.count(sinks, entry.flags, entry.failure.is_none());
        }
        self.put(sinks, entry, tells);
    }

    /// Puts an entry into the completion queue of its direction, without counting it.
    #[inline(always)]
    pub(crate) fn put(&self, sinks: &mut Sinks<'_>, entry: Entry, tells: bool) {
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
    pub(crate) fn count(&self, sinks: &mut Sinks<'_>, flags: u64, is_success: bool) {
        for counts in &self.counters {
            if counts.flags & flags & (sys::FI_SEND | sys::FI_RECV) != 0
                && let Some(counter) = sinks.counters.get_mut(counts.counter)
            {
                counter.add(is_success);
            }
        }
    }

    /// Cancels the receive with this context that was posted first, if there is one (fi_cancel(3)).
    /// Its entry tells the outcome.
    pub(crate) fn cancel(&mut self, sinks: &mut Sinks<'_>, context: usize) {
        if self.held.is_some() {
            self.release(sinks, None);
        }
        if self.cancel_pending(sinks, context) {
            return;
        }
        if self.worker.cancel_context(|word| is_receive_of(word, context)) {
            return;
        }
        let is_wanted = |operation: &OperationUnderWay| {
            operation.receive.context == context && operation.receive.kind & sys::FI_RECV != 0
        };
        for key in self.operations.keys_where(is_wanted) {
            if let Some(operation) = self.operations.get(key)
                && self.worker.cancel_queued(operation.request)
            {
                return;
            }
        }
    }
}

impl Drop for Endpoint {
    /// The report counts what the endpoint did, once: a forked child that drops its copy adds
    /// nothing.
    fn drop(&mut self) {
        if self.is_forked() {
            return;
        }
        let Depths { posted_max, unexpected_max, .. } = self.depths;
        report::add(&self.worker.counters(), posted_max, unexpected_max);
    }
}
