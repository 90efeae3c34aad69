//! `tagperf replay --matches` writes what the oracle says. The tests of `tagmatch-trace` compare
//! many more traces, without the command.

use std::io::Write;
use std::process::{Command, Stdio};

use tagmatch_testkit::tagtrace;

const LAMMPS: &str = include_str!("../../trace/tests/traces/lammps-crack-rank0of8.trace");
const HPCC: &str = include_str!("../../trace/tests/traces/hpcc-rank0of6.trace");

/// The output of the command for a trace on its standard input.
fn matches(trace: &str) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tagperf"))
        .args(["replay", "-", "--matches", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(trace.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn recorded_traces_and_random_ones_agree_with_the_oracle() {
    let recorded = [LAMMPS, HPCC].map(str::to_owned);
    let random = (0..20).map(|seed| tagtrace::random_trace(seed, 60, &tagtrace::LENS));
    for trace in recorded.into_iter().chain(random).chain(["tagtrace 1\n".to_owned()]) {
        assert_eq!(matches(&trace), tagtrace::matches(&trace), "{trace}");
    }
}
