//! A model of a NIC that keeps the contract of `tagmatch_device::TagList`: a list and three queues.

use std::collections::VecDeque;

use tagmatch_shadow::{Op, Refusal};
use tagmatch_soft::{Pattern, SourceId, Tag};
use tagmatch_testkit::random::Random;

use super::by_tag;

/// What the NIC did with a message. Decisions are reported in the order of arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Decision {
    Matched { slot: u32, message: usize },
    Unexpected { message: usize },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Added { slot: u32 },
    Deleted { slot: u32 },
    Lost { slot: u32 },
    Synced,
}

#[derive(Clone, Copy, Debug)]
struct Listed {
    slot: u32,
    handle: u32,
    pattern: Pattern,
    receive: usize,
    active: bool,
}

/// The events that a slot waits for. A slot is in use until the last event of its entry was
/// reported.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    adding: bool,
    deleting: bool,
    ended: bool,
}

#[derive(Debug)]
pub(crate) struct Nic {
    slots: usize,
    operations: usize,
    /// Whether an operation with an equal count activates entries that missed their phase.
    wakes: bool,
    /// On average one operation in this many is refused without need; 0 means none.
    needless_refusals: u64,
    list: Vec<Listed>,
    held: Vec<(u32, Held)>,
    count: u16,
    next_handle: u32,
    /// Operations that the NIC has still to execute; an ADD with its entry.
    todo: VecDeque<(Op, Option<Listed>)>,
    /// For each operation in the queue, whether it will be answered.
    outstanding: VecDeque<bool>,
    decisions: VecDeque<Decision>,
    /// Decisions made.
    decided: u64,
    /// Decisions reported.
    delivered: u64,
    /// The number of the last decision that was an unexpected message.
    unexpected: u64,
    /// Answers, each with the number of decisions that must be reported before it.
    answers: VecDeque<(Answer, u64)>,
    /// Slots whose match was reported and whose data was not.
    data: Vec<u32>,
}

impl Nic {
    pub(crate) fn new(
        slots: u32,
        operations: u32,
        first_count: u16,
        wakes: bool,
        needless_refusals: u64,
    ) -> Self {
        Nic {
            slots: slots as usize,
            operations: operations as usize,
            wakes,
            needless_refusals,
            list: vec![],
            held: vec![],
            count: first_count,
            next_handle: 0,
            todo: VecDeque::new(),
            outstanding: VecDeque::new(),
            decisions: VecDeque::new(),
            decided: 0,
            delivered: 0,
            unexpected: 0,
            answers: VecDeque::new(),
            data: vec![],
        }
    }

    /// Takes an operation, which the NIC executes later.
    pub(crate) fn hand(
        &mut self,
        op: Op,
        receive: Option<(Pattern, usize)>,
        random: &mut Random,
    ) -> Result<Option<u32>, Refusal> {
        if self.needless_refusals > 0 && random.below(self.needless_refusals) == 0 || self.is_busy()
        {
            return Err(Refusal::QueueFull);
        }
        let mut add = None;
        let answered;
        match op {
            Op::Add { slot, .. } => {
                if self.held.len() >= self.slots {
                    return Err(Refusal::ListFull);
                }
                self.held.push((slot, Held { adding: true, ..Held::default() }));
                self.next_handle += 1;
                let handle = self.next_handle;
                add = receive.map(|(pattern, receive)| Listed {
                    slot,
                    handle,
                    pattern: by_tag(&pattern),
                    receive,
                    active: false,
                });
                answered = true;
            }
            Op::Delete { slot, answer, .. } => {
                let held = self.held_mut(slot);
                held.deleting = answer;
                held.ended |= !answer;
                self.release();
                answered = answer;
            }
            Op::Sync { .. } => answered = true,
        }
        self.outstanding.push_back(answered);
        self.todo.push_back((op, add));
        Ok(add.map(|add| add.handle))
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.outstanding.len() >= self.operations
    }

    /// Executes the oldest operation. Returns the receive whose entry a delete removed.
    pub(crate) fn execute(&mut self) -> Option<usize> {
        let (op, add) = self.todo.pop_front()?;
        let (Op::Add { count, .. } | Op::Delete { count, .. } | Op::Sync { count }) = op;
        let agrees = count == self.count;
        if agrees && self.wakes {
            self.list.iter_mut().for_each(|entry| entry.active = true);
        }
        match op {
            Op::Add { slot, .. } => {
                self.list.push(Listed { active: agrees, ..add? });
                self.answers.push_back((Answer::Added { slot }, self.unexpected));
            }
            Op::Delete { slot, handle, answer, .. } => {
                let place = self.list.iter().position(|entry| entry.handle == handle);
                let found = place.map(|place| self.list.remove(place).receive);
                if answer {
                    let done = if found.is_some() {
                        Answer::Deleted { slot }
                    } else {
                        Answer::Lost { slot }
                    };
                    self.answers.push_back((done, 0));
                }
                return found;
            }
            Op::Sync { .. } => self.answers.push_back((Answer::Synced, 0)),
        }
        None
    }

    /// A message arrives. Returns the receive that it matched.
    pub(crate) fn arrive(&mut self, message: usize, tag: u64) -> Option<usize> {
        self.decided += 1;
        let matches = |e: &Listed| e.active && e.pattern.matches(Tag(tag), SourceId(0));
        if let Some(place) = self.list.iter().position(matches) {
            let entry = self.list.remove(place);
            self.decisions.push_back(Decision::Matched { slot: entry.slot, message });
            return Some(entry.receive);
        }
        self.unexpected = self.decided;
        self.count = self.count.wrapping_add(1);
        self.decisions.push_back(Decision::Unexpected { message });
        None
    }

    pub(crate) fn decision(&mut self) -> Option<Decision> {
        let decision = self.decisions.pop_front()?;
        self.delivered += 1;
        if let Decision::Matched { slot, .. } = decision {
            self.data.push(slot);
        }
        Some(decision)
    }

    pub(crate) fn answer(&mut self) -> Option<Answer> {
        let (answer, after) = *self.answers.front()?;
        if self.delivered < after {
            return None;
        }
        self.answers.pop_front();
        while self.outstanding.pop_front() == Some(false) {}
        let (Answer::Added { slot } | Answer::Deleted { slot } | Answer::Lost { slot }) = answer
        else {
            return Some(answer);
        };
        let held = self.held_mut(slot);
        match answer {
            Answer::Added { .. } => held.adding = false,
            Answer::Deleted { .. } => (held.deleting, held.ended) = (false, true),
            Answer::Lost { .. } => held.deleting = false,
            Answer::Synced => {}
        }
        self.release();
        Some(answer)
    }

    pub(crate) fn landed(&mut self, random: &mut Random) -> Option<u32> {
        if self.data.is_empty() {
            return None;
        }
        let slot = self.data.swap_remove(random.index(self.data.len()));
        self.held_mut(slot).ended = true;
        self.release();
        Some(slot)
    }

    /// From now on no operation is refused without need.
    pub(crate) fn end_needless_refusals(&mut self) {
        self.needless_refusals = 0;
    }

    /// Whether an ADD and its delete may exceed the number of operations.
    pub(crate) fn is_near_full(&self) -> bool {
        self.outstanding.len() + self.held.len() + 3 > self.operations
    }

    /// Entries in the list.
    pub(crate) fn listed(&self) -> usize {
        self.list.len()
    }

    /// A broken shadow may name a slot that is not in use; it then gets one.
    fn held_mut(&mut self, slot: u32) -> &mut Held {
        let place = self.held.iter().position(|(held, _)| *held == slot);
        let place = place.unwrap_or_else(|| {
            self.held.push((slot, Held::default()));
            self.held.len() - 1
        });
        &mut self.held[place].1
    }

    fn release(&mut self) {
        self.held.retain(|(_, held)| held.adding || held.deleting || !held.ended);
    }
}
