//! An endpoint: a worker, and the operations that are under way on it.

use std::collections::HashMap;
use std::collections::VecDeque;

use tagmatch::{
    Address, Buffer, End, EndTaker, Error, Match, Message, Peer, RegionUse, Status, Tag, TagMask,
    Worker,
};
use tagmatch_device::OrBug;
use tagmatch_device::slab::{Key, Slab};
use tagmatch_ofi_provider::{self as ofi, Bindings, Entry, Opened, Output, Pattern, UNTAGGED};
use tagmatch_ofi_sys as sys;

use super::depths::Depths;
use super::held::HeldReceive;
use super::operation::{OPERATIONS_MAX, OperationUnderWay, Receive, WholeOperation, is_receive_of};
use super::pending::Pending;
use super::served::ServedRegion;
use super::stalls::Stalls;
use crate::errno::{self, Errno, Reason, Result};
use crate::report;

/// Where the ends of an endpoint's operations go.
pub(crate) type Sinks<'a> = ofi::Sinks<'a, Address>;
type Vectors = Slab<ofi::Vector<Address>>;

/// Ends that are taken from the worker in one portion.
const PORTION: usize = 64;
/// How often the lists are looked at: every so many times of progress.
const LISTS_EVERY: u32 = 64;
/// How often the clock is read, to look at the peers.
const PEERS_EVERY: u32 = 4 * LISTS_EVERY;

/// An endpoint.
pub(crate) struct Endpoint {
    pub(crate) worker: Worker,
    pub(crate) bound: Bindings,
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
    /// The memory regions that peers may use, by their keys.
    pub(crate) regions: HashMap<u64, ServedRegion>,
    /// What peers had done on all of them when that was counted last.
    pub(crate) counted: RegionUse,
    /// One-sided operations on several places of a peer.
    pub(super) wholes: Slab<WholeOperation>,
    /// One-sided operations that are under way, each part for itself.
    pub(crate) remote_under_way: usize,
    /// Peers have had a region to use, so that they may have something to tell.
    pub(super) serves_peers: bool,
    /// How long the lists were, for the report.
    pub(crate) depths: Depths,
    /// Sends that wait for their receivers.
    stalls: Stalls,
    /// Times of progress.
    pub(super) rounds: u32,
    /// Room for the worker's ends.
    ends: Vec<End>,
}

/// Ends that go straight to the caller that reads now.
struct DirectEnds<'a> {
    output: &'a mut Output,
    depths: &'a mut Depths,
    /// An end that needs more than an entry of success. The array takes no others until it is dealt
    /// with.
    rare: &'a mut Vec<End>,
    /// The room that the array had then.
    room: usize,
}

impl EndTaker for DirectEnds<'_> {
    #[inline(always)]
    fn has_room(&self) -> bool {
        self.output.room() > 0
    }

    #[inline(always)]
    fn done(&mut self, context: u64, status: Status, buffer: Buffer) {
        if let Some(receive) = Receive::of_telling_word(context, &buffer)
            && !status.truncated
            && self.output.put(&entry_of_message(&receive, &status))
        {
            self.depths.ended();
        } else {
            self.other(End::Operation { context, result: Ok(status), buffer });
        }
    }

    #[cold]
    #[inline(never)]
    fn other(&mut self, end: End) {
        self.room += self.output.shut();
        self.rare.push(end);
    }
}

/// The entry of a receive that has its message. It has no source.
#[inline(always)]
fn entry_of_message(receive: &Receive, status: &Status) -> Entry {
    let mut entry = Entry::new(receive.context, receive.kind);
    entry.start = receive.start;
    entry.length = status.length;
    entry.tag = status.tag.0 & !UNTAGGED;
    if let Some(data) = status.immediate {
        entry.data = data.into();
        entry.flags |= sys::FI_REMOTE_CQ_DATA;
    }
    entry
}

// SAFETY: workers are for one thread, since their handles share memory without atomic counts. A
// worker, its messages and its requests lie in one endpoint, which the lock of its domain gives to
// one thread at a time.
unsafe impl Send for Endpoint {}

impl Endpoint {
    /// An endpoint that is bound to nothing yet.
    pub(crate) fn new(worker: Worker, opened: Opened) -> Self {
        Endpoint {
            worker,
            bound: Bindings::new(opened),
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
            regions: HashMap::new(),
            counted: RegionUse::default(),
            wholes: Slab::default(),
            remote_under_way: 0,
            serves_peers: false,
            depths: Depths::default(),
            stalls: Stalls::default(),
            rounds: 0,
            ends: Vec::with_capacity(PORTION),
        }
    }

    /// The peer with an address of the vector.
    #[inline(always)]
    pub(crate) fn peer(&mut self, sinks: &Sinks<'_>, address: u64) -> Result<Peer> {
        let index = usize::try_from(address).map_err(|_| Errno::INVALID)?;
        match self.peers.get(index) {
            Some(Some(peer)) => Ok(*peer),
            _ => self.meet(sinks, address, index),
        }
    }

    #[cold]
    #[inline(never)]
    fn meet(&mut self, sinks: &Sinks<'_>, number: u64, index: usize) -> Result<Peer> {
        let vector = self.bound.vector_in(sinks.vectors());
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

    /// The messages that a receive takes. The pattern's source counts only if the endpoint was
    /// opened with `FI_DIRECTED_RECV` (fi_tagged(3)).
    #[inline(always)]
    pub(crate) fn which(&mut self, sinks: &Sinks<'_>, pattern: Pattern) -> Result<Match> {
        if !self.bound.may_receive() {
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
    #[inline(always)]
    pub(crate) fn named(&mut self, sinks: &Sinks<'_>, source: u64) -> Result<Option<Peer>> {
        if !self.bound.opened.directed || source == sys::FI_ADDR_UNSPEC {
            return Ok(None);
        }
        self.peer(sinks, source).map(Some)
    }

    /// The address of the peer that sent a message, if the endpoint is to tell it.
    #[inline]
    pub(crate) fn source(&mut self, vectors: &Vectors, peer: Peer) -> u64 {
        if !self.bound.opened.source {
            return sys::FI_ADDR_NOTAVAIL;
        }
        match self.sources.get(peer.place()) {
            Some(Some((known, address))) if *known == peer => *address,
            _ => self.find_source(vectors, peer),
        }
    }

    #[cold]
    fn find_source(&mut self, vectors: &Vectors, peer: Peer) -> u64 {
        let vector = self.bound.vector_in(vectors);
        let address = self.worker.peer_address(peer);
        let (Some(vector), Ok(address)) = (vector, address) else { return sys::FI_ADDR_NOTAVAIL };
        let source = vector.number(&address);
        let index = peer.place();
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

    /// Makes progress, and puts what has ended into completion queues and counters.
    #[inline(always)]
    pub(crate) fn progress(&mut self, sinks: &mut Sinks<'_>) {
        let is_plain = self.held.is_none() && self.pending.is_empty() && !self.bound.is_armed;
        if !(is_plain && self.progress_directly(sinks)) {
            self.progress_fully(sinks);
        }
        if self.serves_peers {
            self.tell_of_peers(sinks);
        }
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(LISTS_EVERY) {
            self.look_around();
        }
    }

    #[cold]
    fn look_around(&mut self) {
        self.depths.look(&self.worker);
        if self.rounds.is_multiple_of(PEERS_EVERY) {
            self.stalls.look(&self.worker);
        }
    }

    /// Makes progress for a caller that reads the queue of receives. `false`: there is none, or its
    /// entries need more, and something is left to do.
    #[inline(always)]
    fn progress_directly(&mut self, sinks: &mut Sinks<'_>) -> bool {
        let Some(output) = sinks.direct(&self.bound) else { return false };
        let Endpoint { worker, depths, ends: rare, .. } = self;
        let mut direct = DirectEnds { output, depths, rare, room: 0 };
        worker.ends_to(&mut direct);
        if direct.rare.is_empty() {
            return true;
        }
        let room = direct.room;
        direct.output.reopen(room);
        self.end_all(sinks);
        false
    }

    /// Ends what the worker has told.
    #[cold]
    #[inline(never)]
    fn end_all(&mut self, sinks: &mut Sinks<'_>) {
        let mut ends = std::mem::take(&mut self.ends);
        ends.drain(..).for_each(|end| self.end(sinks, &end));
        self.ends = ends;
    }

    #[inline(never)]
    fn progress_fully(&mut self, sinks: &mut Sinks<'_>) {
        if self.held.is_some() {
            self.release(sinks, None);
        }
        let mut total = 0;
        loop {
            let count = self.take_ends(sinks);
            total += count;
            if self.pending.is_empty() {
                return;
            }
            // What waits for the next part of a multi-receive buffer ends that part at once.
            let has_begun = self.settle(sinks);
            if !(has_begun || count > 0) || total >= PORTION {
                return;
            }
        }
    }

    fn take_ends(&mut self, sinks: &mut Sinks<'_>) -> usize {
        let portion = self.portion(sinks);
        let count = self.worker.ends(&mut self.ends, portion);
        self.end_all(sinks);
        count
    }

    /// How many ends to take from the worker: all, since those that stay there wake no thread. But
    /// if no thread sleeps, and all ends are for the caller that reads now, no more than the caller
    /// has room for: the worker keeps the others at less cost than a queue.
    fn portion(&self, sinks: &Sinks<'_>) -> usize {
        match sinks.room(&self.bound) {
            Some(room) if !self.bound.is_armed => room.max(1),
            _ => usize::MAX,
        }
    }

    #[inline]
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
            if operation.receive.kind & (sys::FI_READ | sys::FI_WRITE) != 0 {
                self.remote_under_way -= 1;
                if let Some(whole) = operation.receive.multi {
                    let failure = result.as_ref().err().map(errno::of_error);
                    return self.end_part(sinks, Key::from_bits(whole), failure);
                }
            }
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
        let entry = self.entry(sinks.vectors(), receive, result);
        match receive.multi {
            Some(multi) => self.finish_part(sinks, multi, entry, receive.tells),
            None => self.bound.tell(sinks, entry, receive.tells),
        }
    }

    /// The entry of an operation that has ended.
    #[inline(always)]
    fn entry(
        &mut self,
        vectors: &Vectors,
        receive: &Receive,
        result: &std::result::Result<Status, Error>,
    ) -> Entry {
        let mut entry = Entry::new(receive.context, receive.kind);
        match result {
            Ok(status) if receive.kind & sys::FI_RECV != 0 => {
                entry = self.described(vectors, receive, status);
                if status.truncated {
                    let mut failure = errno::failure(Errno::TRUNCATED, Reason::Truncated);
                    failure.overflow = status.length.saturating_sub(receive.room);
                    entry.length = receive.room;
                    entry.failure = Some(failure);
                }
            }
            Ok(_) => {}
            Err(error) => {
                entry.start = receive.start;
                entry.failure = Some(errno::of_error(error));
            }
        }
        entry
    }

    /// The entry of a receive, or of a probe, that has found a message.
    #[inline]
    pub(crate) fn described(
        &mut self,
        vectors: &Vectors,
        receive: &Receive,
        status: &Status,
    ) -> Entry {
        let source = self.source(vectors, status.source);
        Entry { source, ..entry_of_message(receive, status) }
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
        if self.bound.is_forked() {
            return;
        }
        let Depths { posted_max, unexpected_max, .. } = self.depths;
        report::add(&self.worker.counters(), posted_max, unexpected_max);
    }
}
