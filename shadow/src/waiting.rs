//! Candidates that wait: those to be looked at, in the order in which they were posted, and those that
//! need not be until something has happened.

use std::collections::BTreeMap;

use crate::order::Age;

/// What must happen before another look is worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Hold {
    /// This receive leaves, or stops being in the way.
    Receive(u32),
    /// The list carries a message of this source.
    Source(u64),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    ready: BTreeMap<Age, u32>,
    held: BTreeMap<(Hold, Age), u32>,
}

impl Waiting {
    pub(crate) fn ready(&mut self, age: Age, id: u32) {
        self.ready.insert(age, id);
    }

    /// The oldest to be looked at.
    pub(crate) fn first(&self) -> Option<u32> {
        self.ready.first_key_value().map(|(_, id)| *id)
    }

    pub(crate) fn hold(&mut self, hold: Hold, age: Age, id: u32) {
        self.ready.remove(&age);
        self.held.insert((hold, age), id);
    }

    pub(crate) fn remove(&mut self, hold: Option<Hold>, age: Age) {
        match hold {
            Some(hold) => self.held.remove(&(hold, age)),
            None => self.ready.remove(&age),
        };
    }

    /// All that `hold` held are to be looked at; calls `each` with their ids. Each was looked at once to
    /// get here, which pays for this.
    pub(crate) fn release(&mut self, hold: Hold, mut each: impl FnMut(u32)) {
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
