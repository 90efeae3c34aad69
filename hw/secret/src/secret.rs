//! The secret, whose bytes are never printed.

use std::fmt;
use std::sync::Arc;

use super::error::{self, SecretError};

/// The secret of a job: at least [`Secret::BYTES_MIN`] bytes. Its bytes are never printed.
///
/// ```
/// # mod tagmatch { pub use tagmatch_secret::Secret; }
/// use tagmatch::Secret;
/// let secret = Secret::from_bytes(b"at least sixteen bytes")?;
/// assert_eq!(format!("{secret:?}"), "Secret(..)");
/// # Ok::<(), tagmatch_secret::SecretError>(())
/// ```
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// The fewest bytes of a secret.
    pub const BYTES_MIN: usize = error::BYTES_MIN;
    /// The most bytes of a secret.
    pub const BYTES_MAX: usize = error::BYTES_MAX;

    /// A secret of these bytes. They should come from a random number generator: an attacker that
    /// has seen a proof can try out secrets.
    ///
    /// # Errors
    /// [`SecretError::Length`]: there are fewer than [`Secret::BYTES_MIN`] bytes, or more than
    /// [`Secret::BYTES_MAX`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SecretError> {
        if (Self::BYTES_MIN..=Self::BYTES_MAX).contains(&bytes.len()) {
            Ok(Secret(bytes.into()))
        } else {
            Err(SecretError::Length { length: bytes.len() })
        }
    }

    /// A new secret: 32 random bytes of the operating system, as 64 hexadecimal digits. The digits
    /// can be handed to other processes in `TAGMATCH_SECRET` or in a file.
    ///
    /// # Errors
    /// getrandom(2) fails.
    pub fn random() -> std::io::Result<Self> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let bytes: [u8; 32] = tagmatch_os::random()?;
        let digit = |value: u8| DIGITS[usize::from(value)];
        Ok(Secret(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()))
    }

    /// The bytes of the secret, for handing it to another process of the job.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_at_least_sixteen_bytes() {
        for (length, is_good) in [(0, false), (15, false), (16, true), (1024, true), (1025, false)]
        {
            assert_eq!(Secret::from_bytes(&vec![1; length]).is_ok(), is_good, "{length}");
        }
    }

    #[test]
    fn no_byte_of_a_secret_is_printed() {
        let secret = Secret::from_bytes(b"visible to nobody").unwrap();
        assert_eq!(
            format!("{secret:?} {:#?}", Some(&secret)),
            "Secret(..) Some(\n    Secret(..),\n)"
        );
    }

    #[test]
    fn random_secrets_differ_and_are_text() {
        let one = Secret::random().unwrap();
        let other = Secret::random().unwrap();
        assert_ne!(one.expose(), other.expose());
        assert!(one.expose().len() == 64 && one.expose().iter().all(u8::is_ascii_hexdigit));
    }
}
