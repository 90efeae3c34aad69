//! Completions that are not visible yet, and those that the host may poll.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use crate::completion::{Completion, QueuePair, WcOpcode};
use crate::nic_step::NicStep;

/// A completion that the NIC has decided on. It becomes visible when its delay has passed and the
/// completions that it must follow are visible.
#[derive(Clone, Copy, Debug)]
struct PendingCompletion {
    due: u64,
    /// For answers and data: the number of receive completions that must be visible first. For a
    /// receive: the number of answers.
    after: u64,
    completion: Completion,
    /// The number of the operation, for an answer.
    operation: Option<u64>,
    /// Whether this is the data of an eager message.
    is_eager: bool,
}

/// Takes the first completion if it may become visible.
fn pop_due(
    queue: &mut VecDeque<PendingCompletion>,
    now: u64,
    shown: u64,
) -> Option<PendingCompletion> {
    let first = queue.front()?;
    if first.due > now || first.after > shown { None } else { queue.pop_front() }
}

/// Three kinds of completion, with separate delays, that become visible in one queue:
///
/// - *receives*: matches and ordinary buffers, in the order in which the NIC decided.
/// - *answers* of operations, in the order of the operations. A `TM_ADD` never becomes visible
///   before an unexpected message that the NIC had counted when it executed the add. From this
///   order a driver learns whether an entry missed its phase. (On hardware, one engine writes both
///   in order. No document says so.) A `TM_DEL` is ordered among the receives only with
///   [`Knobs::deletes_in_order`](crate::Knobs::deletes_in_order).
/// - *data*: the second completion of a match, any time after the first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queues {
    receives: VecDeque<PendingCompletion>,
    answers: VecDeque<PendingCompletion>,
    data: Vec<PendingCompletion>,
    ready: VecDeque<PendingCompletion>,
    /// The number of receive completions so far, and of those that are visible.
    decided: u64,
    shown: u64,
    /// The value of `decided` after the last unexpected message.
    last_unexpected: u64,
    /// The number of answers so far, and of those that are visible.
    answered: u64,
    answers_shown: u64,
    /// The value of `answered` after the last delete, with `deletes_in_order`.
    last_delete: u64,
    deletes_in_order: bool,
}

impl Queues {
    pub(crate) fn new(deletes_in_order: bool) -> Self {
        Queues { deletes_in_order, ..Queues::default() }
    }

    /// Adds a receive completion, and returns the `after` of its [data](Self::push_data).
    pub(crate) fn push_receive(&mut self, due: u64, completion: Completion) -> u64 {
        self.decided += 1;
        if completion.is_unexpected() {
            self.last_unexpected = self.decided;
        }
        let after = self.last_delete;
        let pending =
            PendingCompletion { due, after, completion, operation: None, is_eager: false };
        self.receives.push_back(pending);
        self.decided
    }

    pub(crate) fn push_answer(&mut self, due: u64, completion: Completion, operation: u64) {
        self.answered += 1;
        let after = match completion.opcode {
            WcOpcode::TmAdd => self.last_unexpected,
            WcOpcode::TmDel if self.deletes_in_order => {
                self.last_delete = self.answered;
                self.decided
            }
            _ => 0,
        };
        let operation = Some(operation);
        let pending = PendingCompletion { due, after, completion, operation, is_eager: false };
        self.answers.push_back(pending);
    }

    pub(crate) fn push_data(
        &mut self,
        due: u64,
        completion: Completion,
        after: u64,
        is_eager: bool,
    ) {
        self.data.push(PendingCompletion { due, after, completion, operation: None, is_eager });
    }

    /// Makes everything visible that is due.
    pub(crate) fn release(&mut self, now: u64) {
        // A receive may wait for an answer and an answer for a receive, always for an earlier
        // decision.
        loop {
            let before = self.ready.len();
            while let Some(pending) = pop_due(&mut self.receives, now, self.answers_shown) {
                self.shown += 1;
                self.ready.push_back(pending);
            }
            while let Some(pending) = pop_due(&mut self.answers, now, self.shown) {
                self.answers_shown += 1;
                self.ready.push_back(pending);
            }
            if self.ready.len() == before {
                break;
            }
        }
        if !self.data.is_empty() {
            let shown = self.shown;
            let may_show =
                |pending: &mut PendingCompletion| pending.due <= now && pending.after <= shown;
            self.ready.extend(self.data.extract_if(.., may_show));
        }
    }

    /// Lists the completions that may become visible.
    pub(crate) fn steps(&self, steps: &mut Vec<NicStep>) {
        let may_show = |pending: Option<&PendingCompletion>, shown| {
            pending.is_some_and(|pending| pending.after <= shown)
        };
        if may_show(self.answers.front(), self.shown) {
            steps.push(NicStep::Answer);
        }
        if may_show(self.receives.front(), self.answers_shown) {
            steps.push(NicStep::Receive);
        }
        let data = (0..self.data.len()).filter(|&index| self.data[index].after <= self.shown);
        steps.extend(data.map(NicStep::Data));
    }

    /// Makes one completion visible before its delay has passed; `false` if it must follow another
    /// one.
    pub(crate) fn show(&mut self, step: NicStep) -> bool {
        let pending = match step {
            NicStep::Answer => {
                let pending = pop_due(&mut self.answers, u64::MAX, self.shown);
                self.answers_shown += u64::from(pending.is_some());
                pending
            }
            NicStep::Receive => {
                let pending = pop_due(&mut self.receives, u64::MAX, self.answers_shown);
                self.shown += u64::from(pending.is_some());
                pending
            }
            NicStep::Data(index) => {
                let may_show =
                    self.data.get(index).is_some_and(|pending| pending.after <= self.shown);
                may_show.then(|| self.data.remove(index))
            }
            NicStep::Execute { .. } => None,
        };
        let is_shown = pending.is_some();
        self.ready.extend(pending);
        is_shown
    }

    /// See [`Nic::hash_state`](crate::Nic::hash_state). `freed`: the number of operations whose
    /// places are free again.
    pub(crate) fn hash_state(&self, state: &mut impl Hasher, freed: u64) {
        let mut hash = |pending: &PendingCompletion, shown: u64| {
            pending.after.saturating_sub(shown).hash(state);
            pending.operation.map(|number| number - freed).hash(state);
            pending.completion.hash_state(state);
        };
        self.receives.iter().for_each(|pending| hash(pending, self.answers_shown));
        self.answers.iter().for_each(|pending| hash(pending, self.shown));
        self.data.iter().for_each(|pending| hash(pending, self.shown));
        self.ready.iter().for_each(|pending| hash(pending, 0));
        let after = self.last_unexpected.saturating_sub(self.shown);
        (self.receives.len(), self.answers.len(), self.data.len(), after).hash(state);
        self.last_delete.saturating_sub(self.answers_shown).hash(state);
    }

    pub(crate) fn front(&self) -> Option<&Completion> {
        self.ready.front().map(|pending| &pending.completion)
    }

    /// The next completion, and the number of the operation that it answers.
    pub(crate) fn pop(&mut self) -> Option<(Completion, Option<u64>)> {
        self.ready.pop_front().map(|pending| (pending.completion, pending.operation))
    }

    /// The number of completions that are not visible yet.
    pub(crate) fn completions_pending(&self) -> usize {
        self.receives.len() + self.answers.len() + self.data.len()
    }

    /// The ordinary buffers of messages whose completion has not been polled.
    pub(crate) fn ordinary(&self) -> impl Iterator<Item = u64> {
        let pending = self.receives.iter().chain(&self.ready).map(|pending| &pending.completion);
        let has_buffer = |of: &&Completion| of.handle.is_none() && of.queue_pair.is_some();
        pending.filter(has_buffer).map(|completion| completion.wr_id)
    }

    /// Whether a completion of this queue pair has not been polled.
    pub(crate) fn holds(&self, queue_pair: QueuePair) -> bool {
        let of = |pending: &PendingCompletion| pending.completion.queue_pair == Some(queue_pair);
        self.receives.iter().chain(&self.data).chain(&self.ready).any(of)
    }

    /// Turns pending data of eager messages of this queue pair into errors: their last packets
    /// never arrive.
    pub(crate) fn lose_eager_data(&mut self, queue_pair: QueuePair) {
        for pending in &mut self.data {
            if pending.is_eager && pending.completion.queue_pair == Some(queue_pair) {
                pending.completion = pending.completion.flushed();
            }
        }
    }
}
