//! A hash of the shadow's state, with which a search through all states finds states that it has
//! seen.

use std::hash::{Hash, Hasher};

use crate::entry::Receive;
use crate::order::PostedPattern;
use crate::shadow::Shadow;
use crate::table::State;

impl Shadow {
    /// Feeds everything that later behaviour depends on to a hasher. Two states that behave alike
    /// get the same hash: growing counts are hashed as differences, ages as an order, and counters
    /// not at all. `name` maps a handle of the device to a number that doesn't depend on how often
    /// the handle was reused.
    pub fn hash_state(&self, state: &mut impl Hasher, name: impl Fn(u32) -> usize) {
        let mut receives: Vec<&Receive> = self.receives.iter().flatten().collect();
        receives.sort_unstable_by_key(|receive| receive.posted.age);
        for Receive { posted: PostedPattern { id, pattern, .. }, place, blocks } in receives {
            (id, pattern.tag(), pattern.mask(), pattern.source(), place, blocks).hash(state);
        }
        for entry in &self.entries {
            entry.state.hash(state);
            if entry.state != State::Free {
                let age = self.arrived - entry.count;
                (entry.id, name(entry.handle), age, entry.removal).hash(state);
            }
        }
        let adding = |slot: &u32| self.entries[*slot as usize].state == State::Adding;
        let mut recent: Vec<u32> = self.recent.iter().copied().filter(adding).collect();
        recent.sort_unstable();
        recent.dedup();
        (recent, &self.free, &self.removals, self.full, self.counters.broken).hash(state);
        let unfrozen = self.frozen.map(|count| self.searched - count);
        (self.arrived - self.searched, self.searched - self.sent_count, unfrozen).hash(state);
        self.policy.hash_state(state);
        self.queue.hash_state(state);
    }
}
