//! `tagperf replay --hw-tags model`: the matches are those of the oracle, and the report says how
//! many the NIC has made. The tests of `tagmatch-trace` compare random traces.

mod common;

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tagmatch_testkit::tagtrace;

use common::{tagperf, text};

const LAMMPS: &str = "../trace/tests/traces/lammps-crack-rank0of8.trace";
const HPCC: &str = "../trace/tests/traces/hpcc-rank0of6.trace";

/// Runs the command; gives the matches, and the report as JSON.
fn replay(trace: &str, more: &str) -> (String, Value) {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let process = std::process::id();
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let report = std::env::temp_dir().join(format!("tagperf-hw-replay-{process}-{call}"));
    let args = format!("replay {trace} --matches - --json {} {more}", report.display());
    let output = tagperf(&args);
    let json = std::fs::read_to_string(&report).unwrap();
    std::fs::remove_file(&report).unwrap();
    assert_eq!(output.status.code(), Some(0), "{args}: {}", text(&output.stderr));
    (text(&output.stdout).to_owned(), serde_json::from_str(&json).unwrap())
}

#[test]
fn recorded_traces_agree_and_the_report_says_what_the_nic_matched() {
    for trace in [LAMMPS, HPCC] {
        let (want, off) = replay(trace, "--hw-tags off");
        assert_eq!(want, tagtrace::matches(&std::fs::read_to_string(trace).unwrap()));
        assert!(off.get("nic").is_none());
        for nic in ["model", "model:1 --seed 1", "model:3 --seed 2", "model:127 --seed 3"] {
            let (lines, report) = replay(trace, &format!("--hw-tags {nic}"));
            assert!(lines == want, "{trace}, {nic}");
            let nic = &report["nic"];
            let matches = &report["matches"];
            let count = |value: &Value| value.as_u64().unwrap();
            let stopped = nic["stopped"].as_array().unwrap().iter();
            let stopped: u64 = stopped.map(|stop| count(&stop["receives"])).sum();
            // A NIC that lags may match little.
            let least = if nic.get("seed").is_some() { 1 } else { 500 };
            assert!(count(&nic["hardware"]) >= least, "{nic}");
            assert_eq!(count(&nic["hardware"]) + stopped, count(&nic["received"]), "{nic}");
            let received = count(&matches["posted"]) + count(&matches["unexpected"]);
            assert_eq!(received, count(&nic["received"]), "{nic}");
            assert!(!nic["advice"].as_str().unwrap().is_empty());
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let report = |seed| replay(HPCC, &format!("--hw-tags model:4 --seed {seed}")).1["nic"].clone();
    let first = report(7);
    assert_eq!(first, report(7));
    assert!((8..16).any(|seed| report(seed)["stopped"] != first["stopped"]), "{first}");
}

#[test]
fn the_text_says_why_the_nic_does_not_match() {
    let output = tagperf(&format!("replay {LAMMPS} --hw-tags model"));
    let report = text(&output.stdout);
    assert!(report.contains("\nnic        41."), "{report}");
    assert!(
        report.contains(", because its message was there before it (unexpected)\n"),
        "{report}"
    );
    assert!(
        report.contains("\nnic advice what would help most: receives posted before their"),
        "{report}"
    );
}
