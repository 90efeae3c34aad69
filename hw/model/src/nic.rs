//! The NIC: what comes in, what goes out, and what it decides.

use std::collections::{BTreeSet, VecDeque};

use super::completion::{Completion, QueuePair, TmInfo, WcFlags, WcOpcode, WcStatus};
use super::fault::{Fault, Faults};
use super::knobs::{Delay, Knobs, ModelConfig};
use super::list::{Entry, List};
use super::operation::{Command, Commands, Operation, OperationKind, PostError};
use super::queues::Queues;
use super::random::Random;
use super::slots::{Handle, Slots};
use super::transfers::{Transfers, Work};
use tagmatch_device::DeviceError;

/// A tag-matching NIC with its driver, as a pure state machine: no input or output, no clock, chance
/// from its seed alone. It owns no payload: it decides where bytes go, and the host copies them.
///
/// See the [module](super) for its rules.
#[derive(Clone, Debug)]
pub struct Nic {
    pub(super) knobs: Knobs,
    pub(super) random: Random,
    /// Ticks so far.
    pub(super) now: u64,
    pub(super) slots: Slots,
    pub(super) commands: Commands,
    pub(super) list: List,
    pub(super) queues: Queues,
    pub(super) transfers: Transfers,
    pub(super) work: VecDeque<Work>,
    /// Ordinary buffers: `wr_id` and length in bytes.
    pub(super) ordinary: VecDeque<(u64, u64)>,
    /// The floor of ordinary buffers was reached once.
    is_open: bool,
    /// Unexpected messages whose completions were taken, counted as the NIC counts.
    pub(super) taken: u16,
    /// The count of the last operation that was posted with one.
    pub(super) given: u16,
    pub(super) in_error: BTreeSet<QueuePair>,
    pub(super) faults: Faults,
    /// [`Nic::by_hand`].
    pub(super) is_by_hand: bool,
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
            queues: Queues::new(knobs.deletes_in_order),
            transfers: Transfers::default(),
            work: VecDeque::new(),
            ordinary: VecDeque::new(),
            is_open: knobs.floor == 0,
            taken: knobs.first_count,
            given: knobs.first_count,
            in_error: BTreeSet::new(),
            faults: Faults::default(),
            is_by_hand: false,
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
        let due = self.held_until(self.knobs.operation);
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
        let (before, taken) = (self.given, self.taken);
        if given.wrapping_sub(before) > taken.wrapping_sub(before) {
            self.faults.record(Fault::CountNotTaken { given, before, taken });
        }
        self.given = given;
    }

    /// Posts an ordinary buffer of so many bytes.
    pub fn post_receive(&mut self, wr_id: u64, length: u64) {
        self.ordinary.push_back((wr_id, length));
        self.is_open |= self.ordinary.len() >= self.knobs.floor as usize;
    }

    /// Sets [`Knobs::packet_bytes`]: the path's MTU of the queue pair whose messages come next.
    pub fn set_packet_bytes(&mut self, bytes: u64) {
        self.knobs.packet_bytes = bytes;
    }

    /// Whether a message would be taken now.
    ///
    /// Hardware may take a message that it matches even when it is out of ordinary buffers; nothing says
    /// so, and the model doesn't.
    pub fn is_ready(&self) -> bool {
        self.is_open && !self.ordinary.is_empty()
    }

    pub(super) fn sync_request(&mut self, is_due: bool) -> WcFlags {
        let Knobs { missing_sync_request, spurious_sync_request, .. } = self.knobs;
        let is_turned = if is_due { missing_sync_request } else { spurious_sync_request };
        if is_due != is_turned.draw(&mut self.random) {
            WcFlags::SYNC_REQUEST
        } else {
            WcFlags::NONE
        }
    }

    pub(super) fn after(&mut self, delay: Delay) -> u64 {
        self.now + delay.draw(&mut self.random)
    }

    /// The same, of what [`NicStep`](super::NicStep) can do by hand.
    pub(super) fn held_until(&mut self, delay: Delay) -> u64 {
        if self.is_by_hand { u64::MAX } else { self.after(delay) }
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
    pub(super) fn settle(&mut self) {
        while let Some(command) = self.commands.pop(self.now) {
            self.take_up(command);
        }
        while let Some(due) = self.transfers.pop_due(self.now) {
            self.begin(due);
        }
        self.queues.release(self.now);
    }

    /// The NIC looks at an operation.
    pub(super) fn take_up(&mut self, command: Command) {
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
        let flags = match opcode {
            WcOpcode::TmSync => WcFlags::NONE,
            _ => self.sync_request(self.list.distance() != 0),
        };
        let completion = Completion {
            wr_id: operation.wr_id,
            opcode,
            status,
            flags,
            tm_info: TmInfo::default(),
            length: 0,
            immediate: None,
            queue_pair: None,
            handle,
        };
        let due = self.held_until(self.knobs.answer);
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
        self.slots.is_matched(handle)
    }

    /// Slots that are taken.
    pub fn slots_taken(&self) -> usize {
        self.slots.taken()
    }

    /// Slots of entries for which a delete was posted.
    pub fn slots_deleting(&self) -> usize {
        self.slots.deleting()
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
