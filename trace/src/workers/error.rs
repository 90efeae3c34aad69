//! How a replay through workers can fail: the trace has too many sources or lost messages that are
//! like others, the system refuses what a worker needs, or tagmatch has a defect.

use std::fmt::Display;

/// Why a replay through workers failed. Ids are those of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkersError {
    /// A worker could not be made or connected, which the system may refuse.
    #[error("the workers of the replay: {0}")]
    Setup(String),
    /// A send or a receive failed.
    #[error("{what} {id} failed: {error}")]
    Request {
        /// `message` or `receive`.
        what: &'static str,
        /// The message or the receive.
        id: u64,
        /// The worker's error.
        error: tagmatch::Error,
    },
    /// A probe failed.
    #[error("a probe failed: {0}")]
    Probe(tagmatch::Error),
    /// A message or a receive was not treated as the rules have it.
    #[error("{id} {what}")]
    Wrong {
        /// The message or the receive.
        id: u64,
        /// What happened to it.
        what: &'static str,
    },
    /// The trace has more sources than a replay has workers.
    #[error("the trace has messages of more than {0} sources, which are too many for workers")]
    TooManySources(usize),
    /// A message of a dead peer can't be told from another one.
    #[error("{0} was lost as its sender died, which workers can't repeat here")]
    LostAmongEquals(u64),
    /// A message came that was not sent.
    #[error("a message came that was not sent")]
    Unknown,
    /// A message came when everything had ended.
    #[error("a message came after the end of the trace")]
    AfterEnd,
    /// Progress of the workers does not end.
    #[error("the replay does not come to rest")]
    Restless,
    /// The NIC broke the rules of its list.
    #[error("{0} events of the NIC's list that its rules don't allow")]
    ListFaults(u64),
    /// The results differ from those of the lists.
    #[error("with the NIC {0}: this is a defect of tagmatch")]
    Differs(String),
}

impl WorkersError {
    pub(super) fn setup(error: impl Display) -> Self {
        Self::Setup(error.to_string())
    }
}
