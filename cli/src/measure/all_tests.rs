//! `tagperf` alone: all tests, briefly, in less than 30 seconds.

use std::time::Duration;

use super::interrupt::Interrupt;
use super::plan::{Plan, QueueDepths, Test};
use super::runner::{PeerLocation, TestRunner};
use crate::args::Common;
use crate::failure::Failure;
use crate::report::Report;

/// With 24 sizes, 23 sizes, 1 size and 9 depths: some 17 seconds with the set-up.
const LATENCY_TIME: Duration = Duration::from_millis(200);
const BANDWIDTH_TIME: Duration = Duration::from_millis(200);
const RATE_TIME: Duration = Duration::from_secs(1);
const DEPTH_TIME: Duration = Duration::from_millis(300);

const NEXT: &str = "\
# next        tagperf lat --sizes 8 --posted-depth 4096 --wildcard 50 --pin 0,1
# next        tagperf replay TRACE, with a trace of your own application
# next        tagperf info; tagperf --help
";

/// Posted receives, unexpected messages, percent that take any source.
const DEPTHS: [(u64, u64, u8); 9] = [
    (0, 0, 0),
    (16, 0, 0),
    (256, 0, 0),
    (4096, 0, 0),
    (4096, 0, 50),
    (4096, 0, 100),
    (0, 256, 0),
    (0, 4096, 0),
    (4096, 4096, 50),
];

/// The command.
pub(crate) fn command(common: &Common) -> Result<(), Failure> {
    let common = &common.with_pin();
    let mut report = Report::open(common)?;
    let mut series = TestRunner::open(PeerLocation::SecondProcess, common, Interrupt::watch()?)?;
    let depths = DEPTHS.map(|(posted_depth, unexpected_depth, wildcard_percent)| {
        let none = QueueDepths::default();
        QueueDepths { posted_depth, unexpected_depth, wildcard_percent, ..none }
    });
    let plans = [
        Plan::brief(Test::Lat, LATENCY_TIME, common),
        Plan::brief(Test::Bw, BANDWIDTH_TIME, common),
        Plan::brief(Test::Rate, RATE_TIME, common),
        Plan {
            sizes: vec![8],
            depths: depths.to_vec(),
            ..Plan::brief(Test::Lat, DEPTH_TIME, common)
        },
    ];
    for plan in &plans {
        series.run(plan, &mut report)?;
        report.print("\n")?;
        if series.is_over() {
            break;
        }
    }
    if !series.is_over() {
        report.print(NEXT)?;
    }
    let reported = report.finish(true);
    series.outcome().and(reported)
}
