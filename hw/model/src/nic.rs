//! The NIC and its driver: operations, time, completions.

use std::collections::{BTreeSet, VecDeque};

use tagmatch_device::DeviceError;

use crate::completion::{Completion, QueuePair, WcFlags, WcOpcode, WcStatus};
use crate::fault::{Fault, Faults};
use crate::knob_values::Delay;
use crate::knobs::{Knobs, ModelConfig};
use crate::list::{List, ModelEntry};
use crate::operation::{Command, Commands, Operation, OperationKind, PostError};
use crate::queues::Queues;
use crate::random::Random;
use crate::slots::{Handle, Slots};
use crate::transfers::{FailureTime, Transfers, Work};

/// A tag-matching NIC with its driver, as a pure state machine: no input or output and no clock,
/// and every random choice follows from the seed. It holds no payload: it decides where bytes go,
/// and the host copies them.
///
/// The rules that it follows are listed in the documentation of the [crate](crate).
#[derive(Clone, Debug)]
pub struct Nic {
    pub(crate) knobs: Knobs,
    pub(crate) random: Random,
    /// The time: the number of [ticks](Nic::tick).
    pub(crate) now: u64,
    pub(crate) slots: Slots,
    pub(crate) commands: Commands,
    pub(crate) list: List,
    pub(crate) queues: Queues,
    pub(crate) transfers: Transfers,
    pub(crate) work: VecDeque<Work>,
    /// Ordinary buffers: `wr_id` and length in bytes.
    pub(crate) ordinary: VecDeque<(u64, u64)>,
    /// Whether [`Knobs::buffers_min`] ordinary buffers were posted at some time.
    is_open: bool,
    /// Unexpected messages that the host has polled, modulo 2^16, starting at
    /// [`Knobs::first_count`].
    pub(crate) polled_count: u16,
    /// The count of the last operation that carried one.
    pub(crate) posted_count: u16,
    pub(crate) in_error: BTreeSet<QueuePair>,
    /// See [`Nic::fail_at_match`].
    pub(crate) fails_at_match: Option<FailureTime>,
    pub(crate) failed_at_match: u64,
    pub(crate) faults: Faults,
    /// See [`Nic::phase_missed`].
    pub(crate) phase_missed: u64,
    /// See [`Nic::set_manual`].
    pub(crate) is_manual: bool,
    /// The driver is elsewhere: see [`Nic::post_at`].
    is_driven_outside: bool,
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
            is_open: knobs.buffers_min == 0,
            polled_count: knobs.first_count,
            posted_count: knobs.first_count,
            in_error: BTreeSet::new(),
            fails_at_match: None,
            failed_at_match: 0,
            faults: Faults::default(),
            phase_missed: 0,
            is_manual: false,
            is_driven_outside: false,
            knobs,
        })
    }

    /// The rules that the host has broken: the first 64 different ones.
    pub fn faults(&self) -> &[Fault] {
        self.faults.kept()
    }

    /// The number of messages so far that took an ordinary buffer although an entry has their tag,
    /// since it had missed its phase.
    pub fn phase_missed(&self) -> u64 {
        self.phase_missed
    }

    /// Records a fault that the NIC itself cannot notice.
    pub fn record(&mut self, fault: Fault) {
        self.faults.record(fault);
    }

    /// Posts an operation, and returns the handle of the entry that it adds or deletes.
    ///
    /// # Errors
    /// [`PostError`] says why the operation was not posted. The list has not changed then.
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
        self.queue(operation, handle);
        Ok(handle)
    }

    /// Puts an operation into the command queue.
    fn queue(&mut self, operation: Operation, handle: Option<Handle>) {
        self.check_count(operation.unexpected_count);
        let due = self.due_after(self.knobs.operation);
        self.commands.push(operation, handle, due);
        self.settle();
    }

    /// Posts an operation of a driver outside of this NIC, which chooses the slots of entries and
    /// knows when they are free, as libmlx5 does. `handle` names the entry that the operation adds
    /// or deletes; the caller gives each add a handle of its own. A NIC that was given one such
    /// operation must be given no other ones by [`Nic::post`].
    ///
    /// An add takes the slot of an entry that is still in the list: that entry is gone, and the
    /// mistake is a [`Fault`].
    pub fn post_at(&mut self, operation: Operation, handle: Option<Handle>) {
        self.is_driven_outside = true;
        if let (OperationKind::Add { tag, mask, .. }, Some(handle)) = (operation.kind, handle)
            && tag & !mask != 0
        {
            self.faults.record(Fault::TagOutsideMask(handle));
        }
        self.queue(operation, handle);
    }

    /// The count of unexpected messages (`hw_phase_cnt`), modulo 2^16, and the last count that
    /// software sent (`sw_phase_cnt`).
    pub fn counts(&self) -> (u16, u16) {
        (self.list.counted(), self.list.software_count())
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

    /// Records a fault if software's count includes messages that the host has not polled, or is
    /// behind an earlier count.
    fn check_count(&mut self, count: Option<u16>) {
        let Some(given) = count else { return };
        let before = self.posted_count;
        let taken = self.polled_count;
        if given.wrapping_sub(before) > taken.wrapping_sub(before) {
            self.faults.record(Fault::CountNotTaken { given, before, taken });
        }
        self.posted_count = given;
    }

    /// Posts an ordinary buffer of `length` bytes.
    pub fn post_receive(&mut self, wr_id: u64, length: u64) {
        self.ordinary.push_back((wr_id, length));
        self.is_open |= self.ordinary.len() >= self.knobs.buffers_min as usize;
    }

    /// Whether [`Knobs::buffers_min`] ordinary buffers were posted at some time.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Sets [`Knobs::packet_bytes`] to the path MTU of the queue pair whose message arrives next.
    pub fn set_packet_bytes(&mut self, bytes: u64) {
        self.knobs.packet_bytes = bytes;
    }

    /// Whether the NIC would accept any message now. See also [`Knobs::matches_without_buffers`].
    pub fn is_ready(&self) -> bool {
        self.is_open && !self.ordinary.is_empty()
    }

    /// The flag `SYNC_REQ`, or none, after the knobs that may turn it around.
    pub(crate) fn sync_request(&mut self, is_due: bool) -> WcFlags {
        let Knobs { missing_sync_request, spurious_sync_request, .. } = self.knobs;
        let is_turned = if is_due { missing_sync_request } else { spurious_sync_request };
        if is_due != is_turned.draw(&mut self.random) {
            WcFlags::SYNC_REQUEST
        } else {
            WcFlags::NONE
        }
    }

    /// The tick after a random delay.
    pub(crate) fn after(&mut self, delay: Delay) -> u64 {
        self.now + delay.draw(&mut self.random)
    }

    /// The tick after a random delay, or never if the caller chooses the [steps](crate::NicStep).
    pub(crate) fn due_after(&mut self, delay: Delay) -> u64 {
        if self.is_manual { u64::MAX } else { self.after(delay) }
    }

    /// Whether the queue pair has no transfer under way and no completion left to poll.
    pub fn is_quiet(&self, queue_pair: QueuePair) -> bool {
        !self.queues.holds(queue_pair) && !self.transfers.has(queue_pair)
    }

    /// Forgets that the queue pair was in error, after it was destroyed: its number may name a new
    /// one.
    pub fn forget(&mut self, queue_pair: QueuePair) {
        self.in_error.remove(&queue_pair);
    }

    /// Advances the time by one tick, and does everything that is due.
    pub fn tick(&mut self) {
        self.now += 1;
        self.settle();
    }

    /// Does everything that is due.
    pub(crate) fn settle(&mut self) {
        while let Some(command) = self.commands.pop(self.now) {
            self.execute(command);
        }
        while let Some(due) = self.transfers.pop_due(self.now) {
            self.begin(due);
        }
        self.queues.release(self.now);
    }

    /// Executes an operation.
    pub(crate) fn execute(&mut self, command: Command) {
        let Command { operation, handle, number, .. } = command;
        if let Some(count) = operation.unexpected_count {
            self.list.set_software_count(count, &mut self.random);
        }
        let mut status = WcStatus::Success;
        let opcode = match operation.kind {
            OperationKind::Add { recv_wr_id, tag, mask, elements, length } => {
                let length = if elements == 0 { 0 } else { length };
                if let Some(handle) = handle {
                    let taken = self
                        .is_driven_outside
                        .then(|| self.list.take_slot(handle.slot()))
                        .flatten();
                    if let Some(before) = taken {
                        self.faults.record(Fault::SlotTaken(before));
                    }
                    self.list.add(ModelEntry::new(handle, recv_wr_id, tag, mask, length));
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
            let answer = Completion::new(operation.wr_id, opcode);
            self.answer(Completion { status, handle, ..answer }, number);
        }
    }

    fn answer(&mut self, mut completion: Completion, number: u64) {
        // mlx5 compares with the count of the last add, on adds and deletes only.
        if completion.opcode != WcOpcode::TmSync {
            completion.flags = self.sync_request(self.list.distance() != 0);
        }
        let due = self.due_after(self.knobs.answer);
        self.queues.push_answer(due, completion, number);
    }

    /// The next work for the host, each once. The host must report the end of each READ and FIN.
    pub fn next_work(&mut self) -> Option<Work> {
        self.work.pop_front()
    }

    /// The next completion, which stays in the queue.
    pub fn peek(&self) -> Option<&Completion> {
        self.queues.front()
    }

    /// Takes the next completion. This is also what frees slots and places in the command queue.
    pub fn poll(&mut self) -> Option<Completion> {
        let (mut completion, operation) = self.queues.pop()?;
        let is_counted = matches!(completion.opcode, WcOpcode::TmAdd | WcOpcode::TmDel);
        if is_counted && self.knobs.counts_at_answer {
            completion.flags = self.sync_request(self.list.distance() != 0);
        }
        if let Some(number) = operation {
            self.commands.free_up_to(number);
        }
        let Some(handle) = completion.handle else {
            if completion.is_unexpected() {
                self.polled_count = self.polled_count.wrapping_add(1);
            }
            return Some(completion);
        };
        if self.is_driven_outside {
            return Some(completion);
        }
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

    /// Whether an entry was matched, so that its delete would fail; also `true` if it has ended.
    pub fn is_matched(&self, handle: Handle) -> bool {
        self.slots.is_matched(handle)
    }

    /// The number of slots in use.
    pub fn slots_taken(&self) -> usize {
        self.slots.taken()
    }

    /// The number of entries for which a delete was posted.
    pub fn slots_deleting(&self) -> usize {
        self.slots.deleting()
    }

    /// The number of places in use in the command queue.
    pub fn operations_outstanding(&self) -> u64 {
        self.commands.outstanding()
    }

    /// Whether there is a completion, work for the host, or something that the next ticks will do.
    pub fn has_work(&self) -> bool {
        self.queues.front().is_some()
            || self.queues.completions_pending() > 0
            || !self.work.is_empty()
            || !self.commands.is_idle()
            || self.transfers.is_holding()
    }
}
