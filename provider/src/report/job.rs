//! The job of this process, as its launcher tells it in the environment.

use std::env;
use std::ffi::CStr;

use super::table::Process;

/// The job of this process.
pub(crate) struct Job {
    /// What the report is of, as its title says: the same text in all processes of the job.
    pub(crate) name: String,
    /// A name that the job's processes on this machine have, and no other job of this user.
    pub(crate) local_name: String,
    /// How many processes it has.
    pub(crate) size: Option<u64>,
    /// How many of them this machine has.
    pub(crate) local_size: Option<u64>,
    rank: Option<u64>,
}

/// Open MPI, MPICH and Slurm, by the names of their variables.
const RANKS: [&str; 4] = ["PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"];
/// MPICH's launcher alone sets the second one.
const LOCAL_SIZES: [&str; 2] = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"];
/// The names of jobs that Open MPI and PMIx give, each step its own.
const NAMES: [&str; 2] = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"];
const SLURM_JOB: &str = "SLURM_JOB_ID";
const SLURM_STEP: &str = "SLURM_STEP_ID";

impl Job {
    /// The job that the environment tells of. Processes without a launcher that is known write one
    /// report: whether they belong together is not known. On standard error each prints its own.
    pub(crate) fn of_environment() -> Self {
        Job::read(|name| env::var(name).ok())
    }

    pub(super) fn read(get: impl Fn(&str) -> Option<String>) -> Self {
        let number = |names: &[&str]| names.iter().find_map(|name| get(name)?.parse::<u64>().ok());
        let rank = number(&RANKS);
        let size = number(&SIZES);
        // Within an allocation of Slurm, MPICH's launcher starts jobs that are no steps.
        let is_step = get(LOCAL_SIZES[1]).is_none();
        let step = || {
            let job = get(SLURM_JOB).filter(|_| is_step)?;
            Some(get(SLURM_STEP).map_or(job.clone(), |step| format!("{job}.{step}")))
        };
        let name = NAMES.iter().find_map(|name| get(name)).or_else(step);
        let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '.' };
        let name: Option<String> = name.map(|name| name.chars().take(64).map(safe).collect());
        let local_size = number(&LOCAL_SIZES).or(size);
        match (rank, name) {
            (_, Some(local_name)) => {
                Job { name: format!("job {local_name}"), local_name, size, local_size, rank }
            }
            (Some(_), None) => {
                // MPICH's launcher gives jobs no name.
                let name = size.map_or("a job".to_owned(), |size| format!("a job of {size} ranks"));
                Job { name, local_name: parent(), size, local_size, rank }
            }
            (None, None) => {
                let name = "processes that no known launcher has started".to_owned();
                let local_name = format!("process.{}", std::process::id());
                Job { name, local_name, size: None, local_size: Some(1), rank }
            }
        }
    }

    /// Whether a launcher has told ranks.
    pub(crate) fn has_ranks(&self) -> bool {
        self.rank.is_some()
    }

    /// This process.
    pub(crate) fn process(&self) -> Process {
        Process { rank: self.rank, host: host(), pid: std::process::id() }
    }
}

/// A name for the parent of this process: the processes of a job on one machine have one parent.
/// Its number may be that of an earlier process, so the time at which it was started is in the
/// name.
fn parent() -> String {
    let pid = std::os::unix::process::parent_id();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The command's name, in parentheses, may contain anything. The time is field 22 (proc(5)).
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let started = fields.split_whitespace().nth(19).unwrap_or("0");
    format!("parent.{pid}.{started}")
}

/// The machine's name.
fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: `name` has as many bytes as the call is told, less one that stays zero.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy();
    let name: String = name.split_whitespace().collect();
    if name.is_empty() { "-".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(variables: &[(&str, &str)]) -> Job {
        Job::read(|name| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn each_step_of_a_job_has_a_name_of_its_own() {
        let slurm = |step| {
            job(&[("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", step), ("SLURM_PROCID", "0")]).local_name
        };
        assert_eq!([slurm("0"), slurm("1")], ["7.0", "7.1"]);
        let of = [("PMIX_NAMESPACE", "slurm.pmix.7.2"), ("SLURM_JOB_ID", "7"), ("PMIX_RANK", "0")];
        assert_eq!(job(&of).local_name, "slurm.pmix.7.2");
        // MPICH's launcher in an allocation of Slurm: not the allocation, but the launcher.
        let of = [("SLURM_JOB_ID", "7"), ("PMI_RANK", "0"), ("MPI_LOCALNRANKS", "2")];
        assert!(job(&of).local_name.starts_with("parent."));
        assert!(!job(&[]).has_ranks() && job(&of).has_ranks());
    }

    #[test]
    fn a_parent_is_named_with_the_time_of_its_start() {
        let name = parent();
        let parts: Vec<&str> = name.split('.').collect();
        assert_eq!(parts[1], std::os::unix::process::parent_id().to_string());
        assert!(parts[2].parse::<u64>().unwrap() > 0, "{name}");
    }
}
