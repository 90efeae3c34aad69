//! `tagperf compare`: its exit status, and hostile files.

mod common;

use std::fmt::Write as _;
use std::process::Stdio;

use tagmatch_testkit::scratch::Scratch;

use common::{command, refused, tagperf, text};

/// A result of `lat` with all percentiles at `ns`, and blocks around it.
fn row(size: u64, ns: &str, blocks: &str) -> String {
    let rungs = ["min", "p50", "p90", "p99", "p999", "max"].map(|name| format!("\"{name}\":{ns}"));
    format!(
        "{{\"size\":{size},\"latency_ns\":{{{}}},\"blocks\":{{\"latency_ns\":[{blocks}]}}}}",
        rungs.join(",")
    )
}

fn run(rows: &[String]) -> String {
    format!(
        "{{\"schema\":1,\"tool\":\"tagperf\",\"test\":\"lat\",\"device\":\"shm\",\"config\":{{}},\
         \"results\":[{}]}}",
        rows.join(",")
    )
}

fn around(ns: u32, blocks: u32) -> String {
    (0..blocks).map(|n| (ns + n % 7).to_string()).collect::<Vec<_>>().join(",")
}

/// A run of one size, or of two.
fn of(figures: &[u32]) -> String {
    let rows = (1..).zip(figures).map(|(size, ns)| row(size, &ns.to_string(), &around(*ns, 21)));
    run(&rows.collect::<Vec<_>>())
}

#[test]
fn the_exit_status_is_what_help_says() {
    let scratch = Scratch::new("status");
    let old = scratch.file("old", of(&[1000, 1000]));
    let status = |new: &[u32], more: &str| {
        let new = scratch.file("new", of(new));
        tagperf(&format!("compare {old} {new} {more}")).status.code()
    };
    assert_eq!(status(&[1000, 1000], ""), Some(0), "the same");
    assert_eq!(status(&[500, 900], ""), Some(0), "faster");
    assert_eq!(status(&[1040, 1000], ""), Some(0), "slower, but within 5 %");
    assert_eq!(status(&[1040, 1000], "--fail-if-slower 2"), Some(1), "one of two is slower");
    assert_eq!(status(&[500, 1200], ""), Some(1), "what is faster makes up for nothing");
    assert_eq!(status(&[1000], ""), Some(0), "what only one run has is not judged");
    let bandwidth = scratch.file("bw", of(&[1]).replace("\"lat\"", "\"bw\""));
    assert!(refused(&format!("compare {old} {bandwidth}")).contains("no result in common"));
    assert_eq!(status(&[1000], "--json /dev/full"), Some(1), "what cannot be written");
    let help = tagperf("compare --help");
    let help = text(&help.stdout);
    for line in [
        "Exit status: 0  no result is slower by more than --fail-if-slower, beyond noise\n",
        "             1  at least one is, or the output could not be written\n",
        "             2  bad usage or input, or the runs have no result in common\n",
    ] {
        assert!(help.contains(line), "{help}");
    }
}

#[test]
fn a_reader_who_leaves_does_not_make_it_faster() {
    let scratch = Scratch::new("reader");
    let old = scratch.file("old", of(&[1000]));
    let new = scratch.file("new", of(&[2000]));
    for more in ["", "--json -"] {
        let mut child = command(&format!("compare {old} {new} {more}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{more}");
        assert!(text(&output.stderr).contains("1 of 1 results are slower"), "{more}");
    }
}

#[test]
fn a_comparison_is_not_written_over_what_it_compares() {
    let scratch = Scratch::new("over");
    let run = of(&[1000]);
    let old = scratch.file("old", &run);
    let new = scratch.file("new", &run);
    assert!(refused(&format!("compare {old} {new} --json {old}")).contains("is OLD itself"));
    let other_name = scratch.path("./new");
    let message = refused(&format!("compare {old} {new} --json {other_name}"));
    assert!(message.contains("is NEW itself"), "{message}");
    assert_eq!(std::fs::read_to_string(&old).unwrap(), run);
}

#[test]
fn absurd_figures_are_refused_and_large_changes_stay_narrow() {
    let scratch = Scratch::new("absurd");
    let old = scratch.file("old", of(&[1000]));
    for (ns, blocks) in [("1e300", "1"), ("1e-300", "1"), ("1000", "1e300"), ("1000", "5e-324")] {
        let new = scratch.file("new", run(&[row(1, ns, blocks)]));
        let error_text = refused(&format!("compare {old} {new}"));
        assert!(error_text.contains("invalid figure of lat 1 B `"), "{error_text}");
        assert!(refused(&format!("compare {new} {old}")).contains("invalid figure of lat 1 B"));
    }
    // The largest file that is refused, and more parameters than a result may have.
    let parameters = (0..1000).fold(String::new(), |mut all, n| {
        write!(all, "\"parameter_{n}\":{n},").unwrap();
        all
    });
    let many = |ns: &str| {
        let row = row(1, ns, &[ns; 21].join(","));
        run(&[row.replace("\"latency_ns\":{", &format!("{parameters}\"latency_ns\":{{"))])
    };
    let old = scratch.file("old", many("1e-6"));
    let new = scratch.file("new", many("1e15"));
    let output = tagperf(&format!("compare {old} {new}"));
    assert_eq!(output.status.code(), Some(1));
    let stdout = text(&output.stdout);
    assert!(stdout.contains("SLOWER") && stdout.contains("+1e23 %"), "{stdout}");
    let widest = stdout.lines().map(|line| line.chars().count()).max();
    assert!(widest < Some(220), "{stdout}");
}

/// All pairs of blocks of all results would be 10^8.
#[test]
fn the_work_is_bounded_by_what_is_read() {
    let scratch = Scratch::new("bounded");
    let blocks = around(1000, 1024);
    let rows: Vec<_> = (0..100).map(|size| row(size, "1000", &blocks)).collect();
    let file = scratch.file("hostile", run(&rows));
    let copy = scratch.file("copy", run(&rows));
    let output = tagperf(&format!("compare {file} {copy}"));
    assert_eq!(output.status.code(), Some(0));
    let sum = "# sum         100 compared: 0 slower by more than 5 %, 0 slower within it, 100 same";
    assert!(text(&output.stdout).contains(sum));
}
