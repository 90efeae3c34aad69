//! A tag-matching queue in safe code: it passes the program's operations and the wire's events to
//! the model NIC, and carries out the NIC's decisions.
//!
//! 1. The program posts ordinary buffers. For each of them one bounce buffer is given to the
//!    device, as long as there are any. So a message arrives only if the NIC has room for it;
//!    otherwise the device tells the sender to wait.
//! 2. A message arrives in a bounce buffer. The NIC decides where it goes, and it is copied there,
//!    within the memory that the program has registered.
//! 3. For a matched rendezvous the device READs into the tagged buffer. When all READs have ended,
//!    the FIN goes to the sender.
//! 4. The program polls the NIC's completions.

mod ordinary_buffers;
mod pairs;
mod record;
mod sending;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::{BTreeMap, BTreeSet};

use tagmatch_device::slab::Slab;
use tagmatch_device::tm::TMH_BYTES;
use tagmatch_model::{
    Arrival, Completion, Fault, HEADERS_BYTES, Handle, Nic, Operation, OperationKind, QueuePair,
    Verdict, Work,
};

use ordinary_buffers::OrdinaryBuffers;
use pairs::{BegunRequest, Pair};
pub(crate) use pairs::{PairChange, REQUESTS_PER_PAIR};
pub(crate) use record::Record;
use tagmatch_rdma_core_sys::{IBV_WC_LOC_PROT_ERR, ibv_wc_status};
pub(crate) use wire::{Denied, NicRequest, Segment, Wire, WireEvent};

/// Sizes of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueSizes {
    /// Slots of the list.
    pub(crate) slots: u32,
    /// Ordinary buffers that the program may have posted.
    pub(crate) receives: u32,
    /// Scatter elements of each.
    pub(crate) elements: u32,
    /// Bounce buffers.
    pub(crate) bounces: u32,
    /// READs and FINs under way at once, over all queue pairs.
    pub(crate) requests: u32,
    /// Bytes in the longest READ.
    pub(crate) read_max: u32,
}

/// The buffer of an entry of the list, and the READs into it.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    handle: Option<Handle>,
    segment: Segment,
    /// The buffer is not registered, or not for writing.
    is_denied: bool,
    /// READs that have not ended.
    reads: u32,
    /// All READs that have ended succeeded.
    are_reads_ok: bool,
}

/// A tag-matching shared receive queue.
pub(crate) struct Engine<W> {
    nic: Nic,
    wire: W,
    sizes: QueueSizes,
    receives: OrdinaryBuffers,
    /// By slot.
    entries: Vec<Held>,
    pairs: BTreeMap<u32, Pair>,
    /// Queue pairs with requests that wait.
    waiting: BTreeSet<u32>,
    /// The requests that the device has. A token is a key of this table.
    in_flight: Slab<BegunRequest>,
    /// Bounce buffers that the device doesn't have.
    bounces: Vec<u32>,
    /// Number of bounce buffers that the device has.
    posted: u32,
    /// Nothing is given to the device any more.
    is_closed: bool,
}

impl<W: Wire> Engine<W> {
    pub(crate) fn new(nic: Nic, wire: W, sizes: QueueSizes) -> Self {
        Engine {
            nic,
            wire,
            sizes,
            receives: OrdinaryBuffers::new(sizes.receives),
            entries: vec![Held::default(); sizes.slots as usize],
            pairs: BTreeMap::new(),
            waiting: BTreeSet::new(),
            in_flight: Slab::default(),
            bounces: (0..sizes.bounces).rev().collect(),
            posted: 0,
            is_closed: false,
        }
    }

    pub(crate) fn wire_mut(&mut self) -> &mut W {
        &mut self.wire
    }

    /// Rules that the program has broken.
    pub(crate) fn faults(&self) -> &[Fault] {
        self.nic.faults()
    }

    /// Posts a list operation. `Ok`: the handle, if it adds an entry. `Err`: an error number.
    pub(crate) fn post_operation(
        &mut self,
        operation: Operation,
        segment: Segment,
    ) -> Result<Option<u32>, i32> {
        let handle = self.nic.post(operation).map_err(|error| error.errno())?;
        let added = handle.filter(|_| matches!(operation.kind, OperationKind::Add { .. }));
        if let Some(handle) = added {
            let held = Held { handle: Some(handle), segment, ..Held::default() };
            self.entries[handle.slot()] = held;
        }
        Ok(added.map(|handle| handle.0))
    }

    /// Most scatter elements of an ordinary buffer.
    pub(crate) fn elements_max(&self) -> usize {
        self.sizes.elements as usize
    }

    /// Posts an ordinary buffer. `Err`: an error number.
    pub(crate) fn post_receive(
        &mut self,
        wr_id: u64,
        segments: impl Iterator<Item = Segment>,
    ) -> Result<(), i32> {
        let (id, length) = self.receives.post(wr_id, segments)?;
        self.nic.post_receive(id, length);
        Ok(())
    }

    /// Takes the device's events, lets the NIC decide, and carries the decisions out. `false` if
    /// there was no event.
    pub(crate) fn progress(&mut self) -> bool {
        self.nic.tick();
        let mut was_busy = false;
        while let Some(event) = self.wire.poll() {
            was_busy = true;
            self.take(event);
        }
        self.carry_out();
        self.refill();
        was_busy
    }

    /// Whether the NIC will do more after some time, without any event.
    pub(crate) fn has_work(&self) -> bool {
        self.nic.has_work()
    }

    /// Whether there is a completion for the program.
    pub(crate) fn is_ready(&self) -> bool {
        self.nic.peek().is_some()
    }

    /// The next completion for the program.
    pub(crate) fn next_completion(&mut self) -> Option<Record> {
        let completion = self.nic.poll()?;
        let (wr_id, is_denied) = match completion.handle {
            None if completion.queue_pair.is_some() => self.receives.take(completion.wr_id)?,
            _ => (completion.wr_id, self.is_denied(&completion)),
        };
        let status: ibv_wc_status =
            if is_denied { IBV_WC_LOC_PROT_ERR } else { completion.status as u32 };
        Some(Record::new(&completion, wr_id, status))
    }

    fn is_denied(&self, completion: &Completion) -> bool {
        let Some(handle) = completion.handle.filter(|_| completion.ends_match()) else {
            return false;
        };
        let held = &self.entries[handle.slot()];
        held.handle == Some(handle) && held.is_denied
    }

    /// Stops giving anything to the device.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    fn take(&mut self, event: WireEvent) {
        match event {
            WireEvent::Arrived { pair, buffer, length, immediate } => {
                self.posted = self.posted.saturating_sub(1);
                if let Some(mtu) = self.pairs.get(&pair).map(|pair| pair.mtu) {
                    self.nic.set_packet_bytes(mtu.into());
                    self.arrive(pair, buffer, length, immediate);
                }
                self.bounces.push(buffer);
            }
            WireEvent::Failed { pair, buffer } => {
                self.posted = self.posted.saturating_sub(1);
                self.bounces.push(buffer);
                if self.pairs.contains_key(&pair) {
                    self.nic.fail(QueuePair(pair), "the device could not receive a message");
                }
            }
            WireEvent::Done { token, is_ok } => self.request_done(token, is_ok),
        }
    }

    /// Takes a message that has arrived in a bounce buffer: the NIC decides where it goes.
    fn arrive(&mut self, pair: u32, buffer: u32, length: u32, immediate: Option<u32>) {
        let queue_pair = QueuePair(pair);
        let bytes = length as usize;
        let Some(message) = self.wire.bounce(buffer).get(..bytes) else {
            return self.nic.fail(queue_pair, "the device reports more than there is room for");
        };
        let mut head = [0; HEADERS_BYTES];
        let known = bytes.min(head.len());
        head[..known].copy_from_slice(&message[..known]);
        let arrival = Arrival { queue_pair, length: length.into(), head, immediate };
        match self.nic.arrive(&arrival) {
            Verdict::Ordinary { wr_id } => {
                let segments = self.receives.consume(wr_id);
                if self.wire.scatter(buffer, 0..bytes, segments).is_err() {
                    self.receives.deny(wr_id);
                    self.nic.fail(queue_pair, DENIED);
                }
            }
            Verdict::Payload { handle, .. } => {
                self.land(queue_pair, handle, buffer, TMH_BYTES..bytes);
            }
            Verdict::Headers { handle, .. } => {
                self.land(queue_pair, handle, buffer, 0..HEADERS_BYTES);
            }
            Verdict::Rendezvous | Verdict::Dropped => {}
            // Can't be: the device has at most as many bounce buffers as the NIC has ordinary ones.
            Verdict::NotReady => self.nic.fail(queue_pair, "a message without a buffer"),
        }
    }

    /// Copies a part of a bounce buffer into a matched entry's buffer.
    fn land(
        &mut self,
        queue_pair: QueuePair,
        handle: Handle,
        buffer: u32,
        range: std::ops::Range<usize>,
    ) {
        let held = &mut self.entries[handle.slot()];
        if self.wire.scatter(buffer, range, &[held.segment]).is_err() {
            held.is_denied = true;
            self.nic.fail(queue_pair, DENIED);
        }
    }

    /// Carries out the NIC's decisions.
    fn carry_out(&mut self) {
        while let Some(work) = self.nic.next_work() {
            match work {
                Work::Read { handle, queue_pair, remote } => {
                    self.read(handle, queue_pair, remote);
                }
                Work::Fin { handle, queue_pair, headers, length } => {
                    self.queue(queue_pair.0, NicRequest::Fin { handle, headers, length });
                }
                Work::Broken { queue_pair, .. } => self.break_pair(queue_pair.0),
            }
        }
    }

    /// Gives the device bounce buffers, until it has as many as the NIC has ordinary ones.
    pub(crate) fn refill(&mut self) {
        if self.is_closed || !self.nic.is_ready() {
            return;
        }
        let wanted = self.receives.unconsumed().min(self.sizes.bounces);
        while self.posted < wanted {
            let Some(buffer) = self.bounces.pop() else { return };
            if !self.wire.post(buffer) {
                self.bounces.push(buffer);
                return;
            }
            self.posted += 1;
        }
    }
}

/// The reason why a queue pair fails when a message goes to memory that may not be written.
const DENIED: &str = "a buffer is not registered, or not for writing";
