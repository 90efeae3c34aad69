//! The command: reads the trace, replays it, writes the matches and the report.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use tagmatch_results::show::one_line;
use tagmatch_trace::workers::{self, Agreement, WorkersError};
use tagmatch_trace::{
    Census, Cost, DepthCounter, FidelityCounter, IndexedLists, OpResult, Trace, TraceOp,
    WalkCounter, run, write_leftover, write_result,
};

use super::facts::TraceFacts;
use super::nic::{NicReport, SourceReasons};
use super::recording::Recording;
use super::report::ReplayReport;
use super::several::Sum;
use crate::failure::Failure;
use crate::output::{Output, is_dash, to_stdout};
use crate::spec::HwTagsArg;
use crate::{args, files, plot};

/// Runs `tagperf replay`.
pub(crate) fn command(args: &args::Replay) -> Result<(), Failure> {
    let matches = args.matches.as_ref();
    let json = args.json.as_ref();
    let chart = args.plot.as_ref();
    let outputs = [("--matches", matches), ("--json", json), ("--plot", chart)];
    let inputs: Vec<_> = args.traces.iter().map(|path| ("the trace", path.as_path())).collect();
    files::check_distinct(&inputs, &outputs)?;
    if args.traces.len() > 1 {
        return several(args);
    }
    let path = &args.traces[0];
    let trace = read(path)?;
    let mut json = json.map(|path| Output::create("--json", path)).transpose()?;
    let matches = matches.map(|path| Output::create("--matches", path)).transpose()?;
    let mut chart = chart.map(|path| plot::create(path)).transpose()?;
    let report = replay(args, path, &trace, matches)?;
    if let Some(json) = &mut json {
        json.json(&report)?;
    }
    if let Some(chart) = &mut chart {
        chart.print(&report.plot())?;
    }
    for_people(args).print(&report.text())
}

/// Replays several traces, one after the other: each may be large.
fn several(args: &args::Replay) -> Result<(), Failure> {
    for (option, path) in [("--matches", &args.matches), ("--plot", &args.plot)] {
        if path.is_some() {
            let wrong = format!("{option} with {} traces", args.traces.len());
            return Err(Failure::usage(wrong, "one trace"));
        }
    }
    if args.traces.iter().filter(|path| is_dash(path)).count() > 1 {
        return Err(Failure::usage("- twice", "one trace from standard input"));
    }
    let json = args.json.as_ref();
    let mut json = json.map(|path| Output::create("--json", path)).transpose()?;
    let mut people = for_people(args);
    let mut sum = Sum::default();
    people.print(&Sum::header())?;
    for path in &args.traces {
        let trace = read(path)?;
        let report = replay(args, path, &trace, None)?;
        people.print(&sum.add(&report))?;
        if let Some(json) = &mut json {
            json.json(&report)?;
        }
    }
    people.print(&sum.text())
}

/// Replays a trace. With a NIC it is run through workers first. The matches are then those of the
/// workers, and must be those of the lists, through which the trace is run next.
fn replay(
    args: &args::Replay,
    path: &Path,
    trace: &Trace,
    mut matches: Option<Output>,
) -> Result<ReplayReport, Failure> {
    let by_nic = match args.hw_tags {
        HwTagsArg::Off => None,
        HwTagsArg::Auto | HwTagsArg::Emu => {
            let wrong = format!("--hw-tags {}: a replay has no device", args.hw_tags);
            return Err(Failure::usage(wrong, "off or model[:SLOTS]"));
        }
        nic @ HwTagsArg::Model { slots } => {
            let nic = nic.config(args.seed);
            Some((workers::replay(trace, nic, args.seed).map_err(failed)?, slots))
        }
    };
    let mut agreement = by_nic.as_ref().map(|(run, _)| Agreement::new(run));
    let mut counter = DepthCounter::new(trace);
    let mut walks = WalkCounter::new(trace);
    let mut fidelity = FidelityCounter::new(trace);
    let see = |op: &TraceOp, result: Option<OpResult>| {
        counter.see(op, result);
        walks.see(op, result);
        fidelity.see(op, result);
        let result = agreement.as_mut().map_or(result, |agreement| agreement.see(result));
        match (&mut matches, result) {
            (Some(matches), Some(result)) => matches.write(|to| write_result(trace, result, to)),
            _ => Ok(()),
        }
    };
    let pass = run(trace, IndexedLists::default(), u64::MAX, see)?;
    let left = pass.lists.leftover();
    if let Some(mut matches) = matches {
        let left = by_nic.as_ref().map_or(&left, |(run, _)| &run.leftover);
        matches.with(|to| write_leftover(trace, left, to))?;
    }
    if let Some(agreement) = agreement {
        agreement.finish(&left).map_err(failed)?;
    }
    let walks = walks.walks();
    let cost = Cost::measure(trace, &pass, &walks);
    let nic = by_nic.map(|(run, slots)| {
        NicReport::new(slots, args.seed, &run.counters, SourceReasons::new(trace))
    });
    let facts = TraceFacts::new(&Census::new(trace), counter, walks, cost);
    let recording = Recording::new(trace, fidelity.fidelity());
    Ok(ReplayReport::new(name(path), facts, nic, recording))
}

fn failed(error: WorkersError) -> Failure {
    Failure::Measurement(error.to_string())
}

/// Where the report as text goes: standard error if the matches go to standard output, and nowhere
/// if the JSON does.
fn for_people(args: &args::Replay) -> Output {
    if to_stdout(args.matches.as_ref()) {
        Output::stderr()
    } else if to_stdout(args.json.as_ref()) {
        Output::nowhere()
    } else {
        Output::stdout()
    }
}

/// The name of a trace for reports and errors.
fn name(path: &Path) -> String {
    if is_dash(path) { "-".into() } else { one_line(path.display()) }
}

/// Reads a trace.
fn read(path: &Path) -> Result<Trace, Failure> {
    let name = name(path);
    let read = if is_dash(path) {
        Trace::parse(io::stdin().lock())
    } else {
        let file = File::open(path).map_err(|error| {
            let right = "a tagtrace file, or - for standard input";
            Failure::usage(format!("cannot open {name}: {error}"), right)
        })?;
        Trace::parse(BufReader::with_capacity(1 << 18, file))
    };
    read.map_err(|error| match error.line() {
        Some(line) => Failure::Input(format!("{name}:{line}: {error}")),
        None => Failure::Input(format!("{name}: {error}")),
    })
}
