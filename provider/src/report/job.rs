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
const LOCAL_SIZES: [&str; 2] = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"];
const NAMES: [&str; 3] = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID"];

fn number(names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| env::var(name).ok()?.parse().ok())
}

impl Job {
    /// The job that the environment tells of. Processes without a launcher that is known write one
    /// report: whether they belong together is not known. On standard error each prints its own.
    pub(crate) fn of_environment() -> Self {
        let (rank, size) = (number(&RANKS), number(&SIZES));
        let told = NAMES.iter().find_map(|name| env::var(name).ok());
        let is_safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '.' };
        let told: Option<String> = told.map(|name| name.chars().take(64).map(is_safe).collect());
        let own = format!("process.{}", std::process::id());
        // The processes of a job on one machine have one parent.
        let parent = format!("parent.{}", std::os::unix::process::parent_id());
        let local_size = number(&LOCAL_SIZES).or(size);
        match (rank, told) {
            (_, Some(told)) => {
                Job { name: format!("job {told}"), local_name: told, size, local_size, rank }
            }
            (Some(_), None) => {
                // MPICH's launcher gives jobs no name.
                let name = size.map_or("a job".to_owned(), |size| format!("a job of {size} ranks"));
                Job { name, local_name: parent, size, local_size, rank }
            }
            (None, None) => {
                let name = "processes that no known launcher has started".to_owned();
                Job { name, local_name: own, size: None, local_size: Some(1), rank }
            }
        }
    }

    /// This process.
    pub(crate) fn process(&self) -> Process {
        Process { rank: self.rank, host: host(), pid: std::process::id() }
    }
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
