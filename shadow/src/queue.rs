//! Operations that the NIC has taken and not answered yet, in order.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// An operation without an answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SentOperation {
    /// An ADD of this slot.
    Add(u32),
    /// A delete of this slot that will be answered.
    Delete(u32),
    /// A sync.
    Sync,
    /// A delete without an answer. It is done when a later operation is answered.
    Silent,
}

/// The operations without answers, which the NIC limits in number.
///
/// For each entry one operation is kept back for its delete, so that the NIC doesn't have to refuse
/// the delete.
#[derive(Clone, Debug)]
pub(crate) struct UnansweredOperations {
    sent: VecDeque<SentOperation>,
    operations: usize,
    /// Operations kept back.
    reserved: usize,
}

impl UnansweredOperations {
    pub(crate) fn new(operations: u32) -> Self {
        UnansweredOperations { sent: VecDeque::new(), operations: operations as usize, reserved: 0 }
    }

    pub(crate) fn reserve(&mut self) {
        self.reserved += 1;
    }

    pub(crate) fn release(&mut self) {
        self.reserved -= 1;
    }

    /// The number of operations that can be sent besides those kept back.
    pub(crate) fn room(&self) -> usize {
        self.operations.saturating_sub(self.sent.len() + self.reserved)
    }

    pub(crate) fn push(&mut self, sent: SentOperation) {
        self.sent.push_back(sent);
    }

    /// The operation that the NIC must answer next.
    pub(crate) fn due(&self) -> Option<SentOperation> {
        self.sent.iter().copied().find(|sent| *sent != SentOperation::Silent)
    }

    /// Removes the operation that was due, which the NIC has answered.
    pub(crate) fn answered(&mut self) {
        while self.sent.pop_front() == Some(SentOperation::Silent) {}
    }

    /// See [`Shadow::hash_state`](crate::Shadow::hash_state).
    pub(crate) fn hash_state(&self, state: &mut impl Hasher) {
        (&self.sent, self.reserved).hash(state);
    }

    /// Slots whose ADD has no answer yet, youngest first.
    pub(crate) fn adding(&self) -> impl Iterator<Item = u32> + '_ {
        self.sent.iter().rev().filter_map(|sent| match sent {
            SentOperation::Add(slot) => Some(*slot),
            _ => None,
        })
    }
}
