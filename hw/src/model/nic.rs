//! The NIC: what comes in, what goes out, and what it decides.

use std::collections::{HashSet, VecDeque};

use super::completion::{Completion, QueuePair, TmInfo, WcFlags, WcOpcode, WcStatus};
use super::fault::{Fault, Faults};
use super::knobs::{Delay, Knobs, ModelConfig};
use super::list::{Entry, List};
use super::operation::{Command, Commands, Operation, OperationKind, PostError};
use super::queues::Queues;
use super::random::Random;
use super::slots::{Handle, Slots};
use super::transfers::{Due, HEADERS_BYTES, Transfer, Transfers, Work};
use crate::tm::{Opcode, RVH_BYTES, Rvh, TMH_BYTES, Tmh};
use crate::{DeviceError, Outgoing};

/// A tag-matching NIC with its driver, as a pure state machine: no input or output, no clock, chance
/// from its seed alone. It owns no payload: it decides where bytes go, and the host copies them.
///
/// See the [module](super) for its rules.
#[derive(Clone, Debug)]
pub struct Nic {
    knobs: Knobs,
    random: Random,
    /// Ticks so far.
    now: u64,
    slots: Slots,
    commands: Commands,
    list: List,
    queues: Queues,
    transfers: Transfers,
    work: VecDeque<Work>,
    /// Ordinary buffers: `wr_id` and length in bytes.
    ordinary: VecDeque<(u64, u64)>,
    /// The floor of ordinary buffers was reached once.
    is_open: bool,
    /// Unexpected messages whose completions were taken, counted as the NIC counts.
    taken: u16,
    in_error: HashSet<QueuePair>,
    faults: Faults,
}

/// A message that came in on a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Which queue pair.
    pub queue_pair: QueuePair,
    /// Bytes in the message, headers included.
    pub length: u64,
    /// Its first bytes, zeros behind its end.
    pub head: [u8; HEADERS_BYTES],
    /// Immediate data.
    pub immediate: Option<u32>,
}

/// What is to be done with the bytes of a message. The host does it before it calls again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not taken (RNR NAK): there is no ordinary buffer, or there never were as many as the NIC wants.
    /// Offer it again before any later message of its queue pair.
    NotReady,
    /// The whole message goes into this ordinary buffer.
    Ordinary {
        /// Of [`Nic::post_receive`].
        wr_id: u64,
    },
    /// The message without its TMH goes into the entry's buffer.
    Payload {
        /// Which entry.
        handle: Handle,
        /// Its `recv_wr_id`.
        recv_wr_id: u64,
    },
    /// TMH and RVH go into the entry's buffer: the rendezvous doesn't fit.
    Headers {
        /// Which entry.
        handle: Handle,
        /// Its `recv_wr_id`.
        recv_wr_id: u64,
    },
    /// Nothing: [`Work::Read`] will come.
    Rendezvous,
    /// Nothing: the queue pair is in error.
    Dropped,
}

/// What a message is to the NIC.
enum Kind {
    Ordinary,
    Eager(Tmh),
    Rendezvous(Tmh, Rvh),
    Malformed(&'static str),
}

impl Arrival {
    fn kind(&self) -> Kind {
        if self.length == 0 {
            return Kind::Malformed("a message without a byte");
        }
        // Of these only the first byte is looked at, they may be shorter than a TMH.
        if self.head[0] == Opcode::NoTag as u8 || self.head[0] == Opcode::Fin as u8 {
            return Kind::Ordinary;
        }
        let (first, second) = self.head.split_at(TMH_BYTES);
        let tmh = first.try_into().ok().and_then(|bytes| Tmh::parse(bytes).ok());
        let rvh: Option<[u8; RVH_BYTES]> = second.try_into().ok();
        match (tmh, rvh) {
            (Some(tmh), _) if tmh.opcode == Opcode::Eager => {
                if self.length < TMH_BYTES as u64 {
                    return Kind::Malformed("an eager message shorter than its header");
                }
                Kind::Eager(tmh)
            }
            (Some(tmh), Some(rvh)) => {
                let range = HEADERS_BYTES as u64..=Outgoing::HEADER_MAX as u64;
                if !range.contains(&self.length) {
                    return Kind::Malformed("a rendezvous request not of 32 to 64 bytes");
                }
                Kind::Rendezvous(tmh, Rvh::parse(&rvh))
            }
            _ => Kind::Malformed("a message with an unknown opcode"),
        }
    }
}

impl Nic {
    /// A NIC with an empty list and no ordinary buffers.
    ///
    /// # Errors
    /// [`DeviceError::BadSetting`] if a setting is out of its range.
    pub fn new(config: &ModelConfig) -> Result<Self, DeviceError> {
        config.check()?;
        let knobs = config.knobs.clone();
        Ok(Nic {
            random: Random::new(config.seed),
            now: 0,
            slots: Slots::new(config.slots),
            commands: Commands::new(config.operations),
            list: List::new(knobs.first_count, knobs.wake),
            queues: Queues::default(),
            transfers: Transfers::default(),
            work: VecDeque::new(),
            ordinary: VecDeque::new(),
            is_open: knobs.floor == 0,
            taken: knobs.first_count,
            in_error: HashSet::new(),
            faults: Faults::default(),
            knobs,
        })
    }

    /// Rules that the host has broken: the first 64 different ones.
    pub fn faults(&self) -> &[Fault] {
        self.faults.kept()
    }

    /// Records what only the host can see.
    pub fn record(&mut self, fault: Fault) {
        self.faults.record(fault);
    }

    /// Posts an operation; gives the handle of an entry that is added.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn post(&mut self, operation: Operation) -> Result<Option<Handle>, PostError> {
        if self.commands.is_full() {
            return Err(PostError::QueueFull);
        }
        let handle = match operation.kind {
            OperationKind::Add { elements: 2.., .. } => return Err(PostError::Invalid),
            OperationKind::Add { tag, mask, .. } => {
                let handle = self.slots.take(operation.signalled).ok_or(PostError::ListFull)?;
                if tag & !mask != 0 {
                    self.faults.record(Fault::TagOutsideMask(handle));
                }
                Some(handle)
            }
            OperationKind::Delete { handle } => {
                self.check_delete(handle)?;
                self.slots.delete(handle, operation.signalled);
                Some(handle)
            }
            OperationKind::Sync => None,
        };
        self.check_count(operation.unexpected_count);
        let due = self.now + self.knobs.operation.draw(&mut self.random);
        self.commands.push(operation, handle, due);
        self.settle();
        Ok(handle)
    }

    fn check_delete(&mut self, handle: Handle) -> Result<(), PostError> {
        let fault = if !self.slots.is_taken(handle) {
            Fault::StaleHandle(handle)
        } else if self.slots.is_deleting(handle) {
            Fault::DeletedTwice(handle)
        } else {
            return Ok(());
        };
        self.faults.record(fault);
        Err(PostError::Invalid)
    }

    /// Software can't have searched for what it has not been given, nor search again.
    fn check_count(&mut self, count: Option<u16>) {
        let Some(given) = count else { return };
        let (told, taken) = (self.list.told(), self.taken);
        if given.wrapping_sub(told) > taken.wrapping_sub(told) {
            self.faults.record(Fault::CountNotTaken { given, told, taken });
        }
    }

    /// Posts an ordinary buffer of so many bytes.
    pub fn post_receive(&mut self, wr_id: u64, length: u64) {
        self.ordinary.push_back((wr_id, length));
        self.is_open |= self.ordinary.len() >= self.knobs.floor as usize;
    }

    /// Whether a message would be taken now.
    ///
    /// Hardware may take a message that it matches even when it is out of ordinary buffers; nothing says
    /// so, and the model doesn't.
    pub fn is_ready(&self) -> bool {
        self.is_open && !self.ordinary.is_empty()
    }

    /// A message came in.
    pub fn arrive(&mut self, message: &Arrival) -> Verdict {
        let queue_pair = message.queue_pair;
        if self.in_error.contains(&queue_pair) {
            return Verdict::Dropped;
        }
        if !self.is_ready() {
            return Verdict::NotReady;
        }
        let fails = self.knobs.queue_pair_error.draw(&mut self.random);
        if fails && self.random.below(2) == 0 {
            self.fail(queue_pair, SPONTANEOUS);
            return Verdict::Dropped;
        }
        let verdict = match message.kind() {
            Kind::Ordinary => self.ordinary(message, WcOpcode::TmNoTag),
            Kind::Malformed(why) => {
                self.fail(queue_pair, why);
                Verdict::Dropped
            }
            Kind::Eager(tmh) => self.eager(message, tmh),
            Kind::Rendezvous(tmh, rvh) => self.rendezvous(message, tmh, rvh),
        };
        if fails {
            self.fail(queue_pair, SPONTANEOUS);
        }
        self.settle();
        verdict
    }

    /// The message takes an ordinary buffer, header included.
    fn ordinary(&mut self, message: &Arrival, opcode: WcOpcode) -> Verdict {
        let Some(&(wr_id, room)) = self.ordinary.front() else { return Verdict::NotReady };
        let length = message.length;
        if length > room {
            self.faults.record(Fault::OrdinaryTooShort { length, room });
            self.fail(message.queue_pair, "a message longer than the buffers for it");
            return Verdict::Dropped;
        }
        self.ordinary.pop_front();
        let mut flags = WcFlags::NONE;
        if opcode == WcOpcode::TmRecv {
            self.list.count();
            let is_apart = self.list.distance() > self.knobs.sync_limit;
            if is_apart {
                let (counted, told) = (self.list.counted(), self.list.told());
                self.faults.record(Fault::CountsApart { counted, told });
            }
            flags = self.sync_request(is_apart);
        }
        let completion = Completion {
            wr_id,
            opcode,
            status: WcStatus::Success,
            flags,
            tm_info: TmInfo::default(),
            length,
            immediate: message.immediate,
            queue_pair: Some(message.queue_pair),
            handle: None,
        };
        let due = self.after(self.knobs.receive);
        self.queues.push_receive(due, completion);
        Verdict::Ordinary { wr_id }
    }

    fn sync_request(&mut self, is_due: bool) -> WcFlags {
        let Knobs { missing_sync_request, spurious_sync_request, .. } = self.knobs;
        let is_turned = if is_due { missing_sync_request } else { spurious_sync_request };
        if is_due != is_turned.draw(&mut self.random) {
            WcFlags::SYNC_REQUEST
        } else {
            WcFlags::NONE
        }
    }

    fn after(&mut self, delay: Delay) -> u64 {
        self.now + delay.draw(&mut self.random)
    }

    /// A match's completion with everything on it.
    fn matched(message: &Arrival, tmh: Tmh, entry: &Entry, length: u64) -> Completion {
        Completion {
            wr_id: entry.recv_wr_id,
            opcode: WcOpcode::TmRecv,
            status: WcStatus::Success,
            flags: WcFlags::MATCH | WcFlags::DATA_VALID,
            tm_info: TmInfo { tag: tmh.tag, app_ctx: tmh.app_ctx },
            length,
            immediate: message.immediate,
            queue_pair: Some(message.queue_pair),
            handle: Some(entry.handle),
        }
    }

    fn push_match(&mut self, completion: Completion) -> u64 {
        let due = self.after(self.knobs.receive);
        self.queues.push_receive(due, completion)
    }

    fn eager(&mut self, message: &Arrival, tmh: Tmh) -> Verdict {
        let Some(entry) = self.list.take_match(tmh.tag) else {
            return self.ordinary(message, WcOpcode::TmRecv);
        };
        let length = message.length - TMH_BYTES as u64;
        let whole = Self::matched(message, tmh, &entry, length);
        if length > entry.length {
            self.overflow(whole, &entry, length);
            return Verdict::Dropped;
        }
        if message.length <= self.knobs.packet_bytes {
            self.push_match(whole);
        } else {
            let (first, second) = in_two(whole);
            let after = self.push_match(first);
            let due = self.after(self.knobs.data);
            self.queues.push_data(due, second, after, true);
        }
        Verdict::Payload { handle: entry.handle, recv_wr_id: entry.recv_wr_id }
    }

    fn rendezvous(&mut self, message: &Arrival, tmh: Tmh, rvh: Rvh) -> Verdict {
        let Some(entry) = self.list.take_match(tmh.tag) else {
            return self.ordinary(message, WcOpcode::TmRecv);
        };
        let length = u64::from(rvh.len);
        // A rendezvous has no immediate data that the NIC would hand on.
        let message = &Arrival { immediate: None, ..*message };
        let whole = Self::matched(message, tmh, &entry, length);
        if length > entry.length {
            return self.incomplete(whole, &entry);
        }
        let (first, second) = in_two(whole);
        let after = self.push_match(first);
        let due = self.after(self.knobs.read);
        let names = (entry.handle, message.queue_pair);
        self.transfers.begin(Transfer::new(message.head, rvh, second, names, after), due);
        Verdict::Rendezvous
    }

    /// TMH and RVH go into the buffer, and software does the rest.
    fn incomplete(&mut self, whole: Completion, entry: &Entry) -> Verdict {
        let length = HEADERS_BYTES as u64;
        if length > entry.length {
            self.overflow(whole, entry, length);
            return Verdict::Dropped;
        }
        let whole = Completion { status: WcStatus::RendezvousIncomplete, length, ..whole };
        if self.knobs.incomplete_in_two.draw(&mut self.random) {
            let (first, second) = in_two(whole);
            let after = self.push_match(first);
            let due = self.after(self.knobs.data);
            self.queues.push_data(due, second, after, false);
        } else {
            self.push_match(whole);
        }
        Verdict::Headers { handle: entry.handle, recv_wr_id: entry.recv_wr_id }
    }

    /// More came than the entry's buffer holds. On hardware that is an error completion that names
    /// no entry, and the queue pair's end; here the entry's match is told and its data fails.
    fn overflow(&mut self, whole: Completion, entry: &Entry, length: u64) {
        self.faults.record(Fault::BufferTooShort {
            handle: entry.handle,
            length,
            room: entry.length,
        });
        let (first, second) = in_two(Completion { status: WcStatus::Success, ..whole });
        let after = self.push_match(first);
        self.flush(second, after);
        if let Some(queue_pair) = whole.queue_pair {
            self.fail(queue_pair, "more payload than the matched buffer holds");
        }
    }

    fn flush(&mut self, completion: Completion, after: u64) {
        let due = self.after(self.knobs.data);
        self.queues.push_data(due, completion.flushed(), after, false);
    }

    /// The host has done a [`Work::Read`], or could not: then its queue pair is in error.
    pub fn read_done(&mut self, handle: Handle, is_ok: bool) {
        let Some(transfer) = self.transfers.take_reading(handle) else {
            return self.faults.record(Fault::NotUnderWay(handle));
        };
        self.step_done(transfer, is_ok, "a READ of its memory failed");
        if is_ok && !self.in_error.contains(&transfer.queue_pair) {
            let due = self.after(self.knobs.fin);
            self.transfers.fin_at(transfer, due);
        }
        self.settle();
    }

    /// The host has sent a [`Work::Fin`], or could not: then its queue pair is in error.
    pub fn fin_done(&mut self, handle: Handle, is_ok: bool) {
        let Some(transfer) = self.transfers.take_finishing(handle) else {
            return self.faults.record(Fault::NotUnderWay(handle));
        };
        if is_ok {
            let due = self.after(self.knobs.data);
            self.queues.push_data(due, transfer.completion, transfer.after, false);
        } else {
            self.step_done(transfer, false, "a FIN could not be sent");
        }
        self.settle();
    }

    /// A transfer that can't go on ends.
    fn step_done(&mut self, transfer: Transfer, is_ok: bool, why: &'static str) {
        if !is_ok {
            self.fail(transfer.queue_pair, why);
        }
        if self.in_error.contains(&transfer.queue_pair) {
            self.flush(transfer.completion, transfer.after);
        }
    }

    /// The queue pair fails: the host is told by [`Work::Broken`].
    pub fn fail(&mut self, queue_pair: QueuePair, why: &'static str) {
        if self.in_error.insert(queue_pair) {
            self.queues.lose_eager_data(queue_pair);
            self.end_transfers(queue_pair);
            self.work.push_back(Work::Broken { queue_pair, why });
        }
    }

    /// The host has put the queue pair into error, or has learnt that its peer is gone. What came whole
    /// stays; matches whose data is due fail, those that the host is reading or finishing once it has
    /// said so.
    pub fn queue_pair_down(&mut self, queue_pair: QueuePair) {
        if self.in_error.insert(queue_pair) {
            self.end_transfers(queue_pair);
            self.settle();
        }
    }

    fn end_transfers(&mut self, queue_pair: QueuePair) {
        while let Some(transfer) = self.transfers.take_idle(queue_pair) {
            self.flush(transfer.completion, transfer.after);
        }
        // What the host hasn't fetched is not begun.
        let mut index = 0;
        while let Some(work) = self.work.get(index) {
            let unfetched = match *work {
                Work::Read { handle, queue_pair: of, .. } if of == queue_pair => {
                    self.transfers.take_reading(handle)
                }
                Work::Fin { handle, queue_pair: of, .. } if of == queue_pair => {
                    self.transfers.take_finishing(handle)
                }
                _ => None,
            };
            match unfetched {
                Some(transfer) => {
                    self.work.remove(index);
                    self.flush(transfer.completion, transfer.after);
                }
                None => index += 1,
            }
        }
    }

    /// Whether nothing of this queue pair is to come any more, and all completions of it were taken.
    pub fn is_quiet(&self, queue_pair: QueuePair) -> bool {
        !self.queues.holds(queue_pair) && !self.transfers.has(queue_pair)
    }

    /// The queue pair was destroyed; its number may name a new one.
    pub fn forget(&mut self, queue_pair: QueuePair) {
        self.in_error.remove(&queue_pair);
    }

    /// One unit of time passes.
    pub fn tick(&mut self) {
        self.now += 1;
        self.settle();
    }

    /// Does everything that is due.
    fn settle(&mut self) {
        while let Some(command) = self.commands.pop(self.now) {
            self.take_up(command);
        }
        while let Some(due) = self.transfers.pop_due(self.now) {
            self.begin(due);
        }
        self.queues.release(self.now);
    }

    fn begin(&mut self, due: Due) {
        match due {
            Due::Read(transfer) => {
                if self.knobs.read_failure.draw(&mut self.random) {
                    let _ = self.transfers.take_reading(transfer.handle);
                    self.step_done(transfer, false, "a READ of its memory failed");
                    return;
                }
                let Transfer { handle, queue_pair, remote, .. } = transfer;
                self.work.push_back(Work::Read { handle, queue_pair, remote });
            }
            Due::Fin(Transfer { handle, queue_pair, mut headers, .. }) => {
                headers[0] = Opcode::Fin as u8;
                let is_short = self.knobs.short_fin.draw(&mut self.random);
                let length = if is_short { TMH_BYTES } else { HEADERS_BYTES };
                self.work.push_back(Work::Fin { handle, queue_pair, headers, length });
            }
        }
    }

    /// The NIC looks at an operation.
    fn take_up(&mut self, command: Command) {
        let Command { operation, handle, number, .. } = command;
        if let Some(count) = operation.unexpected_count {
            self.list.tell(count, &mut self.random);
        }
        let mut status = WcStatus::Success;
        let opcode = match operation.kind {
            OperationKind::Add { recv_wr_id, tag, mask, elements, length } => {
                let length = if elements == 0 { 0 } else { length };
                if let Some(handle) = handle {
                    self.list.add(Entry::new(handle, recv_wr_id, tag, mask, length));
                }
                WcOpcode::TmAdd
            }
            OperationKind::Delete { handle } => {
                if !self.list.remove(handle) {
                    status = WcStatus::TmError;
                    if !operation.signalled {
                        self.faults.record(Fault::DeleteLost(handle));
                    }
                }
                WcOpcode::TmDel
            }
            OperationKind::Sync => WcOpcode::TmSync,
        };
        if operation.signalled {
            self.answer(opcode, status, &operation, handle, number);
        }
    }

    fn answer(
        &mut self,
        opcode: WcOpcode,
        status: WcStatus,
        operation: &Operation,
        handle: Option<Handle>,
        number: u64,
    ) {
        // mlx5 compares with the count of the last add, on adds and deletes only.
        let is_due = opcode != WcOpcode::TmSync && self.list.distance() != 0;
        let flags = self.sync_request(is_due);
        let completion = Completion {
            wr_id: operation.wr_id,
            opcode,
            status,
            flags: if opcode == WcOpcode::TmSync { WcFlags::NONE } else { flags },
            tm_info: TmInfo::default(),
            length: 0,
            immediate: None,
            queue_pair: None,
            handle,
        };
        let due = self.after(self.knobs.answer);
        self.queues.push_answer(due, completion, number);
    }

    /// Work for the host: once for each. Whatever is begun must be reported done.
    pub fn next_work(&mut self) -> Option<Work> {
        self.work.pop_front()
    }

    /// The next completion, without taking it.
    pub fn peek(&self) -> Option<&Completion> {
        self.queues.front()
    }

    /// Takes the next completion. That is what frees slots and places in the command queue.
    pub fn poll(&mut self) -> Option<Completion> {
        let (mut completion, operation) = self.queues.pop()?;
        if let Some(number) = operation {
            self.commands.free_up_to(number);
        }
        let Some(handle) = completion.handle else {
            if completion.is_unexpected() {
                self.taken = self.taken.wrapping_add(1);
            }
            return Some(completion);
        };
        if !self.slots.is_taken(handle) {
            completion.status = WcStatus::GeneralError;
        }
        let is_deleted =
            completion.opcode == WcOpcode::TmDel && completion.status == WcStatus::Success;
        let settled = match completion.opcode {
            WcOpcode::TmRecv => u8::from(completion.ends_match()),
            _ => 1 + u8::from(is_deleted),
        };
        self.slots.settle(handle, settled);
        Some(completion)
    }

    /// Whether an entry was matched: its delete would be lost. Of one that has ended, `true` as well.
    pub fn is_matched(&self, handle: Handle) -> bool {
        !self.list.contains(handle) && !self.commands.is_adding(handle)
    }

    /// Slots that are taken.
    pub fn slots_taken(&self) -> usize {
        self.slots.taken()
    }

    /// Operations that take a place in the command queue.
    pub fn operations_outstanding(&self) -> u64 {
        self.commands.outstanding()
    }

    /// Whether a completion, work, or something that only needs a tick is there.
    pub fn has_work(&self) -> bool {
        self.queues.front().is_some()
            || self.queues.is_holding()
            || !self.work.is_empty()
            || !self.commands.is_idle()
            || self.transfers.is_holding()
    }
}

/// Why a queue pair fails without a reason.
const SPONTANEOUS: &str = "its queue pair failed";

/// A match in two completions: the first says with what, the second brings the data.
fn in_two(whole: Completion) -> (Completion, Completion) {
    let first = Completion { flags: WcFlags::MATCH, length: 0, immediate: None, ..whole };
    let tm_info = TmInfo::default();
    (first, Completion { flags: WcFlags::DATA_VALID, tm_info, ..whole })
}
