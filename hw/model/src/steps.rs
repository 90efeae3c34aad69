//! A NIC that is driven by hand: the caller makes the choices that are otherwise left to time and chance, so that a
//! test can explore all of them.

use std::hash::{Hash, Hasher};

use super::knobs::Wake;
use super::nic::Nic;
use super::step::NicStep;

impl Nic {
    /// From now on, ticks do nothing for operations and completions: each waits for its
    /// [`step`](Self::step), however long that takes, and the knobs' delays and [`Wake`] are not used.
    /// READs, FINs and failures are as before.
    pub fn by_hand(&mut self) {
        self.is_by_hand = true;
        self.list.set_wake(Wake::Never);
    }

    /// All that can be done now, in an order that depends on the NIC's state alone. The two outcomes of a
    /// [`NicStep::TakeUp`] are named only where they differ.
    pub fn steps(&self) -> Vec<NicStep> {
        let mut steps = Vec::new();
        if let Some(operation) = self.commands.front() {
            steps.push(NicStep::TakeUp { wakes: false });
            if operation.unexpected_count.is_some_and(|count| self.list.may_wake(count)) {
                steps.push(NicStep::TakeUp { wakes: true });
            }
        }
        self.queues.steps(&mut steps);
        steps
    }

    /// Completions that are held back, and operations that have one and are not taken up.
    pub fn held_back(&self) -> usize {
        self.commands.signalled() + self.queues.held_back()
    }

    /// Does one of the [`steps`](Self::steps); `false` if it isn't among them.
    pub fn step(&mut self, step: NicStep) -> bool {
        match step {
            NicStep::TakeUp { wakes } => {
                let Some(command) = self.commands.pop(u64::MAX) else { return false };
                self.list.set_wake(if wakes { Wake::Always } else { Wake::Never });
                self.take_up(command);
                true
            }
            step => self.queues.show(step),
        }
    }

    /// Feeds all that later [`steps`](Self::steps) and messages depend on to a hasher, so that states which
    /// differ in nothing else are the same. Entries go in as slots, counts that only grow as
    /// differences. Not in it: faults, ordinary buffers (of which enough are assumed), transfers, work.
    pub fn hash_state(&self, state: &mut impl Hasher) {
        self.slots.hash_state(state);
        self.commands.hash_state(state, self.list.counted());
        self.list.hash_state(state);
        self.queues.hash_state(state, self.commands.freed());
        let counted = self.list.counted();
        (counted.wrapping_sub(self.taken), counted.wrapping_sub(self.given)).hash(state);
    }
}
