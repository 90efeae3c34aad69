//! The processes of a job that one machine starts.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use tagmatch_secret::{SECRET, SECRET_FILE, Secret};

use super::failure::Member;
use super::launch::LaunchError;

/// The variable that has the number of a descriptor in a launcher's guardian. It is not passed on.
pub(super) const GUARD: &str = "TAGMATCH_LAUNCH_GUARD";
/// Prefixes of the variables by which another launcher may have started this process. They are not
/// passed on.
const FOREIGN_VARIABLES: [&str; 2] = ["PMI_", "PMIX_"];

/// Names and values of environment variables. The job's secret is among them, so nothing prints it.
pub(super) type Environment = Vec<(OsString, OsString)>;

/// The processes of a job that one machine starts: consecutive ranks. Nothing prints it.
#[derive(Clone)]
pub(super) struct MachinePart {
    pub(super) job: u32,
    /// The number of processes in the job.
    pub(super) size: u32,
    /// The lowest rank of this part.
    pub(super) first: u32,
    /// The number of processes in this part.
    pub(super) count: u32,
    pub(super) command: Vec<OsString>,
    pub(super) environment: Environment,
    /// The directory that the processes start in. If it is empty, they start in this process's.
    pub(super) directory: PathBuf,
    /// Whether each line of output begins with the rank.
    pub(super) label: bool,
    /// Whether the launcher is on another machine: then input is empty, and output is piped.
    pub(super) is_remote: bool,
}

impl MachinePart {
    pub(super) fn members(&self) -> impl Iterator<Item = Member> {
        let job = self.job;
        (self.first..self.first.saturating_add(self.count)).map(move |rank| Member { job, rank })
    }
}

/// The environment of all processes of a run: that of this process, and the run's secret. That is
/// the secret of this process's environment; or a new one, if the run has several machines. On one
/// machine, workers that found a secret would listen for other machines in vain.
pub(super) fn environment(has_several_machines: bool) -> Result<Environment, LaunchError> {
    let secret = match Secret::from_environment()? {
        None if has_several_machines => Some(Secret::random()?),
        given => given,
    };
    let is_passed = |name: &OsString| {
        let is_foreign =
            FOREIGN_VARIABLES.iter().any(|start| name.to_string_lossy().starts_with(start));
        !is_foreign && name != SECRET && name != SECRET_FILE && name != GUARD
    };
    let mut all: Environment = env::vars_os().filter(|(name, _)| is_passed(name)).collect();
    if let Some(secret) = secret {
        // A file with the secret may have bytes that no variable can have.
        if secret.expose().contains(&0) {
            return Err(LaunchError::SecretWithZero);
        }
        all.push((SECRET.into(), OsString::from_vec(secret.expose().to_vec())));
    }
    Ok(all)
}
