//! A NIC whose choices are made by the caller instead of time and chance, so that a test can
//! explore every order of events.

use std::hash::{Hash, Hasher};

use crate::knob_values::Wake;
use crate::nic::Nic;
use crate::nic_step::NicStep;

impl Nic {
    /// Leaves every choice to the caller: from now on, each operation and completion waits for its
    /// [`step`](Self::step), and the knobs' delays and [`Wake`] are not used. READs, FINs and
    /// failures still follow the knobs.
    pub fn set_manual(&mut self) {
        self.is_manual = true;
        self.list.set_wake(Wake::Never);
    }

    /// The steps that are possible now, in an order that depends only on the state of the NIC. The
    /// two outcomes of a [`NicStep::Execute`] are listed only where they differ.
    pub fn steps(&self) -> Vec<NicStep> {
        let mut steps = Vec::new();
        if let Some(operation) = self.commands.front() {
            steps.push(NicStep::Execute { wakes: false });
            if operation.unexpected_count.is_some_and(|count| self.list.may_wake(count)) {
                steps.push(NicStep::Execute { wakes: true });
            }
        }
        self.queues.steps(&mut steps);
        steps
    }

    /// The number of completions that are not visible yet, and of signalled operations that are not
    /// executed yet.
    pub fn completions_pending(&self) -> usize {
        self.commands.signalled() + self.queues.completions_pending()
    }

    /// Does one of the possible [`steps`](Self::steps); `false` if it is not possible.
    pub fn step(&mut self, step: NicStep) -> bool {
        match step {
            NicStep::Execute { wakes } => {
                let Some(command) = self.commands.pop(u64::MAX) else { return false };
                self.list.set_wake(if wakes { Wake::Always } else { Wake::Never });
                self.execute(command);
                true
            }
            step => self.queues.show(step),
        }
    }

    /// Hashes everything that later [`steps`](Self::steps) and messages depend on, so that two
    /// states with the same future have the same hash. Entries are hashed as slots, and counts that
    /// only grow as differences. Faults, transfers, work and ordinary buffers are not part of the
    /// hash; the caller must keep enough ordinary buffers posted.
    pub fn hash_state(&self, state: &mut impl Hasher) {
        self.slots.hash_state(state);
        self.commands.hash_state(state, self.list.counted());
        self.list.hash_state(state);
        self.queues.hash_state(state, self.commands.freed());
        let counted = self.list.counted();
        (counted.wrapping_sub(self.polled_count), counted.wrapping_sub(self.posted_count))
            .hash(state);
    }
}
