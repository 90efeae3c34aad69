//! Why a measurement can break.

use std::time::Duration;

use tagmatch::Failed;

/// Why a measurement can break.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("{0}")]
    Tagmatch(String),
    /// The other side's worker is down. Why, the other side may know better.
    #[error("{0}")]
    PeerDown(String),
    /// The other side has sent a message on the control channel, or is gone.
    #[error("the other side wants attention")]
    Attention,
    #[error("interrupted")]
    Interrupted,
    #[error("no progress for {} s", .0.as_secs_f64())]
    Stuck(Duration),
}

impl From<tagmatch::Error> for LinkError {
    fn from(error: tagmatch::Error) -> Self {
        match error {
            tagmatch::Error::PeerDown { .. } => Self::PeerDown(error.to_string()),
            error => Self::Tagmatch(error.to_string()),
        }
    }
}

impl From<Failed> for LinkError {
    fn from(failed: Failed) -> Self {
        failed.error.into()
    }
}
