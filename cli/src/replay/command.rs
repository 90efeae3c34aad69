//! The command: what is read, run, written and reported, in this order.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use super::{
    agreement, census, cost, depth, engine, matcher, matches, offload, report, stack, walks,
};
use crate::failure::{Failure, one_line};
use crate::output::{Output, is_dash, to_stdout};
use crate::spec::HwTagsArg;
use crate::trace::Trace;
use crate::{args, files, plot};

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
        HwTagsArg::Auto | HwTagsArg::Emu => {
            let right = "off or model[:SLOTS] would be right";
            return Err(Failure::Usage(format!(
                "--hw-tags {}: a replay has no device; {right}",
                args.hw_tags
            )));
        }
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
