//! What the operations of a trace come to.

use crate::format::Id;

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
    /// A message left the unexpected list without a receive.
    Lost {
        /// The message, if it was there.
        msg: Option<Id>,
    },
}
