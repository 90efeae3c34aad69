//! Control messages that this process can't use yet.

use std::collections::{BTreeMap, VecDeque};

use super::control::Control;
use crate::net::ProcessId;

/// The most messages that are kept. When there are more, the oldest one is dropped of the process
/// that has sent most of them: so no process can push out the messages of the others.
const EARLY_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct EarlyMessages(VecDeque<(ProcessId, Control)>);

impl EarlyMessages {
    pub(super) fn keep(&mut self, from: ProcessId, control: Control) {
        if self.0.len() == EARLY_MAX {
            let mut counts = BTreeMap::<ProcessId, usize>::new();
            self.0.iter().for_each(|(of, _)| *counts.entry(*of).or_default() += 1);
            let busiest = counts.into_iter().max_by_key(|(_, count)| *count).map(|(of, _)| of);
            let oldest = self.0.iter().position(|(of, _)| Some(*of) == busiest);
            oldest.and_then(|at| self.0.remove(at));
        }
        self.0.push_back((from, control));
    }

    /// Takes out the messages that can be delivered now.
    pub(super) fn take(
        &mut self,
        is_known: impl Fn(&Control) -> bool,
    ) -> VecDeque<(ProcessId, Control)> {
        let early = std::mem::take(&mut self.0);
        let (known, others) = early.into_iter().partition(|(_, control)| is_known(control));
        self.0 = others;
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::Key;

    #[test]
    fn a_process_that_sends_many_pushes_out_its_own_messages() {
        let mut early = EarlyMessages::default();
        let message = |rounds| Control::Left { key: Key { context: 0, epoch: 0 }, rounds };
        early.keep(ProcessId(1), message(0));
        (0..5000).for_each(|rounds| early.keep(ProcessId(2), message(rounds)));
        early.keep(ProcessId(3), message(0));
        let kept = early.take(|_| true);
        assert_eq!(kept.len(), EARLY_MAX);
        assert_eq!(kept.front(), Some(&(ProcessId(1), message(0))));
        assert_eq!(kept[EARLY_MAX - 2], (ProcessId(2), message(4999)));
        assert_eq!(kept.back(), Some(&(ProcessId(3), message(0))));
    }
}
