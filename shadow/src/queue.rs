//! Operations that the NIC has and hasn't answered, in their order.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// An operation without an answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sent {
    /// An ADD of this slot.
    Add(u32),
    /// A delete of this slot that will be answered.
    Delete(u32),
    /// A sync.
    Sync,
    /// One that is done when a later one is answered.
    Silent,
}

/// The NIC takes so many operations without answers and no more. For each entry one is kept back for
/// its delete, so that the NIC has no cause to refuse that.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    sent: VecDeque<Sent>,
    operations: usize,
    /// Operations kept back.
    reserved: usize,
}

impl Queue {
    pub(crate) fn new(operations: u32) -> Self {
        Queue { sent: VecDeque::new(), operations: operations as usize, reserved: 0 }
    }

    pub(crate) fn reserve(&mut self) {
        self.reserved += 1;
    }

    pub(crate) fn release(&mut self) {
        self.reserved -= 1;
    }

    /// Operations that can go besides those kept back.
    pub(crate) fn room(&self) -> usize {
        self.operations.saturating_sub(self.sent.len() + self.reserved)
    }

    pub(crate) fn push(&mut self, sent: Sent) {
        self.sent.push_back(sent);
    }

    /// What the NIC must answer next.
    pub(crate) fn due(&self) -> Option<Sent> {
        self.sent.iter().copied().find(|sent| *sent != Sent::Silent)
    }

    /// The one that was due has been answered.
    pub(crate) fn answered(&mut self) {
        while self.sent.pop_front() == Some(Sent::Silent) {}
    }

    /// See [`Shadow::hash_state`](crate::Shadow::hash_state).
    pub(crate) fn hash_state(&self, state: &mut impl Hasher) {
        (&self.sent, self.reserved).hash(state);
    }

    /// Slots whose ADD has no answer yet, youngest first.
    pub(crate) fn adding(&self) -> impl Iterator<Item = u32> + '_ {
        self.sent.iter().rev().filter_map(|sent| match sent {
            Sent::Add(slot) => Some(*slot),
            _ => None,
        })
    }
}
