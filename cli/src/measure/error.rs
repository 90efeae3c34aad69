//! Why a measurement failed.

use crate::link::LinkError;
use crate::payload::Corrupt;

/// Why a measurement came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MeasureError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("verification failed: {0}")]
    Corrupt(#[from] Corrupt),
    #[error("verification failed: a message of {found} bytes arrived, expected {wanted}")]
    Length { found: u64, wanted: u64 },
    #[error("verification failed: an addition found {found}, expected {wanted}")]
    Old { found: u64, wanted: u64 },
    #[error(
        "{when}: {} posted receives and {} unexpected messages, expected {} and {}",
        .found.0, .found.1, .wanted.0, .wanted.1
    )]
    Fillers { when: &'static str, found: (u64, u64), wanted: (u64, u64) },
    #[error("the other side sent an invalid token")]
    Token,
    #[error("the other side sent invalid samples")]
    Samples,
    #[error("cannot start a thread: {0}")]
    Thread(String),
}
