//! The plan of a collective operation: the messages of one member, as data.

use std::ops::Range;

use super::memory::WorkMemory;

/// How new bytes are combined with the bytes that are already in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The new bytes replace the old ones.
    Replace,
    /// The new bytes are the left operand of the operation.
    Left,
    /// The new bytes are the right operand of the operation.
    Right,
}

/// One step of a plan. All ranges of bytes are places in the plan's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlanStep {
    Send {
        to: u32,
        from: Range<usize>,
    },
    Receive {
        from: u32,
        into: Range<usize>,
        placement: Placement,
    },
    /// Copies or combines the bytes of one place into another place that does not overlap it. This
    /// happens after the messages that the round has received are in their places.
    Local {
        from: Range<usize>,
        into: Range<usize>,
        placement: Placement,
    },
    /// Ends a round: all steps before it end before any step after it begins.
    Fence,
}

/// The steps of one member in a collective operation, and the memory that they work on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<PlanStep>,
    pub(crate) memory: WorkMemory,
    /// Where this member's own bytes begin in the memory. The rest is received from other members.
    pub(crate) start: usize,
    /// The place of the result in the memory.
    pub(crate) result: Range<usize>,
    /// The result is rotated to the right by this number of bytes at the end.
    pub(crate) rotate: usize,
}

impl Plan {
    pub(crate) fn send(&mut self, to: u32, from: Range<usize>) {
        self.steps.push(PlanStep::Send { to, from });
    }

    pub(crate) fn receive(&mut self, from: u32, into: Range<usize>, placement: Placement) {
        self.steps.push(PlanStep::Receive { from, into, placement });
    }

    pub(crate) fn local(&mut self, from: Range<usize>, into: Range<usize>, placement: Placement) {
        self.steps.push(PlanStep::Local { from, into, placement });
    }

    /// A memory of `length` bytes, with this member's own bytes at [`start`](Self::start).
    pub(crate) fn spread(&self, mut own: WorkMemory, length: usize) -> WorkMemory {
        let all = own.len();
        own.resize(length);
        if self.start > 0 {
            own.copy_within(0..all, self.start);
        }
        own
    }

    /// This plan of some members, with their ranks in the whole communicator. `ranks` are in the
    /// order of the members.
    pub(crate) fn renamed(mut self, ranks: &[u32]) -> Self {
        for step in &mut self.steps {
            if let PlanStep::Send { to: rank, .. } | PlanStep::Receive { from: rank, .. } = step {
                *rank = ranks.get(*rank as usize).copied().unwrap_or(*rank);
            }
        }
        self
    }

    pub(crate) fn fence(&mut self) {
        self.steps.push(PlanStep::Fence);
    }

    /// The ranks that this member receives from, in ascending order, each once.
    pub(crate) fn partners(&self) -> Vec<u32> {
        let sender = |step: &PlanStep| match step {
            PlanStep::Receive { from, .. } => Some(*from),
            _ => None,
        };
        let mut partners: Vec<u32> = self.steps.iter().filter_map(sender).collect();
        partners.sort_unstable();
        partners.dedup();
        partners
    }
}
