//! Receives of untagged messages that the worker doesn't have, or not as a whole.

use tagmatch::{Buffer, Match};

use super::operation::Receive;
use crate::memory::Memory;

/// A receive of untagged messages that waits for its turn, or a multi-receive buffer.
pub(crate) enum Pending {
    /// A receive that waits until the multi-receive buffers before it are used up.
    Plain {
        /// What it takes.
        which: Match,
        /// Its buffer.
        buffer: Buffer,
        /// Its entry.
        receive: Receive,
    },
    /// A multi-receive buffer.
    Multi {
        /// What remains of the buffer.
        rest: Memory,
        /// The entries of its messages.
        receive: Receive,
        /// Its number on this endpoint.
        number: u64,
        /// The worker has a part of it.
        is_posted: bool,
        /// It was cancelled: it ends with its part.
        is_cancelled: bool,
    },
}

impl Pending {
    /// What its entries will have.
    pub(crate) fn receive(&self) -> &Receive {
        match self {
            Pending::Plain { receive, .. } | Pending::Multi { receive, .. } => receive,
        }
    }
}
