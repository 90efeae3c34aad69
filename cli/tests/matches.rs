//! `tagperf replay --matches` writes what the oracle says. The tests of `tagmatch-trace` compare
//! many more traces, without the command.

mod common;

use tagmatch_testkit::tagtrace;

use common::{fed, text};

const LAMMPS: &str = include_str!("../../trace/tests/traces/lammps-crack-rank0of8.trace");
const HPCC: &str = include_str!("../../trace/tests/traces/hpcc-rank0of6.trace");

#[test]
fn recorded_traces_and_random_ones_agree_with_the_oracle() {
    let recorded = [LAMMPS, HPCC].map(str::to_owned);
    let random = (0..20).map(|seed| tagtrace::random_trace(seed, 60, &tagtrace::LENS));
    for trace in recorded.into_iter().chain(random).chain(["tagtrace 1\n".to_owned()]) {
        let output = fed("replay - --matches -", &trace);
        assert_eq!(text(&output.stdout), tagtrace::matches(&trace), "{trace}");
    }
}
