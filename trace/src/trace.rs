//! A trace that was read, whatever its format.

use tagmatch_soft::TagLayout;

use crate::format::{Id, TraceOp};

/// A whole trace without mistakes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    /// The operations, in order.
    pub ops: Vec<TraceOp>,
    /// The file's own id, by [`Id`].
    pub names: Vec<u64>,
    /// Lengths in bytes of messages and of receives' buffers, by [`Id`]; 0 for matched probes.
    pub lens: Vec<u64>,
    /// What the program's own worker matched, by operation, if the trace tells: a message's
    /// receive, a receive's or a probe's message. `None` for an operation that met nothing.
    pub recorded: Option<Vec<Option<Id>>>,
    /// What the recorder says of the process; empty if nothing.
    pub about: String,
    /// Probes that repeated one that had found nothing, with nothing in between. They are not among
    /// the operations: a program that polls has millions of them.
    pub repeated_probes: u64,
    /// Where tags name their sender. A NIC that matches may be given a receive only if no message
    /// that passes it by can match, and tags tell that as far as they name their sender. So a
    /// replay with a NIC needs what the program's worker had as `Config::layout`. In `tagtrace 1`
    /// it is [`TagLayout::MPI`].
    pub layout: TagLayout,
    /// Why the recorder stopped before the program did, if it did.
    pub stop: Option<Stop>,
}

/// Why a trace ends before its program did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The file had the greatest length that it was to have.
    Full,
    /// There was no space for the file.
    NoSpace,
}

impl Trace {
    /// The file's own id of a message, receive or matched probe.
    #[must_use]
    pub fn name(&self, id: Id) -> u64 {
        self.names[id.index()]
    }
}
