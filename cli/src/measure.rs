//! Measuring: latency, bandwidth and message rate between two processes.
//!
//! | module | what it is |
//! |---|---|
//! | `plan` | what is to be measured: from the command line to legs |
//! | `series` | a table's worth of legs: block, rows, JSON |
//! | `layout`, `row` | a table's columns, and the figures in a row |
//! | `verdict` | whether depth costs anything |
//! | `tour` | all of it, one after the other |
//! | `other` | the other side: a process of our own, or one behind `serve` |
//! | `joined` | both sides as ranks of a launched job |
//! | `collective` | N ranks of a launched job, and what they do together |
//! | `serve` | waits for clients, gives each a process |
//! | `client`, `peer` | one leg, from the asking and from the other side |
//! | `side` | what both do alike: fillers and batches |
//! | `crew`, `lane`, `traffic` | threads, each one's buffers, and the measured loops |
//! | `pace`, `drain` | measured loops of other shapes: planned times, deep queues |
//! | `interrupt` | ^C |

mod client;
mod collective;
mod crew;
mod drain;
mod interrupt;
mod joined;
mod lane;
mod layout;
mod other;
mod pace;
mod peer;
mod plan;
mod row;
mod series;
mod serve;
mod side;
mod tour;
mod traffic;
mod verdict;

pub(crate) use collective::{Operation, command as collective, shrink};
pub(crate) use peer::command as peer;
#[cfg(test)]
pub(crate) use row::Means;
pub(crate) use row::More;
pub(crate) use serve::command as serve;
pub(crate) use tour::command as tour;

use crate::args::device::DeviceArg;
use crate::args::{self, PinChoice};
use crate::failure::Failure;
use crate::output::{Output, to_stdout};
use crate::report::Report;
pub(crate) use plan::{Test, default_window};

use interrupt::Interrupt;
use joined::Part;
use plan::Plan;
use series::{Series, Where};

/// `tagperf lat | bw | bibw | rate`.
pub(crate) fn command(test: Test, args: &args::Measure) -> Result<(), Failure> {
    let mut common = args.common.clone();
    let most = args.threads.iter().flat_map(|threads| &threads.0).copied().max();
    if most > Some(1) {
        // On one CPU a side's threads would only wait for each other.
        common.pin = common.pin.or(Some(PinChoice::Free));
    } else if args.host.is_none() {
        common = common.with_pin();
    }
    let args = &args::Measure { common, ..args.clone() };
    let plan = Plan::new(test, args)?;
    if args.oneself { measure(&plan, Where::Oneself) } else { between(&plan, args.host.as_ref()) }
}

/// `tagperf depth`.
pub(crate) fn depth(args: &args::Depth) -> Result<(), Failure> {
    let common = if args.host.is_none() { args.common.with_pin() } else { args.common.clone() };
    let args = &args::Depth { common, ..args.clone() };
    between(&Plan::depth(args)?, args.host.as_ref())
}

/// Measures with `serve` at `host`, or with the other rank of a job, or with a second process.
fn between(plan: &Plan, host: Option<&args::Host>) -> Result<(), Failure> {
    if let Some(host) = host {
        return measure(plan, Where::At(host));
    }
    match joined::join()? {
        Part::Alone => measure(plan, Where::Here),
        Part::Measures(stream, places) => {
            let mut plan = plan.clone();
            if !matches!(plan.common.pin, Some(PinChoice::Free | PinChoice::Wanted(_))) {
                plan.common.pin = places.pin();
            }
            measure(&plan, Where::Joined(&stream, &places))
        }
        Part::Serves(stream) => peer::joined(stream),
    }
}

fn measure(plan: &Plan, place: Where<'_>) -> Result<(), Failure> {
    let mut report = Report::open(&plan.common)?;
    let (mut people, mut json) = outputs(&plan.common, &report)?;
    let mut series = Series::open(place, &plan.common, Interrupt::watch()?)?;
    let document = series.run(plan, plan.legs(), &mut people, &mut report)?;
    if let Some(json) = &mut json {
        json.json(&document)?;
    }
    let reported = report.finish(&[document], &mut people);
    series.outcome().and(reported)
}

/// How large messages get to a process of this machine on `device`: found out by sending one.
pub(crate) fn large_messages(device: DeviceArg) -> Result<String, Failure> {
    let common = args::Common {
        pin: None,
        device,
        hw_tags: args::hw_tags::HwTagsArg::Off,
        no_validate: false,
        json: None,
        report: args::report::Report::default(),
    };
    let series = Series::open(Where::Here, &common, Interrupt::default());
    series.map(|series| series.large_messages())
}

/// Where people read, and where machines do, if anywhere.
fn outputs(common: &args::Common, report: &Report) -> Result<(Output, Option<Output>), Failure> {
    let json = common.json.as_deref().map(|path| Output::create("--json", path)).transpose()?;
    let replaced = report.replaces_table() || to_stdout(common.json.as_ref());
    let people = if replaced { Output::nowhere() } else { Output::stdout() };
    let goes_on = json.is_some() || report.goes_on();
    Ok((if goes_on { people.optional() } else { people }, json))
}
