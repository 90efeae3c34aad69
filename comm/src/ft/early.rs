//! Control messages about a communicator or an attempt that this process does not know yet.

use std::collections::VecDeque;

use crate::net::ProcessId;

use super::control::Control;

/// The most messages that are kept. When there are more, the oldest one is dropped.
const EARLY_MAX: usize = 4096;

#[derive(Default)]
pub(super) struct EarlyMessages(VecDeque<(ProcessId, Control)>);

impl EarlyMessages {
    pub(super) fn keep(&mut self, from: ProcessId, control: Control) {
        if self.0.len() == EARLY_MAX {
            self.0.pop_front();
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
