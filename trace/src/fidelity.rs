//! Compares a run of a recorded trace with what the program's own worker did.

use serde::Serialize;

use crate::format::{Id, TraceOp};
use crate::result::OpResult;
use crate::trace::Trace;

/// How much of what was recorded a run repeats. All of it, unless the worker had a defect, or its
/// NIC was given messages that broke a promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Fidelity {
    /// Messages, receives and probes whose outcome was recorded.
    pub compared: u64,
    /// How many of them have another outcome in the run.
    pub differing: u64,
    /// The first of these operations, from 1 on; 0 if there is none.
    pub first: u64,
}

/// Follows a run and compares.
#[derive(Debug)]
pub struct FidelityCounter<'a> {
    recorded: Option<&'a [Option<Id>]>,
    position: usize,
    fidelity: Fidelity,
}

impl<'a> FidelityCounter<'a> {
    /// For a run of `trace`.
    #[must_use]
    pub fn new(trace: &'a Trace) -> Self {
        Self { recorded: trace.recorded.as_deref(), position: 0, fidelity: Fidelity::default() }
    }

    /// Takes in the next operation and its result.
    pub fn see(&mut self, op: &TraceOp, result: Option<OpResult>) {
        let at = self.position;
        self.position += 1;
        let Some(recorded) = self.recorded.and_then(|recorded| recorded.get(at)) else { return };
        let found = match (op, result) {
            (TraceOp::Msg { .. }, Some(OpResult::Match { recv, .. })) => Some(recv),
            (TraceOp::Recv { .. }, Some(OpResult::Match { msg, .. })) => Some(msg),
            (TraceOp::Msg { .. } | TraceOp::Recv { .. }, _) => None,
            (_, Some(OpResult::Probe { msg } | OpResult::Mprobe { msg, .. })) => msg,
            (_, Some(OpResult::Cancelled { recv })) => Some(recv),
            (_, Some(OpResult::Lost { msg })) => msg,
            (TraceOp::Cancel { .. }, _) => None,
            _ => return,
        };
        self.fidelity.compared += 1;
        if found != *recorded {
            self.fidelity.differing += 1;
            if self.fidelity.first == 0 {
                self.fidelity.first = at as u64 + 1;
            }
        }
    }

    /// What was counted. `None`: the trace doesn't tell what the program did.
    #[must_use]
    pub fn fidelity(&self) -> Option<Fidelity> {
        self.recorded.map(|_| self.fidelity)
    }
}
