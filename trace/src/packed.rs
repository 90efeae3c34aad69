//! A trace as matching lists take it, and what its operations come to.

use tagmatch_soft::{Pattern, Tag, TagLayout};

use crate::format::{self, Id, TraceOp};
use crate::reader::Trace;

/// An operation whose tag or pattern is packed as [`TagLayout::MPI`] has it.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the fields are those of TraceOp")]
pub enum PackedOp {
    /// [`TraceOp::Msg`]
    Msg { id: Id, tag: Tag },
    /// [`TraceOp::Recv`]
    Recv { id: Id, pattern: Pattern },
    /// [`TraceOp::Cancel`]
    Cancel { recv: Id },
    /// [`TraceOp::Probe`]
    Probe { pattern: Pattern },
    /// [`TraceOp::Mprobe`]
    Mprobe { id: Id, pattern: Pattern },
    /// [`TraceOp::Mrecv`]
    Mrecv { mprobe: Id, len: u64 },
    /// [`TraceOp::Mcancel`]
    Mcancel { mprobe: Id },
}

/// A trace that is ready to run.
#[derive(Clone, Debug)]
pub struct PackedTrace {
    /// The operations, in order.
    pub ops: Vec<PackedOp>,
    /// Lengths in bytes of messages and of receives' buffers, by [`Id`].
    pub lens: Vec<u64>,
}

impl PackedTrace {
    /// Packs the tags of a trace.
    #[must_use]
    pub fn new(trace: &Trace) -> Self {
        let mut lens = vec![0; trace.names.len()];
        let ops = trace.ops.iter().map(|op| match *op {
            TraceOp::Msg { id, envelope, len } => {
                lens[id.index()] = len;
                PackedOp::Msg { id, tag: pack(envelope) }
            }
            TraceOp::Recv { id, pattern, len } => {
                lens[id.index()] = len;
                PackedOp::Recv { id, pattern: pack_pattern(pattern) }
            }
            TraceOp::Cancel { recv } => PackedOp::Cancel { recv },
            TraceOp::Probe { pattern } => PackedOp::Probe { pattern: pack_pattern(pattern) },
            TraceOp::Mprobe { id, pattern } => {
                PackedOp::Mprobe { id, pattern: pack_pattern(pattern) }
            }
            TraceOp::Mrecv { mprobe, len } => PackedOp::Mrecv { mprobe, len },
            TraceOp::Mcancel { mprobe } => PackedOp::Mcancel { mprobe },
        });
        Self { ops: ops.collect(), lens }
    }
}

fn pack(envelope: format::Envelope) -> Tag {
    let format::Envelope { ctx, src, tag } = envelope;
    TagLayout::MPI
        .pack(ctx.into(), src.into(), tag.into())
        .expect("a trace's fields are as wide as those of TagLayout::MPI")
}

fn pack_pattern(pattern: format::Pattern) -> Pattern {
    let format::Pattern { ctx, src, tag } = pattern;
    TagLayout::MPI
        .pattern(ctx.into(), src.map(u64::from), tag.map(u64::from))
        .expect("a trace's fields are as wide as those of TagLayout::MPI")
}

/// What an operation came to. A message that becomes unexpected and a receive that stays posted
/// come to nothing yet: the operation that meets them has the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpResult {
    /// A message met a posted receive, or a receive met an unexpected message.
    Match {
        /// The receive.
        recv: Id,
        /// The message.
        msg: Id,
        /// Whether the message is longer than the receive's buffer.
        truncated: bool,
        /// Whether the message was there before the receive.
        unexpected: bool,
    },
    /// A cancel found its receive posted.
    Cancelled {
        /// The receive.
        recv: Id,
    },
    /// A cancel found its receive matched or cancelled before.
    Late {
        /// The receive.
        recv: Id,
    },
    /// What a probe found.
    Probe {
        /// The message, if there is one.
        msg: Option<Id>,
    },
    /// What a matched probe found.
    Mprobe {
        /// The matched probe.
        id: Id,
        /// The message, if there is one.
        msg: Option<Id>,
    },
    /// The message of a matched probe was received.
    Mrecv {
        /// The matched probe.
        id: Id,
        /// The message, if the probe had found one.
        msg: Option<Id>,
        /// Whether the message is longer than the buffer.
        truncated: bool,
    },
    /// The message of a matched probe was dropped.
    Mcancelled {
        /// The matched probe.
        id: Id,
        /// The message, if the probe had found one.
        msg: Option<Id>,
    },
}
