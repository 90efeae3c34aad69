//! The errors of a job.

use crate::pmi1::Pmi1Error;
use crate::pmix::PmixError;
use crate::secret::JobSecretError;
use crate::spawn::SpawnError;

/// The most bytes that a process may contribute to one exchange.
pub const BYTES_MAX: usize = 64 << 10;

/// Errors of a [`Job`](crate::Job).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// PMI-1 failed.
    #[error(transparent)]
    Pmi1(#[from] Pmi1Error),
    /// PMIx failed.
    #[error(transparent)]
    Pmix(#[from] PmixError),
    /// A job can't be spawned.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The processes can't agree on a secret.
    #[error(transparent)]
    Secret(#[from] JobSecretError),
    /// A launcher has started this process with others, and gives them no PMI or PMIx, so each of
    /// them would be a job of its own.
    #[error(
        "{launcher} has started {size} processes without PMI or PMIx, so each would be a job of its \
         own; use {remedy}, or TAGMATCH_ALONE=1 if each is to be alone"
    )]
    NoPmi {
        /// The name of the launcher.
        launcher: &'static str,
        /// The number of processes.
        size: u32,
        /// What gives them PMI or PMIx.
        remedy: &'static str,
    },
    /// A process can join its job only once.
    #[error("this process has already joined its job")]
    JoinedBefore,
    /// The contribution to an exchange is too long.
    #[error("{length} bytes are more than a process may exchange ({BYTES_MAX})")]
    TooLong {
        /// The length in bytes.
        length: usize,
    },
    /// A process died before it contributed to the exchange.
    #[error("process {rank} of the job has died")]
    Dead {
        /// The rank of the process.
        rank: u32,
    },
    /// The contribution of a process to an exchange is missing or invalid. The process may have
    /// died.
    #[error("the data that process {rank} has exchanged {what}")]
    Garbled {
        /// The rank of the process.
        rank: u32,
        /// The problem.
        what: &'static str,
    },
}
