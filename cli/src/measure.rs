//! Measuring: latency, bandwidth and message rate between two processes.
//!
//! | module | content |
//! |---|---|
//! | `plan` | the measurements of a test, from the command line |
//! | `runner` | runs a plan: facts, rows, JSON |
//! | `row` | the figures of a row |
//! | `all_tests` | `tagperf` alone: all tests, briefly |
//! | `peer_process` | the process on the other side, as this side sees it |
//! | `job` | exchanging values in a launched job, and the machine and CPUs of its ranks |
//! | `launched` | both sides as two ranks of a launched job |
//! | `collective` | N ranks of a launched job: collective operations, agreement, recovery |
//! | `serve` | accepts clients, starts a process for each |
//! | `client`, `peer` | one measurement, from the side that asks and from the side that answers |
//! | `participant`, `batch` | the part that both have in common: fillers, batches |
//! | `threads`, `thread`, `traffic` | the threads of a side, the buffers of each, and the measured loops |
//! | `sends` | sends under way, whose failure ends the wait for anything else |
//! | `completions` | how the loops learn that an operation has ended: by its request, or by the completion queue |
//! | `open_loop`, `drain`, `one_sided` | measured loops of other shapes: planned times, deep queues, puts and gets |
//! | `interrupt` | ^C |

mod all_tests;
mod batch;
mod client;
mod collective;
mod completions;
mod drain;
mod error;
mod interrupt;
mod job;
mod launched;
mod one_sided;
mod open_loop;
mod participant;
mod peer;
mod peer_process;
mod plan;
mod row;
mod runner;
mod sends;
mod serve;
mod thread;
mod threads;
mod traffic;

pub(crate) use all_tests::command as all_tests;
pub use collective::{Call, Operation, World};
pub(crate) use collective::{command as collective, shrink};
pub(crate) use peer::command as peer;
pub(crate) use serve::command as serve;

use crate::failure::Failure;
use crate::report::Report;
use crate::spec::{DeviceArg, Host, PinChoice};
use crate::units::Sizes;
use crate::{args, cpus};
pub(crate) use plan::Test;

use interrupt::Interrupt;
use launched::LaunchRole;
use plan::Plan;
use runner::{PeerLocation, TestRunner};

/// `tagperf lat | bw | bibw | rate`.
pub(crate) fn command(test: Test, args: &args::Measure) -> Result<(), Failure> {
    let mut common = args.common.clone();
    let most = args.threads.iter().flat_map(|threads| &threads.0).copied().max();
    if most > Some(1) {
        // With one CPU a side, its threads would only wait for each other.
        common.pin = common.pin.or(Some(PinChoice::Free));
    } else if args.host.is_none() {
        common = common.with_pin();
    }
    let args = &args::Measure { common, ..args.clone() };
    let plan = Plan::new(test, args)?;
    if args.oneself {
        measure(&plan, PeerLocation::Oneself)
    } else {
        between(&plan, args.host.as_ref())
    }
}

/// `tagperf depth`.
pub(crate) fn depth(args: &args::Depth) -> Result<(), Failure> {
    let common = if args.host.is_none() { args.common.with_pin() } else { args.common.clone() };
    let args = &args::Depth { common, ..args.clone() };
    between(&Plan::depth(args)?, args.host.as_ref())
}

/// `tagperf put | get | fadd`.
pub(crate) fn one_sided(
    test: Test,
    sizes: Option<Sizes>,
    args: &args::OneSidedArgs,
) -> Result<(), Failure> {
    let common = if args.host.is_none() { args.common.with_pin() } else { args.common.clone() };
    let args = &args::OneSidedArgs { common, ..args.clone() };
    between(&Plan::one_sided(test, sizes, args)?, args.host.as_ref())
}

/// Measures with `serve` at `host`, with the other rank of a job, or with a second process.
fn between(plan: &Plan, host: Option<&Host>) -> Result<(), Failure> {
    if let Some(host) = host {
        return measure(plan, PeerLocation::Serve(host));
    }
    match launched::join()? {
        LaunchRole::Alone => measure(plan, PeerLocation::SecondProcess),
        LaunchRole::Measures(stream, places) => {
            let mut plan = plan.clone();
            plan.common = plan.common.for_ranks(places.is_one_network());
            if !matches!(plan.common.pin, Some(PinChoice::Free | PinChoice::Wanted(_))) {
                plan.common.pin = cpus::possible(places.pair(), cpus::is_pinning_refused);
            }
            measure(&plan, PeerLocation::OtherRank(&stream, &places))
        }
        LaunchRole::Serves(stream) => peer::of_launched_job(stream),
    }
}

fn measure(plan: &Plan, place: PeerLocation<'_>) -> Result<(), Failure> {
    let mut report = Report::open(&plan.common)?;
    let mut series = TestRunner::open(place, &plan.common, Interrupt::watch()?)?;
    series.run(plan, &mut report)?;
    let reported = report.finish(false);
    series.outcome().and(reported)
}

/// How large messages are transferred to a process of this machine on `device`: sends one to find
/// out.
pub(crate) fn large_messages(device: DeviceArg) -> Result<String, Failure> {
    let common = args::Common { device: Some(device), ..args::Common::default() };
    let series = TestRunner::open(PeerLocation::SecondProcess, &common, Interrupt::default());
    series.map(|series| series.large_messages)
}
