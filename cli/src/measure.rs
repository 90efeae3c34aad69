//! Measuring: latency, bandwidth and message rate between two processes.
//!
//! | module | what it is |
//! |---|---|
//! | `plan` | what is to be measured: from the command line to legs |
//! | `series` | a table's worth of legs: block, rows, JSON |
//! | `tour` | all of it, one after the other |
//! | `other` | the other side: a process of our own, or one behind `serve` |
//! | `serve` | waits for clients, gives each a process |
//! | `client`, `peer` | one leg, from the asking and from the other side |
//! | `side`, `traffic` | what both do alike: fillers, batches, and the measured loops |

mod client;
mod other;
mod peer;
mod plan;
mod series;
mod serve;
mod side;
mod tour;
mod traffic;

pub(crate) use peer::command as peer;
pub(crate) use serve::command as serve;
pub(crate) use tour::command as tour;

use crate::args;
use crate::failure::Failure;
use crate::output::{Output, to_stdout};
use crate::report::Report;
pub(crate) use plan::Test;

use plan::Plan;
use series::Series;

/// `tagperf lat | bw | rate`.
pub(crate) fn command(test: Test, args: &args::Measure) -> Result<(), Failure> {
    let common = if args.host.is_none() { args.common.with_pin() } else { args.common.clone() };
    let args = &args::Measure { common, ..args.clone() };
    let plan = Plan::new(test, args)?;
    let mut report = Report::open(&args.common)?;
    let (mut people, mut json) = outputs(&args.common, &report)?;
    let mut series = Series::open(args.host.as_ref(), &args.common)?;
    let document = series.run(&plan, plan.legs(), &mut people, &mut report)?;
    if let Some(json) = &mut json {
        json.json(&document)?;
    }
    report.finish(&[document], &mut people)
}

/// How large messages get to a process of this machine: found out by sending one.
pub(crate) fn large_messages() -> Result<&'static str, Failure> {
    let common = args::Common {
        pin: None,
        device: None,
        no_validate: false,
        json: None,
        report: args::report::Report::default(),
    };
    Series::open(None, &common).map(|series| series.large_messages())
}

/// Where people read, and where machines do, if anywhere.
fn outputs(common: &args::Common, report: &Report) -> Result<(Output, Option<Output>), Failure> {
    let json = common.json.as_deref().map(|path| Output::create("--json", path)).transpose()?;
    let replaced = report.replaces_table() || to_stdout(common.json.as_ref());
    let people = if replaced { Output::nowhere() } else { Output::stdout() };
    Ok((people, json))
}
