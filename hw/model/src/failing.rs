//! What the host does for a matched rendezvous, and what becomes of all when a queue pair fails.

use super::completion::{Completion, QueuePair};
use super::fault::Fault;
use super::nic::Nic;
use super::slots::Handle;
use super::transfers::{Due, HEADERS_BYTES, Transfer, Work};
use tagmatch_device::tm::{Opcode, TMH_BYTES};

impl Nic {
    pub(super) fn flush(&mut self, completion: Completion, after: u64) {
        let due = self.held_until(self.knobs.data);
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
            let due = self.held_until(self.knobs.data);
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

    pub(super) fn begin(&mut self, due: Due) {
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
}
