//! The receives that wait to be added to the NIC's list: those to be examined, in the order of
//! posting, and those held back until something has happened.

use std::collections::BTreeMap;

use crate::order::Age;

/// What must happen before a receive is worth examining again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum HeldBack {
    /// This receive leaves, or stops blocking younger ones.
    Receive(u32),
    /// A message of this source arrives through the list.
    Source(u64),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct WaitingReceives {
    ready: BTreeMap<Age, u32>,
    held: BTreeMap<(HeldBack, Age), u32>,
}

impl WaitingReceives {
    pub(crate) fn ready(&mut self, age: Age, id: u32) {
        self.ready.insert(age, id);
    }

    /// The oldest receive to be examined.
    pub(crate) fn first(&self) -> Option<u32> {
        self.ready.first_key_value().map(|(_, id)| *id)
    }

    pub(crate) fn hold(&mut self, hold: HeldBack, age: Age, id: u32) {
        self.ready.remove(&age);
        self.held.insert((hold, age), id);
    }

    pub(crate) fn remove(&mut self, hold: Option<HeldBack>, age: Age) {
        match hold {
            Some(hold) => self.held.remove(&(hold, age)),
            None => self.ready.remove(&age),
        };
    }

    /// Makes all receives that `hold` held back ready to be examined, and calls `each` with their
    /// ids. A receive is examined once before it is held back, so the amortised cost per look is
    /// constant.
    pub(crate) fn release(&mut self, hold: HeldBack, mut each: impl FnMut(u32)) {
        while let Some((&(_, age), &id)) = self.held.range((hold, 0)..=(hold, Age::MAX)).next() {
            self.held.remove(&(hold, age));
            self.ready.insert(age, id);
            each(id);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ready.len() + self.held.len()
    }
}
