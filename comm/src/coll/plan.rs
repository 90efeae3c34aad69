//! What one member does in a collective operation, as data.

use std::ops::Range;

/// How bytes are combined with those that are already in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// They replace them.
    Replace,
    /// They are the left operand of the operation.
    Left,
    /// They are the right operand of the operation.
    Right,
}

/// One thing to do. All places are in the plan's memory.
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
    /// Copies or combines bytes of one place into another one that doesn't overlap it, once what the round received
    /// is in its place.
    Local {
        from: Range<usize>,
        into: Range<usize>,
        placement: Placement,
    },
    /// Ends a round: all steps before it end before any step after it begins.
    Fence,
}

/// What one member does in a collective operation, and on which bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<PlanStep>,
    pub(crate) memory: Vec<u8>,
    /// Where this member's own bytes begin in the memory. The rest comes from other members.
    pub(crate) start: usize,
    /// The place of the result.
    pub(crate) result: Range<usize>,
    /// By how many bytes the result is rotated to the right at the end.
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
    pub(crate) fn spread(&self, mut own: Vec<u8>, length: usize) -> Vec<u8> {
        let all = own.len();
        own.resize(length, 0);
        if self.start > 0 {
            own.copy_within(0..all, self.start);
        }
        own
    }

    pub(crate) fn fence(&mut self) {
        self.steps.push(PlanStep::Fence);
    }

    /// The ranks that it receives from, each once.
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
