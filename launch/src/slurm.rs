//! What the environment must have for `srun --mpi=pmi2` to start a job that a process asks for.
//!
//! A manager of the step runs another `srun` in the same allocation, in the environment of the
//! step, and answers when the new processes run (`src/plugins/mpi/pmi2/spawn.c` of Slurm). If that
//! `srun` waits for processors, or ends with an error, nothing answers. So a request that can't
//! succeed is refused here.

use std::ffi::OsString;

use crate::spawn::SpawnError;

/// Checks whether `srun` can start this many processes, as far as the environment tells. `job` is
/// the name that the launcher gives to the job of the process that asks: any other launcher than
/// Slurm has other names, also where Slurm has started that launcher.
pub(crate) fn check(
    job: &str,
    size: u32,
    get: impl Fn(&str) -> Option<OsString>,
) -> Result<(), SpawnError> {
    let text = |name| Some(get(name)?.to_str()?.to_owned());
    let step = || Some(format!("{}.{}", text("SLURM_JOB_ID")?, text("SLURM_STEP_ID")?));
    if step().is_none_or(|step| step != job) {
        return Ok(());
    }
    if get("SLURM_OVERLAP").is_none() {
        return Err(SpawnError::NoOverlap);
    }
    let has = text("SLURM_JOB_CPUS_PER_NODE").and_then(|list| processors(&list));
    match has {
        Some(processors) if u64::from(size) > processors && get("SLURM_OVERCOMMIT").is_none() => {
            Err(SpawnError::FewProcessors { size, processors })
        }
        _ => Ok(()),
    }
}

/// The sum of a list such as `4(x2),3`: 4 processors on each of two nodes, 3 on the last.
fn processors(list: &str) -> Option<u64> {
    list.split(',').try_fold(0_u64, |sum, part| {
        let (each, nodes) = part.split_once("(x").unwrap_or((part, "1)"));
        let nodes: u64 = nodes.strip_suffix(')')?.parse().ok()?;
        sum.checked_add(each.parse::<u64>().ok()?.checked_mul(nodes)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: [(&str, &str); 3] =
        [("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0"), ("SLURM_JOB_CPUS_PER_NODE", "2(x2)")];

    fn refused(job: &str, size: u32, more: &[&str]) -> Option<String> {
        let more: Vec<_> = more.iter().map(|name| (*name, "1")).collect();
        let all = [&STEP[..], &more].concat();
        let get = |name: &str| Some(all.iter().find(|(other, _)| *other == name)?.1.into());
        check(job, size, get).err().map(|error| error.to_string())
    }

    #[test]
    fn what_srun_would_not_answer_is_refused_with_what_to_type() {
        let message = refused("7.0", 1, &[]).unwrap();
        assert!(message.contains("SLURM_OVERLAP=1"), "{message}");
        assert_eq!(refused("7.0", 4, &["SLURM_OVERLAP"]), None);
        let error_text = refused("7.0", 5, &["SLURM_OVERLAP"]).unwrap();
        assert!(error_text.contains("5 processes on 4 processors"), "{error_text}");
        assert!(error_text.contains("SLURM_OVERCOMMIT=1"), "{error_text}");
        assert_eq!(refused("7.0", 5, &["SLURM_OVERLAP", "SLURM_OVERCOMMIT"]), None);
    }

    #[test]
    fn other_launchers_in_a_step_are_asked() {
        for job in ["kvs_4711_0_node1", "7.1", ""] {
            assert_eq!(refused(job, 100, &[]), None, "{job}");
        }
        assert!(check("7.0", 100, |_| None).is_ok());
    }

    #[test]
    fn processors_are_counted_over_nodes() {
        assert_eq!(processors("4"), Some(4));
        assert_eq!(processors("4(x2),3"), Some(11));
        for garbled in ["", "x", "4(x", "4(x2", "4,", "-4", "4(xx)", "99999999999999999999(x2)"] {
            assert_eq!(processors(garbled), None, "{garbled}");
        }
        assert_eq!(processors(&format!("{}(x2)", u64::MAX)), None);
    }
}
