//! Completions on their way to the host: what must keep its order, and what need not.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use super::completion::{Completion, QueuePair, WcOpcode};
use super::step::NicStep;

/// A completion that is held back.
#[derive(Clone, Copy, Debug)]
struct Delayed {
    due: u64,
    /// How many receive completions must have shown before it; of a receive, how many answers.
    after: u64,
    completion: Completion,
    /// Of an operation: its number.
    operation: Option<u64>,
    /// The data of an eager message.
    is_eager: bool,
}

/// Takes the first one if it may show now.
fn pop_due(queue: &mut VecDeque<Delayed>, now: u64, shown: u64) -> Option<Delayed> {
    let first = queue.front()?;
    if first.due > now || first.after > shown { None } else { queue.pop_front() }
}

/// Three kinds of completion, each with delays of its own, flow into one queue:
///
/// - *receives*: matches and ordinary buffers, in the order in which the NIC decided;
/// - *answers* of operations, in the order of the operations. A `TM_ADD` doesn't show before an
///   unexpected message that the NIC had counted when it took the entry up; that is what lets a driver
///   tell whether an entry missed its phase. (Hardware: both come from one engine, in order. It isn't
///   written down.) A `TM_DEL` has its place among the receives only if it is
///   [asked](super::Knobs::deletes_in_order) to;
/// - *data*: the second completion of a match, any time after the first.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues {
    receives: VecDeque<Delayed>,
    answers: VecDeque<Delayed>,
    data: Vec<Delayed>,
    ready: VecDeque<Delayed>,
    /// Receive completions so far, and those among them that have shown.
    decided: u64,
    shown: u64,
    /// `decided` after the last unexpected message.
    last_unexpected: u64,
    /// Answers so far, and those among them that have shown.
    answered: u64,
    answers_shown: u64,
    /// `answered` after the last delete, if those keep their place among the receives.
    last_delete: u64,
    deletes_in_order: bool,
}

impl Queues {
    pub(super) fn new(deletes_in_order: bool) -> Self {
        Queues { deletes_in_order, ..Queues::default() }
    }

    /// Returns what a completion of its data must come [after](Self::push_data).
    pub(super) fn push_receive(&mut self, due: u64, completion: Completion) -> u64 {
        self.decided += 1;
        if completion.is_unexpected() {
            self.last_unexpected = self.decided;
        }
        self.receives.push_back(Delayed {
            due,
            after: self.last_delete,
            completion,
            operation: None,
            is_eager: false,
        });
        self.decided
    }

    pub(super) fn push_answer(&mut self, due: u64, completion: Completion, operation: u64) {
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
        self.answers.push_back(Delayed { due, after, completion, operation, is_eager: false });
    }

    pub(super) fn push_data(
        &mut self,
        due: u64,
        completion: Completion,
        after: u64,
        is_eager: bool,
    ) {
        self.data.push(Delayed { due, after, completion, operation: None, is_eager });
    }

    /// Shows what is due.
    pub(super) fn release(&mut self, now: u64) {
        // Each may wait for one of the other kind, always for an earlier decision.
        loop {
            let before = self.ready.len();
            while let Some(held) = pop_due(&mut self.receives, now, self.answers_shown) {
                self.shown += 1;
                self.ready.push_back(held);
            }
            while let Some(held) = pop_due(&mut self.answers, now, self.shown) {
                self.answers_shown += 1;
                self.ready.push_back(held);
            }
            if self.ready.len() == before {
                break;
            }
        }
        if !self.data.is_empty() {
            let shown = self.shown;
            let may_show = |held: &mut Delayed| held.due <= now && held.after <= shown;
            self.ready.extend(self.data.extract_if(.., may_show));
        }
    }

    /// Names what may be shown.
    pub(super) fn steps(&self, steps: &mut Vec<NicStep>) {
        let may_show = |held: Option<&Delayed>, shown| held.is_some_and(|held| held.after <= shown);
        if may_show(self.answers.front(), self.shown) {
            steps.push(NicStep::Answer);
        }
        if may_show(self.receives.front(), self.answers_shown) {
            steps.push(NicStep::Receive);
        }
        let data = (0..self.data.len()).filter(|&index| self.data[index].after <= self.shown);
        steps.extend(data.map(NicStep::Data));
    }

    /// Shows one completion, whenever it is due; `false` if it may not be shown.
    pub(super) fn show(&mut self, step: NicStep) -> bool {
        let held = match step {
            NicStep::Answer => {
                let held = pop_due(&mut self.answers, u64::MAX, self.shown);
                self.answers_shown += u64::from(held.is_some());
                held
            }
            NicStep::Receive => {
                let held = pop_due(&mut self.receives, u64::MAX, self.answers_shown);
                self.shown += u64::from(held.is_some());
                held
            }
            NicStep::Data(index) => {
                let may_show = self.data.get(index).is_some_and(|held| held.after <= self.shown);
                may_show.then(|| self.data.remove(index))
            }
            NicStep::TakeUp { .. } => None,
        };
        let is_shown = held.is_some();
        self.ready.extend(held);
        is_shown
    }

    /// See [`Nic::hash_state`](super::Nic::hash_state). `freed`: operations whose places are free again.
    pub(super) fn hash_state(&self, state: &mut impl Hasher, freed: u64) {
        let mut hash = |held: &Delayed, shown: u64| {
            held.after.saturating_sub(shown).hash(state);
            held.operation.map(|number| number - freed).hash(state);
            held.completion.hash_state(state);
        };
        self.receives.iter().for_each(|held| hash(held, self.answers_shown));
        self.answers.iter().for_each(|held| hash(held, self.shown));
        self.data.iter().for_each(|held| hash(held, self.shown));
        self.ready.iter().for_each(|held| hash(held, 0));
        let after = self.last_unexpected.saturating_sub(self.shown);
        (self.receives.len(), self.answers.len(), self.data.len(), after).hash(state);
        self.last_delete.saturating_sub(self.answers_shown).hash(state);
    }

    pub(super) fn front(&self) -> Option<&Completion> {
        self.ready.front().map(|held| &held.completion)
    }

    /// The next completion, and the number of the operation that it answers.
    pub(super) fn pop(&mut self) -> Option<(Completion, Option<u64>)> {
        self.ready.pop_front().map(|held| (held.completion, held.operation))
    }

    /// Whether something is held back.
    pub(super) fn is_holding(&self) -> bool {
        !(self.receives.is_empty() && self.answers.is_empty() && self.data.is_empty())
    }

    /// How many are held back.
    pub(super) fn held_back(&self) -> usize {
        self.receives.len() + self.answers.len() + self.data.len()
    }

    /// Whether a completion of this queue pair is here.
    pub(super) fn holds(&self, queue_pair: QueuePair) -> bool {
        let of = |held: &Delayed| held.completion.queue_pair == Some(queue_pair);
        self.receives.iter().chain(&self.data).chain(&self.ready).any(of)
    }

    /// Of eager messages of this queue pair whose data has not shown, the last packets never come.
    pub(super) fn lose_eager_data(&mut self, queue_pair: QueuePair) {
        for held in &mut self.data {
            if held.is_eager && held.completion.queue_pair == Some(queue_pair) {
                held.completion = held.completion.flushed();
            }
        }
    }
}
