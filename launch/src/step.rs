//! Processes that a launcher has started beside each other without a way to find each other: no PMI
//! and no PMIx. Each of them would be a job of its own.

use std::ffi::OsString;

/// The variable that says that being alone is meant.
pub(crate) const ALONE: &str = "TAGMATCH_ALONE";

/// The most that the number of a step of Slurm can be: greater ones are the shells of allocations
/// (`slurm.h`, `SLURM_MAX_NORMAL_STEP_ID`).
const SLURM_STEP_ID_MAX: u64 = 0xffff_fff0 - 1;

/// A launcher, the variable in which it tells how many processes it has started together, and what
/// gives them a PMI.
type Known = (&'static str, &'static str, &'static str);

const KNOWN: [Known; 6] = [
    (
        "srun",
        "SLURM_STEP_NUM_TASKS",
        "`srun --mpi=pmi2` or `srun --mpi=pmix` (`srun --mpi=list` shows what there is)",
    ),
    ("flux run", "FLUX_JOB_SIZE", "`flux run` without `-o pmi=off`"),
    ("mpirun", "OMPI_COMM_WORLD_SIZE", "`mpirun` of Open MPI 4 or later, which speaks PMIx"),
    ("jsrun", "JSM_NAMESPACE_SIZE", "`jsrun` with PMIx"),
    ("mpirun_rsh", "MV2_COMM_WORLD_SIZE", "`mpiexec.hydra`, or `tagperf run`"),
    // PALS of HPE Cray among others, whose PMI is a library of its own.
    ("a launcher", "PMI_SIZE", "`mpiexec.hydra`, or `tagperf run --hosts`"),
];

/// A process that would be alone though it was started with others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lonely {
    pub(crate) launcher: &'static str,
    pub(crate) size: u32,
    pub(crate) remedy: &'static str,
}

/// Whether a launcher has started this process with others, as far as the environment tells, and
/// nothing says that each is to be alone. To be asked where the environment names no PMI.
pub(crate) fn lonely(get: impl Fn(&str) -> Option<OsString>) -> Option<Lonely> {
    if get(ALONE).is_some_and(|value| !value.is_empty() && value != "0") {
        return None;
    }
    let number = |name| get(name)?.to_str()?.parse::<u64>().ok();
    KNOWN.into_iter().find_map(|(launcher, variable, remedy)| {
        let size = u32::try_from(number(variable)?).ok().filter(|size| *size > 1)?;
        // The shell of an allocation (salloc, sbatch) is one process, whatever it has inherited.
        let is_shell = launcher == "srun" && number("SLURM_STEP_ID") > Some(SLURM_STEP_ID_MAX);
        (!is_shell).then_some(Lonely { launcher, size, remedy })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Option<(&'static str, u32)> {
        let get = |name: &str| Some(variables.iter().find(|(other, _)| *other == name)?.1.into());
        lonely(get).map(|lonely| (lonely.launcher, lonely.size))
    }

    #[test]
    fn each_launcher_tells_how_many_processes_it_has_started() {
        for (launcher, variable, remedy) in KNOWN {
            assert_eq!(found(&[(variable, "4")]), Some((launcher, 4)));
            assert_eq!(found(&[(variable, "1")]), None, "one process is alone anyway");
            for garbled in ["", "-4", "four", "99999999999999999999", "4294967296"] {
                assert_eq!(found(&[(variable, garbled)]), None, "{garbled}");
            }
            assert_eq!(found(&[(variable, "4"), (ALONE, "1")]), None);
            assert!(found(&[(variable, "4"), (ALONE, "0")]).is_some());
            assert!(remedy.starts_with('`'));
        }
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn the_shell_of_an_allocation_is_no_step_of_several_tasks() {
        // What sbatch gives its script, and salloc its shell (with and without an interactive
        // step).
        assert_eq!(found(&[("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "4")]), None);
        let shell = [("SLURM_STEP_ID", "4294967290"), ("SLURM_STEP_NUM_TASKS", "1")];
        assert_eq!(found(&shell), None);
        let inherited = [("SLURM_STEP_ID", "4294967290"), ("SLURM_STEP_NUM_TASKS", "4")];
        assert_eq!(found(&inherited), None);
        let step = [("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "4")];
        assert_eq!(found(&step), Some(("srun", 4)));
    }
}
