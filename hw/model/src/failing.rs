//! READs and FINs that end, and queue pairs that fail.

use tagmatch_device::tm::{Opcode, TMH_BYTES};

use crate::completion::{Completion, QueuePair};
use crate::fault::Fault;
use crate::nic::Nic;
use crate::slots::Handle;
use crate::transfers::{
    Due, FailureTime, HEADERS_BYTES, READ_FAILED, Transfer, TransferState, Work,
};

impl Nic {
    /// Has the queue pair of the next message that an entry matches fail.
    pub fn fail_at_match(&mut self, when: FailureTime) {
        self.fails_at_match = Some(when);
    }

    /// How often a queue pair has failed as [`Nic::fail_at_match`] says.
    pub fn failed_at_match(&self) -> u64 {
        self.failed_at_match
    }

    /// Completes a match whose data will never arrive with an error. `None`: it has completed.
    pub(crate) fn flush(&mut self, completion: Option<Completion>, after: u64) {
        let Some(completion) = completion else { return };
        let due = self.due_after(self.knobs.data);
        self.queues.push_data(due, completion.flushed(), after, false);
    }

    /// Reports the end of a [`Work::Read`]. If it failed, its queue pair is in error.
    pub fn read_done(&mut self, handle: Handle, is_ok: bool) {
        let Some(transfer) = self.transfers.take_reading(handle) else {
            return self.faults.record(Fault::NotUnderWay(handle));
        };
        self.end_if_broken(transfer, is_ok, READ_FAILED);
        if is_ok && !self.in_error.contains(&transfer.queue_pair) {
            let due = self.after(self.knobs.fin);
            let mut transfer = Transfer { state: TransferState::FinDue(due), ..transfer };
            if self.knobs.data_before_fin {
                self.give_data(&mut transfer);
            }
            self.transfers.push(transfer);
        }
        self.settle();
    }

    /// Reports that a [`Work::Fin`] was sent, or could not be sent: then its queue pair is in
    /// error.
    pub fn fin_done(&mut self, handle: Handle, is_ok: bool) {
        let Some(mut transfer) = self.transfers.take_finishing(handle) else {
            return self.faults.record(Fault::NotUnderWay(handle));
        };
        if is_ok {
            self.give_data(&mut transfer);
        } else {
            self.end_if_broken(transfer, false, "a FIN could not be sent");
        }
        self.settle();
    }

    /// Completes a match whose data is there, once.
    fn give_data(&mut self, transfer: &mut Transfer) {
        if let Some(completion) = transfer.completion.take() {
            let due = self.due_after(self.knobs.data);
            self.queues.push_data(due, completion, transfer.after, false);
        }
    }

    /// Ends a transfer if its queue pair is in error, or now becomes so.
    fn end_if_broken(&mut self, transfer: Transfer, is_ok: bool, why: &'static str) {
        if !is_ok {
            self.fail(transfer.queue_pair, why);
        }
        if self.in_error.contains(&transfer.queue_pair) {
            self.flush(transfer.completion, transfer.after);
        }
    }

    /// Puts the queue pair into error, and tells the host by [`Work::Broken`].
    pub fn fail(&mut self, queue_pair: QueuePair, why: &'static str) {
        if self.in_error.insert(queue_pair) {
            self.queues.lose_eager_data(queue_pair);
            self.end_transfers(queue_pair);
            self.work.push_back(Work::Broken { queue_pair, why });
        }
    }

    /// Records that the host has put the queue pair into error, or that its peer is down. Matches
    /// whose data has arrived complete. The other matches fail; those whose READ or FIN is under
    /// way fail when the host reports its end.
    pub fn queue_pair_down(&mut self, queue_pair: QueuePair) {
        if self.in_error.insert(queue_pair) {
            self.end_transfers(queue_pair);
            self.settle();
        }
    }

    /// Ends the transfers of a queue pair that the host has not started.
    fn end_transfers(&mut self, queue_pair: QueuePair) {
        while let Some(transfer) = self.transfers.take_idle(queue_pair) {
            self.flush(transfer.completion, transfer.after);
        }
        // Work that the host has not fetched is dropped.
        for work in std::mem::take(&mut self.work) {
            let unfetched = match work {
                Work::Read { handle, queue_pair: of, .. } if of == queue_pair => {
                    self.transfers.take_reading(handle)
                }
                Work::Fin { handle, queue_pair: of, .. } if of == queue_pair => {
                    self.transfers.take_finishing(handle)
                }
                _ => None,
            };
            match unfetched {
                Some(transfer) => self.flush(transfer.completion, transfer.after),
                None => self.work.push_back(work),
            }
        }
    }

    /// Turns a step that is due into work for the host.
    pub(crate) fn begin(&mut self, due: Due) {
        match due {
            Due::Read(transfer) => {
                if self.knobs.read_failure.draw(&mut self.random) {
                    let _ = self.transfers.take_reading(transfer.handle);
                    self.end_if_broken(transfer, false, READ_FAILED);
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
