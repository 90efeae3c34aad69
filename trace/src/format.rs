//! The operations of a trace.

use tagmatch_soft::{Pattern, SourceId, Tag};

/// The header of the text format, which is all of line 1.
pub const HEADER: &str = "tagtrace 1";

/// The source of messages that a process sends to itself, in `tagtrace 2`.
pub const ONESELF: SourceId = SourceId(0);

/// A message, a receive or a matched probe of a trace: ids of the file in order of definition,
/// from 0 on without gaps. [`Trace::names`](crate::Trace::names) has the file's own ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Id(pub u32);

impl Id {
    /// The place in a table that is as long as [`Trace::names`](crate::Trace::names).
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One operation. Each id that it refers to is defined by an earlier operation of the right kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceOp {
    /// A message arrives.
    Msg {
        /// The message.
        id: Id,
        /// Its tag. In `tagtrace 1`: context id, source and tag, packed as `TagLayout::MPI` has
        /// them.
        tag: Tag,
        /// Its source beside the tag. In `tagtrace 1` all messages have the same one.
        source: SourceId,
    },
    /// A receive is posted.
    Recv {
        /// The receive.
        id: Id,
        /// The messages that it accepts.
        pattern: Pattern,
        /// Only the source that the pattern names sends messages that the rest of it matches.
        is_sole: bool,
    },
    /// A receive is cancelled, if it is still posted.
    Cancel {
        /// The receive.
        recv: Id,
    },
    /// A probe of the unexpected messages.
    Probe {
        /// The messages that it asks for.
        pattern: Pattern,
    },
    /// A matched probe, which removes the message that it finds from the unexpected messages and
    /// holds it.
    Mprobe {
        /// The matched probe.
        id: Id,
        /// The messages that it asks for.
        pattern: Pattern,
    },
    /// The message that a matched probe holds is received.
    Mrecv {
        /// The matched probe.
        mprobe: Id,
        /// The length of the buffer in bytes.
        len: u64,
    },
    /// The message that a matched probe holds is dropped.
    Mcancel {
        /// The matched probe.
        mprobe: Id,
    },
    /// An unexpected message leaves the list without a receive, as its sender has died.
    Lost {
        /// The message.
        msg: Id,
    },
}
