//! `barrier | bcast | allreduce | alltoall | dup | agree | shrink`: with ranks that the command
//! starts itself, and as ranks of a job.

mod common;

use std::process::{Command, Stdio};

use serde_json::Value;
use tagmatch_testkit::process::{Signal, send_signal};

use common::{alone, children, command, eventually, json, outliving, refused, tagperf, text};

const TAGPERF: &str = env!("CARGO_BIN_EXE_tagperf");

/// Min, avg and max over the ranks are in that order.
fn means(row: &Value) -> [f64; 3] {
    let means = ["min", "avg", "max"].map(|name| row["rank_means_ns"][name].as_f64().unwrap());
    assert!(0.0 < means[0] && means[0] <= means[1] && means[1] <= means[2], "{row}");
    means
}

#[test]
fn each_is_measured_by_two_ranks_of_its_own() {
    let _alone = alone();
    // The receives of a call, where messages of other calls can't be among them.
    for (test, sizes, receives) in [
        ("barrier", "0", Some(2)),
        ("bcast --sizes 0,1,8K", "0 1 8192", Some(1)),
        ("allreduce --sizes 8,80K", "8 81920", None),
        ("alltoall --sizes 3,8K", "3 8192", Some(2)),
        ("dup", "0", None),
        ("agree", "0", None),
    ] {
        let document = json(&format!("{test} --by-messages --iters 70 --warmup 3 --json -"));
        assert_eq!(document["config"]["by_messages"], true);
        assert_eq!(document["test"], test.split(' ').next().unwrap());
        assert_eq!((&document["validated"], &document["device"]), (&true.into(), &"shm".into()));
        let matching = &document["matching"];
        let count = |name: &str| matching[name].as_u64().unwrap();
        assert_eq!(count("hardware"), 0, "{test}");
        let matched = count("posted") + count("unexpected");
        assert!(matched > 0, "{test}");
        assert_eq!(document["config"]["launcher"], "PMI-1");
        let rows = document["results"].as_array().unwrap();
        let found: Vec<_> = rows.iter().map(|row| row["size"].to_string()).collect();
        assert_eq!(found.join(" "), sizes);
        let calls = 70 * rows.len() as u64;
        assert_eq!(receives.map_or(matched, |each| each * calls), matched, "{test}");
        for row in rows {
            assert_eq!((&row["ranks"], &row["samples"]), (&2.into(), &70.into()));
            let [least, _, most] = means(row);
            let mean = row["latency_ns"]["mean"].as_f64().unwrap();
            assert!(least <= mean + 0.2 && mean <= most + 0.2, "rank 0 is one of them: {row}");
        }
    }
}

#[test]
fn ranks_of_one_machine_need_no_messages() {
    let _alone = alone();
    let tests =
        ["barrier", "bcast --sizes 8,200000", "allreduce --sizes 8,200000", "alltoall --sizes 8"];
    for test in tests {
        let document = json(&format!("{test} -n 3 --iters 20 --warmup 3 --json -"));
        let matching = &document["matching"];
        let count = |name: &str| matching[name].as_u64().unwrap();
        // The last messages about the making of the shared memory may arrive after the warm-up.
        assert!(count("posted") + count("unexpected") < 20, "a message a call: {document}");
        assert_eq!(document["config"]["by_messages"], false);
        means(&document["results"][0]);
    }
}

#[test]
fn ranks_of_a_job_measure_together_and_one_tells() {
    let _alone = alone();
    let measured = || {
        let output = tagperf(&format!(
            "run -n 3 -- {TAGPERF} allreduce --sizes 8,64 --iters 20 --warmup 0 --pin none"
        ));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let stdout = measured();
    assert_eq!(stdout.matches("# ranks       3,").count(), 1, "{stdout}");
    let rows: Vec<_> = stdout.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(rows.len(), 3, "{stdout}");
    assert!(rows[0].trim_start().starts_with("size        avg        min        max"), "{stdout}");
    assert!(rows[1].trim_start().starts_with("8 B") && rows[1].ends_with("20"), "{stdout}");
    assert_eq!(stdout.matches("\n# matched     ").count(), 1, "{stdout}");
    // A message about the making of the shared memory may be counted.
    let is_told =
        |stdout: &str| stdout.contains("0 receives") && stdout.contains("--by-messages measures");
    assert!(is_told(&stdout) || (0..20).any(|_| is_told(&measured())), "{stdout}");
}

#[test]
fn other_forms_have_what_is_over_ranks() {
    let _alone = alone();
    let said = |form: &str| {
        let call = "bcast -n 3 --by-messages --sizes 8 --iters 9 --warmup 0";
        let output = tagperf(&format!("{call} {form}"));
        assert_eq!(text(&output.stderr), "", "{form}");
        text(&output.stdout).to_owned()
    };
    let csv = said("--csv");
    let lines: Vec<Vec<_>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let at = lines[0].iter().position(|name| *name == "ranks").unwrap();
    assert_eq!((lines.len(), lines[1][at], lines[1].len()), (2, "3", lines[0].len()));
    let ns: Vec<f64> = lines[1][at + 1..at + 4].iter().map(|ns| ns.parse().unwrap()).collect();
    assert!(ns.len() == 3 && ns.is_sorted() && ns[0] > 0.0, "{csv}");
    let osu = said("--osu");
    let lines: Vec<_> = osu.lines().collect();
    assert!(lines[0].starts_with("# OSU MPI Broadcast Latency Test"), "{osu}");
    assert!(lines[1].starts_with("# Size       Avg Latency(us)   Min Latency(us)"), "{osu}");
    assert_eq!(lines[2], "# ranks 3");
    assert!(lines[3].starts_with("8  ") && lines[3].ends_with("  9"), "{osu}");
    let stream = said("--json-stream");
    let lines: Vec<Value> = stream.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let records: Vec<_> = lines.iter().map(|line| line["record"].as_str().unwrap()).collect();
    assert_eq!(records, ["start", "result", "end"]);
    means(&lines[1]);
    // Each rank but the root receives in each call.
    for line in &lines[1..] {
        let count = |name: &str| line["matching"][name].as_u64().unwrap();
        assert_eq!(count("posted") + count("unexpected"), 2 * 9, "{line}");
    }
    assert!(said("--histogram").contains("us   "), "bars below the row");
}

#[test]
fn what_differs_in_ranks_is_not_compared() {
    let _alone = alone();
    let file = |ranks: u32| {
        let path = format!("{}/collective-{ranks}.json", env!("CARGO_TARGET_TMPDIR"));
        let args = format!("barrier -n {ranks} --iters 500 --warmup 0 --json {path}");
        assert_eq!(tagperf(&args).status.code(), Some(0));
        path
    };
    let two = file(2);
    let three = file(3);
    let output = tagperf(&format!("compare {two} {two} --fail-if-slower 10000"));
    assert!(text(&output.stdout).contains("barrier 0 B, ranks 2"), "{}", text(&output.stdout));
    assert!(refused(&format!("compare {two} {three}")).contains("in common"));
    for path in [two, three] {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn rank_after_rank_dies_and_the_others_go_on() {
    let _alone = alone();
    let document = json("shrink -n 4 --json -");
    assert!(document["matching"]["unexpected"].as_u64().unwrap() > 0, "{document}");
    let rows = document["results"].as_array().unwrap();
    let ranks: Vec<_> = rows.iter().map(|row| row["ranks"].as_u64().unwrap()).collect();
    assert_eq!(ranks, [4, 3, 2]);
    for row in rows {
        means(row);
        for step in ["noticed", "revoke", "agree", "shrink", "barrier"] {
            assert!(row["recovery_ns"][step].as_f64().unwrap() > 0.0, "{step}: {row}");
        }
    }
    let kept = tagperf(&format!("run -n 3 --keep-going -- {TAGPERF} shrink"));
    let stdout = text(&kept.stdout);
    assert!(stdout.contains("\n    3  ") && stdout.contains("\n    2  "), "{stdout}");
    let deaths = text(&kept.stderr).lines().filter(|line| line.ends_with("killed by signal 9"));
    assert_eq!(deaths.count(), 2, "{}", text(&kept.stderr));
}

#[test]
#[ignore = "needs mpich and openmpi: ci/test launch"]
fn foreign_launchers_start_ranks_that_measure_and_die() {
    let mpirun = "mpirun -n 3 --oversubscribe --allow-run-as-root";
    let launched = |launcher: &str, last: &[&str]| {
        let mut words = launcher.split(' ');
        let mut run = Command::new(words.next().unwrap());
        let output = run.args(words).args(last).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{run:?}: {}", text(&output.stderr));
        let document: Value = serde_json::from_str(text(&output.stdout)).unwrap();
        let rows = document["results"].as_array().unwrap().iter();
        rows.map(|row| row["ranks"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    for launcher in ["mpiexec.hydra -n 3", mpirun] {
        let barrier = [TAGPERF, "barrier", "--iters", "20", "--warmup", "0", "--json", "-"];
        assert_eq!(launched(launcher, &barrier), [3]);
    }
    let shrink = outliving(&format!("{TAGPERF} shrink --json -"));
    let mpich = "mpiexec.hydra -n 3 -disable-auto-cleanup bash -c";
    assert_eq!(launched(mpich, &[&shrink]), [3, 2]);
    let recovering = format!("{mpirun} --enable-recovery");
    assert_eq!(launched(&recovering, &[TAGPERF, "shrink", "--json", "-"]), [3, 2]);
}

#[test]
fn interrupted_it_tells_what_it_has() {
    let _alone = alone();
    let run = command("barrier --iters 1000000000 --warmup 0 --pin none --json -")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = run.id();
    // The thread of this name watches for ^C at rank 0.
    let watches = |rank: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{rank}/task")).into_iter().flatten().flatten();
        let mut names = tasks.map(|task| std::fs::read_to_string(task.path().join("comm")));
        names.any(|name| name.is_ok_and(|name| name == "interrupt\n"))
    };
    assert!(eventually(|| children(pid).into_iter().any(watches)));
    send_signal(pid, Signal::INT);
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let document: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    assert_eq!(document["interrupted"], true);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let _alone = alone();
    for (args, lines) in [("bcast -n 3 --duration 100ms", 15), ("shrink -n 3", 11)] {
        let head =
            format!("{TAGPERF} {args} | head -n {lines} > /dev/null; exit ${{PIPESTATUS[0]}}");
        let output = Command::new("bash").args(["-c", &head]).output().unwrap();
        assert_eq!(text(&output.stderr), "", "{args}");
        assert_eq!(output.status.code(), Some(0), "{args}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let _alone = alone();
    for (args, why) in [
        ("barrier -n 1", "'1'"),
        ("barrier --sizes 8", "--sizes"),
        ("allreduce --sizes 8,12", "a multiple of 8"),
        ("shrink --iters 5", "--iters"),
        ("shrink --plot x.svg", "use --json or --csv"),
        ("shrink --histogram", "use --json or --csv"),
        ("bcast --csv --json -", "--json and --csv"),
        ("dup --device verbs:none", "verbs:none"),
    ] {
        let message = refused(args);
        assert!(message.contains(why), "{args}: {message}");
    }
    let alltoall = tagperf("alltoall -n 3 --sizes 1G");
    assert_eq!(alltoall.status.code(), Some(2));
    assert_eq!(text(&alltoall.stderr).lines().count(), 1, "{}", text(&alltoall.stderr));
    for (run, why) in [
        ("run -n 1 -- TAGPERF barrier", "nobody to wait for"),
        ("run -n 3 -- TAGPERF barrier -n 2", "has started 3"),
    ] {
        let output = tagperf(&run.replace("TAGPERF", TAGPERF));
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
}
