//! Ranks that `srun` starts, by PMI-1 and by PMIx, on one node and on two. `ci/slurm` gives the
//! nodes.

mod common;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use common::text;

const TAGPERF: &str = env!("CARGO_BIN_EXE_tagperf");

/// The values of `--mpi`, each with the name of its protocol.
const PROTOCOLS: [(&str, &str); 2] = [("pmi2", "PMI-1"), ("pmix", "PMIx")];

/// A step of this many ranks. They may be more than there are processors.
fn srun(mpi: &str, nodes: u32, ranks: u32) -> Command {
    let mut step = Command::new("srun");
    step.arg("--overcommit").arg(format!("--mpi={mpi}")).stdin(Stdio::null());
    step.arg(format!("--nodes={nodes}")).arg(format!("--ntasks={ranks}"));
    step
}

/// Runs what it is given under both protocols, on one node and on two.
fn everywhere(run: impl Fn(&str, &str, u32)) {
    for (mpi, protocol) in PROTOCOLS {
        for nodes in [1, 2] {
            run(mpi, protocol, nodes);
        }
    }
}

fn status(step: &mut Command, wanted: i32) -> Output {
    let output = step.output().unwrap();
    let stdout = text(&output.stdout);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(wanted), "{step:?}: {errors}{stdout}");
    output
}

/// The document that tagperf prints, and the numbers of ranks in its rows.
fn document(output: &Output) -> (Value, Vec<u64>) {
    let document: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    let rows = document["results"].as_array().unwrap().iter();
    let ranks = rows.map(|row| row["ranks"].as_u64().unwrap()).collect();
    (document, ranks)
}

/// A program of `comm/examples`. Its workers reach other nodes, since they have a secret.
fn example(step: &mut Command, name: &str) {
    step.arg(PathBuf::from(TAGPERF).with_file_name("examples").join(name));
    step.env("TAGMATCH_SECRET", "of the jobs of these tests");
}

#[test]
#[ignore = "needs slurm: ci/test launch"]
fn slurm_starts_ranks_that_measure_over_shared_memory_and_between_nodes() {
    everywhere(|mpi, protocol, nodes| {
        for test in ["barrier", "allreduce --sizes 8"] {
            let call = format!("{test} --iters 20 --warmup 0 --json -");
            let output = status(srun(mpi, nodes, 4).arg(TAGPERF).args(call.split(' ')), 0);
            let (document, ranks) = document(&output);
            assert_eq!((&*ranks, &document["config"]["launcher"]), (&[4][..], &protocol.into()));
            assert_eq!(document["validated"], true, "{document}");
            // The secret comes through the launcher. Ranks of one node don't listen for others.
            let device = if nodes == 1 { "shm" } else { "auto" };
            assert_eq!(document["device"], device, "{document}");
            let beyond = document["matching"]["sent_beyond"].as_u64().unwrap_or(0);
            assert_eq!(beyond > 0, nodes == 2, "{document}");
        }
        let lat = "lat --sizes 8 --iters 50 --pin none";
        let output = status(srun(mpi, nodes, 2).arg(TAGPERF).args(lat.split(' ')), 0);
        let output_text = text(&output.stdout);
        assert_eq!(
            output_text.matches("# other side  rank 1 of a launched job").count(),
            1,
            "{output_text}"
        );
        assert_eq!(output_text.contains("left over a network"), nodes == 2, "{output_text}");
    });
}

#[test]
#[ignore = "needs slurm: ci/test launch"]
fn slurm_starts_the_example_of_other_launchers() {
    everywhere(|mpi, protocol, nodes| {
        let mut step = srun(mpi, nodes, 4);
        example(&mut step, "launched");
        let output = status(&mut step, 0);
        let line = format!("4 ranks by {protocol}: 2 over the even ones, 6 over all\n");
        assert!(text(&output.stdout).starts_with(&line), "{}", text(&output.stdout));
    });
}

/// The option is that of docs/communicators.md. A site may have set the opposite.
#[test]
#[ignore = "needs slurm: ci/test launch"]
fn survivors_of_a_killed_rank_go_on_under_slurm() {
    everywhere(|mpi, _, nodes| {
        let going_on = || {
            let mut step = srun(mpi, nodes, 4);
            step.arg("--kill-on-bad-exit=0");
            step
        };
        let mut survivors = going_on();
        example(&mut survivors, "survivors");
        let output = status(&mut survivors, 137);
        let expected = "3 of 4 go on; together they received 6000 bytes\n";
        assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("task 1: Killed"), "{}", text(&output.stderr));
        // All die but one, rank after rank.
        let output = status(going_on().args([TAGPERF, "shrink", "--json", "-"]), 137);
        assert_eq!(document(&output).1, [4, 3, 2]);
    });
}

#[test]
#[ignore = "needs slurm: ci/test launch"]
fn slurm_starts_a_job_for_a_job_or_it_is_told_what_is_missing() {
    let both = ["SLURM_OVERLAP", "SLURM_OVERCOMMIT"];
    for (mpi, nodes, variables, wanted) in [
        ("pmi2", 1, &both[..0], Err("`SLURM_OVERLAP=1 srun --mpi=pmi2` lets steps share")),
        ("pmi2", 1, &both[..1], Err("would not start 3 processes on 2 processors")),
        ("pmi2", 1, &both[..], Ok(())),
        ("pmi2", 2, &both[..1], Ok(())),
        ("pmix", 1, &both[..], Err("PMIX_ERR_NOT_SUPPORTED")),
        ("pmix", 2, &both[..], Err("PMIX_ERR_NOT_SUPPORTED")),
    ] {
        let mut step = Command::new("srun");
        step.arg(format!("--mpi={mpi}")).arg(format!("--nodes={nodes}")).arg("--ntasks=2");
        step.envs(variables.iter().map(|name| (name, "1"))).stdin(Stdio::null());
        example(&mut step, "spawned");
        let output = status(&mut step, i32::from(wanted.is_err()));
        let stdout = text(&output.stdout);
        let errors = text(&output.stderr);
        match wanted {
            Ok(()) => assert_eq!(stdout, "2 ranks have started 3; the ranks of all make 10\n"),
            Err(why) => assert!(errors.contains(why), "{step:?}: {errors}{stdout}"),
        }
    }
}

#[test]
#[ignore = "needs slurm: ci/test launch"]
fn a_step_of_slurm_without_a_pmi_is_told_what_to_type() {
    let output = status(srun("none", 2, 2).args([TAGPERF, "barrier"]), 1);
    let errors = text(&output.stderr);
    assert!(errors.contains("--mpi=pmi2") && errors.contains("TAGMATCH_ALONE"), "{errors}");
}
