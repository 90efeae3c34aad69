//! The secret that the processes of a job share, where their environment has none: process 0 makes
//! it, and the others get it through the launcher's key-value store.
//!
//! Whoever can read that store can read the secret: the launcher, and every process that the
//! launcher takes for one of the job. Between the machines of a job, MPICH's mpiexec, Slurm and
//! Open MPI send the store's values unencrypted.

use std::io;

pub(crate) use tagmatch_secret::Secret;
use tagmatch_secret::SecretError;

/// The key of the secret, which process 0 puts.
pub(crate) const KEY: &str = "tagmatch-secret";
/// Put instead of a secret: process 0 has a secret of its environment, which the store never gets.
const IN_ENVIRONMENT: &str = "in-environment";

/// Why the processes of a job have no secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobSecretError {
    /// The environment gives a secret that can't be used.
    #[error(transparent)]
    Environment(#[from] SecretError),
    /// No random bytes can be got.
    #[error("cannot make a secret: {0}")]
    Random(#[source] io::Error),
    /// Process 0 has a secret in its environment, and this process has none.
    #[error(
        "the environment of process 0 has a secret, and that of process {rank} has none; \
         pass TAGMATCH_SECRET to all processes (`mpirun -x TAGMATCH_SECRET`), or to none"
    )]
    Missing {
        /// The rank of this process.
        rank: u32,
    },
    /// This process has a secret in its environment, and process 0 has none.
    #[error(
        "the environment of process {rank} has a secret, and that of process 0 has none; \
         pass TAGMATCH_SECRET to all processes (`mpirun -x TAGMATCH_SECRET`), or to none"
    )]
    Surplus {
        /// The rank of this process.
        rank: u32,
    },
}

/// Process 0's secret, and the value that it puts: `own` is the secret of its environment.
pub(crate) fn offer(own: Option<Secret>) -> Result<(Secret, String), JobSecretError> {
    if let Some(own) = own {
        return Ok((own, IN_ENVIRONMENT.to_owned()));
    }
    let secret = Secret::random().map_err(JobSecretError::Random)?;
    let value = String::from_utf8_lossy(secret.expose()).into_owned();
    Ok((secret, value))
}

/// The secret of another process than 0: `own` is the secret of its environment, `value` is what
/// process 0 has put.
pub(crate) fn accept(
    rank: u32,
    own: Option<Secret>,
    value: &str,
) -> Result<Secret, JobSecretError> {
    match (own, value) {
        (Some(own), IN_ENVIRONMENT) => Ok(own),
        (None, IN_ENVIRONMENT) => Err(JobSecretError::Missing { rank }),
        (Some(_), _) => Err(JobSecretError::Surplus { rank }),
        (None, value) => Ok(Secret::from_bytes(value.as_bytes())?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Secret {
        Secret::from_bytes(b"0123456789abcdef").unwrap()
    }

    #[test]
    fn a_secret_of_the_environment_is_not_put() {
        let (own, value) = offer(Some(secret())).unwrap();
        assert_eq!((own.expose(), &*value), (secret().expose(), IN_ENVIRONMENT));
        let other = Secret::from_bytes(b"another one of their own").unwrap();
        assert_eq!(accept(1, Some(other.clone()), &value).unwrap().expose(), other.expose());
    }

    #[test]
    fn a_new_secret_is_put_and_got() {
        let (own, value) = offer(None).unwrap();
        assert_eq!(accept(1, None, &value).unwrap().expose(), own.expose());
    }

    #[test]
    fn processes_that_disagree_about_the_environment_are_told() {
        let missing = accept(3, None, IN_ENVIRONMENT).unwrap_err();
        assert!(matches!(missing, JobSecretError::Missing { rank: 3 }));
        let (_, value) = offer(None).unwrap();
        let surplus = accept(3, Some(secret()), &value).unwrap_err();
        assert!(matches!(surplus, JobSecretError::Surplus { rank: 3 }));
        for error in [missing, surplus] {
            assert!(!error.to_string().contains(&value), "{error}");
        }
        assert!(matches!(accept(3, None, "short"), Err(JobSecretError::Environment(_))));
    }
}
