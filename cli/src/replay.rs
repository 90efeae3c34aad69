//! `tagperf replay`: a recorded matching history, run through the matcher.
//!
//! 1. [`crate::trace`] reads the whole trace; a mistake ends it here, with nothing printed.
//! 2. `engine` runs it under the clock, a chunk at a time; between chunks `matches` writes what
//!    matched what, if asked to, `depth` counts, and so does `walks`, what plain lists would walk.
//!    `census` counts what needs no run.
//! 3. `cost` runs a short trace again, and a trace of any length, up to a bound, through `plain` lists.
//! 4. `timeline` has the depths over the trace, `verdict` says what to make of it.
//! 5. With `--hw-tags model`, `stack` has run it through two workers before all that, a NIC in one of
//!    them: what is written is what came of that, and it must be what comes of 2. `lengths` makes a
//!    trace's lengths small enough for it, `requests` and `dice` serve it; `offload` says how much the
//!    NIC has matched.
//! 6. `report` says it all.

mod agreement;
mod census;
mod cost;
mod depth;
mod dice;
mod engine;
mod lengths;
mod matcher;
mod matches;
mod offload;
mod plain;
mod rank;
mod report;
mod requests;
mod stack;
mod timeline;
mod verdict;
mod walks;

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

pub use matches::{write_matches, write_matches_by_nic};

use matcher::Matcher as _;

use crate::args;
use crate::args::hw_tags::HwTagsArg;
use crate::failure::{Failure, one_line};
use crate::files;
use crate::output::{Output, is_dash, to_stdout};
use crate::plot;
use crate::trace::Trace;
use crate::units::{show_3, show_count};

/// The command.
pub(crate) fn command(args: &args::Replay) -> Result<(), Failure> {
    let (matches, json, chart) = (args.matches.as_ref(), args.json.as_ref(), args.plot.as_ref());
    let outputs = [("--matches", matches), ("--json", json), ("--plot", chart)];
    files::apart(&[("the trace", &args.trace)], &outputs)?;
    let name = if is_dash(&args.trace) { "-".into() } else { one_line(args.trace.display()) };
    let trace = read(&args.trace, &name)?;
    let mut json = json.map(|path| Output::create("--json", path)).transpose()?;
    let mut out = match matches {
        Some(path) => Some(Output::create("--matches", path)?),
        None => None,
    };
    let mut chart = chart.map(|path| plot::create(path)).transpose()?;
    let script = engine::Script::new(&trace);
    let by_nic = match args.hw_tags {
        HwTagsArg::Off => None,
        nic @ HwTagsArg::Model { slots } => {
            let outcome = stack::run(&trace, &script, nic.config(args.seed), args.seed)?;
            Some((outcome, slots))
        }
    };
    let mut agreement = by_nic.as_ref().map(|(outcome, _)| agreement::Agreement::new(outcome));
    let (mut count, mut walker) = (depth::Count::new(&script), walks::Walker::new(&script));
    let mut record = |step: &engine::Step, event: Option<engine::Event>| {
        count.see(step, event);
        walker.see(step, event);
        let event = agreement.as_mut().map_or(event, |agreement| agreement.see(event));
        match (&mut out, event) {
            (Some(out), Some(event)) => out.write(|to| matches::write_event(&trace, event, to)),
            _ => Ok(()),
        }
    };
    let pass = engine::pass(&script, matcher::Indexed::new(), u64::MAX, &mut record)?;
    let left = pass.lists.left();
    if let Some(mut out) = out {
        let left = by_nic.as_ref().map_or(&left, |(outcome, _)| &outcome.left);
        out.with(|to| matches::write_left(&trace, left, to))?;
    }
    if let Some(agreement) = agreement {
        agreement.end(&left)?;
    }
    let walks = walker.walks;
    let cost = cost::measure(&script, &pass, &walks);
    let census = census::Census::new(&trace);
    let offload =
        by_nic.map(|(outcome, slots)| offload::Offload::new(slots, args.seed, &outcome.counters));
    let report = report::Report::new(name, &census, &count, &walks, cost, offload);
    if let Some(json) = &mut json {
        json.json(&report)?;
    }
    if let Some(chart) = &mut chart {
        chart.print(&report.plot()?)?;
    }
    for_people(args).print(&report.text())
}

/// Where the report goes.
fn for_people(args: &args::Replay) -> Output {
    if to_stdout(args.matches.as_ref()) {
        Output::stderr()
    } else if to_stdout(args.json.as_ref()) {
        Output::nowhere()
    } else {
        Output::stdout()
    }
}

/// Runs a trace through tagmatch's lists and through plain ones; for tests and fuzzers.
///
/// # Panics
///
/// If an operation comes to different things, which is a defect of one of them.
pub fn check(trace: &Trace) {
    let script = engine::Script::new(trace);
    let mut events = Vec::with_capacity(script.steps.len());
    let Ok(plain) = engine::pass(&script, plain::Plain::default(), u64::MAX, |_, event| {
        events.push(event);
        Ok::<(), std::convert::Infallible>(())
    });
    let (mut count, mut walker) = (depth::Count::new(&script), walks::Walker::new(&script));
    let mut wanted = events.into_iter();
    let Ok(pass) = engine::pass(&script, matcher::Indexed::new(), u64::MAX, |step, event| {
        assert_eq!(Some(event), wanted.next(), "plain lists on the right");
        count.see(step, event);
        walker.see(step, event);
        Ok::<(), std::convert::Infallible>(())
    });
    let (posted, unexpected) = pass.lists.left();
    assert_eq!((posted.len(), unexpected.len()), count.depths);
    assert_eq!(
        walker.walks.entries(),
        plain.lists.work(),
        "plain lists walked what is on the right"
    );
}

fn read(path: &Path, name: &str) -> Result<Trace, Failure> {
    let read = if is_dash(path) {
        Trace::parse(io::stdin().lock())
    } else {
        let file = File::open(path).map_err(|error| {
            let right = "a tagtrace file, or - for standard input, would be right";
            Failure::Usage(format!("cannot open {name}: {error}; {right}"))
        })?;
        Trace::parse(BufReader::with_capacity(1 << 18, file))
    };
    read.map_err(|error| Failure::Input(format!("{name}:{}: {error}", error.line())))
}

/// `part / whole`; of nothing, nothing.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A mean number of entries.
fn show_entries(mean: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count's mean")]
    if mean < 1000.0 { show_3(mean) } else { show_count(mean.round() as u64) }
}
