//! Receives of untagged messages that the worker doesn't have, or not as a whole.

use tagmatch::{Buffer, Match, Peer};
use tagmatch_ofi_provider::Memory;

use super::operation::Receive;

/// A receive of untagged messages that waits for its turn, or a multi-receive buffer.
pub(crate) enum Pending {
    /// A receive that waits until the multi-receive buffers before it are used up.
    Plain {
        /// What it takes.
        which: Match,
        /// The only peer whose messages it takes, if it names one.
        source: Option<Peer>,
        /// Its buffer.
        buffer: Buffer,
        /// Its entry.
        receive: Receive,
    },
    /// A multi-receive buffer.
    Multi {
        /// What remains of the buffer.
        rest: Memory,
        /// The only peer whose messages it takes, if it names one.
        source: Option<Peer>,
        /// The entries of its messages. `multi` is the buffer's number on this endpoint.
        receive: Receive,
        /// The worker has a part of it: a message may be on its way into the buffer.
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

    /// The only peer whose messages it takes, if it names one.
    pub(crate) fn source(&self) -> Option<Peer> {
        match self {
            Pending::Plain { source, .. } | Pending::Multi { source, .. } => *source,
        }
    }

    /// Whether the worker has a part of it.
    pub(crate) fn is_posted(&self) -> bool {
        matches!(self, Pending::Multi { is_posted: true, .. })
    }
}
