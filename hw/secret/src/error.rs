//! The errors of secrets.

use std::io;
use std::path::PathBuf;

/// The fewest and the most bytes of a secret.
pub(crate) const BYTES_MIN: usize = 16;
pub(crate) const BYTES_MAX: usize = 1024;

/// Why there is no usable secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// A secret has too few bytes, or too many.
    #[error("a secret has {min} to {max} bytes, not {length}", min = BYTES_MIN, max = BYTES_MAX)]
    Length {
        /// The number of bytes that were given.
        length: usize,
    },
    /// The file can't be read.
    #[error("the file {path:?} with the secret can't be read: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// Other users can read or change the file, or it belongs to another user.
    #[error("the file {path:?} with the secret {what}")]
    Exposed {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do about it.
        what: &'static str,
    },
}
