//! The operations that are due on the NIC's list, in the order in which the NIC must get them.

use crate::config::Why;
use crate::entry::{Entry, MatchPlace};
use crate::op::{Op, Refusal};
use crate::policy::SourceRoute;
use crate::queue::SentOperation;
use crate::shadow::Shadow;
use crate::table::{State, Step};
use crate::waiting::HeldBack;

/// An operation that is due. The caller hands it to the NIC and says what the NIC made of it;
/// nothing else can happen to the shadow before. It is due again if this is dropped.
#[derive(Debug)]
pub struct DueOp<'a> {
    shadow: &'a mut Shadow,
    op: Op,
}

impl DueOp<'_> {
    /// The operation.
    #[must_use]
    pub fn op(&self) -> Op {
        self.op
    }

    /// The NIC took the operation. For an ADD, `handle` is the device's handle of the entry.
    pub fn accepted(self, handle: Option<u32>) {
        let DueOp { shadow, op } = self;
        shadow.sent_count = shadow.frozen.unwrap_or(shadow.searched);
        match op {
            Op::Add { id, slot, .. } => shadow.sent_add(id, slot, handle.unwrap_or_default()),
            Op::Delete { slot, answer, .. } => shadow.sent_delete(slot, answer),
            Op::Sync { .. } => {
                shadow.counters.synced += 1;
                shadow.queue.push(SentOperation::Sync);
            }
        }
    }

    /// The NIC refused the operation.
    pub fn refused(self, refusal: Refusal) {
        let DueOp { shadow, op } = self;
        shadow.counters.refused += 1;
        match (op, refusal) {
            (_, Refusal::Broken) => {
                shadow.counters.broken = true;
                shadow.removals.clear();
                shadow.stalled = true;
            }
            (Op::Add { id, .. }, Refusal::Buffer) => shadow.keep(id, Why::Memory),
            (Op::Add { .. }, Refusal::ListFull) => shadow.full = true,
            _ => shadow.stalled = true,
        }
    }
}

impl Shadow {
    /// The next operation that is due. Deletes come first. ADDs follow while the list has room and
    /// nothing blocks them.
    pub fn next_op(&mut self) -> Option<DueOp<'_>> {
        let op = self.due_op()?;
        Some(DueOp { shadow: self, op })
    }

    fn due_op(&mut self) -> Option<Op> {
        if self.stalled {
            return None;
        }
        if let Some(op) = self.delete_due() {
            return Some(op);
        }
        // An entry added while software still has to search for an unexpected message would miss
        // its phase.
        if !self.counters.broken
            && self.arrived == self.searched
            && let Some(op) = self.promote()
        {
            return Some(op);
        }
        self.sync_due()
    }

    fn delete_due(&self) -> Option<Op> {
        let slot = *self.removals.front()?;
        let Entry { state, handle, .. } = self.entries[slot as usize];
        // A delete without an answer occupies the queue until a later operation is answered. So
        // there must be room for a later ADD and its delete.
        let silent = state.next(Step::Withdraw).is_some() && self.queue.room() >= 2;
        Some(Op::Delete { handle, slot, answer: !silent, count: self.count() })
    }

    /// A sync, if the NIC must be told the count and no other operation carries it.
    fn sync_due(&mut self) -> Option<Op> {
        // The NIC has counted messages that it has not reported yet, so the sync goes at half the
        // limit.
        let due = self.searched - self.sent_count >= self.sync_every.div_ceil(2);
        let can = !self.counters.broken && self.queue.room() > 0;
        (due && can).then(|| Op::Sync { count: self.count() })
    }

    fn sent_add(&mut self, id: u32, slot: u32, handle: u32) {
        let Some(receive) = self.receive(id) else { return };
        let age = receive.posted.age;
        receive.place = MatchPlace::Entry(slot);
        self.waiting.remove(None, age);
        self.free.retain(|free| *free != slot);
        let count = self.searched;
        self.entries[slot as usize] =
            Entry { state: State::Free, id, handle, count, removal: None };
        self.move_to(slot, State::Adding);
        self.queue.push(SentOperation::Add(slot));
        self.recent.push(slot);
        self.unblock(id);
        self.counters.added += 1;
    }

    fn sent_delete(&mut self, slot: u32, answer: bool) {
        self.removals.retain(|other| *other != slot);
        let step = if answer { Step::Remove } else { Step::Withdraw };
        if let Ok(next) = self.next(slot, step) {
            self.move_to(slot, next);
            self.queue.push(if answer {
                SentOperation::Delete(slot)
            } else {
                SentOperation::Silent
            });
        }
        self.thaw();
    }

    /// Lets the count rise again once no delete is left to be sent.
    pub(crate) fn thaw(&mut self) {
        if self.removals.is_empty() {
            self.frozen = None;
        }
    }

    /// The count that the next operation carries.
    #[expect(clippy::cast_possible_truncation, reason = "the NIC counts modulo 2^16")]
    fn count(&self) -> u16 {
        self.frozen.unwrap_or(self.searched) as u16
    }

    /// An ADD for the oldest waiting receive that may be added now.
    fn promote(&mut self) -> Option<Op> {
        while let Some(id) = self.waiting.first().filter(|_| self.looks > 0) {
            if !self.has_room() {
                return None;
            }
            self.looks -= 1;
            if self.may_go(id) {
                let slot = *self.free.last()?;
                return Some(Op::Add { id, slot, count: self.count() });
            }
        }
        None
    }

    /// Whether a receive may be added now. If not, it is held back until the reason is gone.
    fn may_go(&mut self, id: u32) -> bool {
        let Some(receive) = self.receive(id) else { return false };
        let posted = receive.posted;
        match self.policy.source(&posted.pattern) {
            SourceRoute::Listed => {}
            SourceRoute::Unknown(source) => {
                self.hold(id, HeldBack::Source(source));
                return false;
            }
            SourceRoute::Elsewhere => {
                self.keep(id, Why::Source);
                return false;
            }
        }
        let blockers = self.receives.iter().flatten().filter(|receive| receive.blocks);
        let blockers = blockers.map(|receive| receive.posted);
        let Some(blocker) = self.blockers.blocker(&posted, blockers) else { return true };
        self.hold(id, HeldBack::Receive(blocker.id));
        false
    }

    fn hold(&mut self, id: u32, hold: HeldBack) {
        let Some(receive) = self.receive(id) else { return };
        let age = receive.posted.age;
        receive.place = MatchPlace::Waiting(Some(hold));
        self.waiting.hold(hold, age, id);
    }

    /// The receive stays in software until it ends.
    fn keep(&mut self, id: u32, why: Why) {
        let Some(receive) = self.receive(id) else { return };
        let age = receive.posted.age;
        let MatchPlace::Waiting(hold) = receive.place else { return };
        receive.place = MatchPlace::Software(why);
        self.waiting.remove(hold, age);
    }
}
