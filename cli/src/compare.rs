//! `tagperf compare`: two saved runs side by side, and whether the later is slower.

use std::fs::File;
use std::path::Path;

use tagmatch_results::show::one_line;
use tagmatch_results::{Comparison, SavedRun};

use crate::args::report as args;
use crate::failure::Failure;
use crate::output::{Output, is_dash, to_stdout};
use crate::{files, style};

/// The command.
pub(crate) fn command(args: &args::Compare) -> Result<(), Failure> {
    if is_dash(&args.old) && is_dash(&args.new) {
        let wrong = "both OLD and NEW are standard input";
        return Err(Failure::usage(wrong, "a file for one of them"));
    }
    let inputs = [("OLD", &*args.old), ("NEW", &*args.new)];
    files::check_distinct(&inputs, &[("--json", args.json.as_ref())])?;
    let old = saved_run("OLD", &args.old)?;
    let new = saved_run("NEW", &args.new)?;
    let names = [&args.old, &args.new].map(|path| one_line(path.display()));
    let comparison =
        Comparison::new(names, &old, &new, args.fail_if_slower).map_err(Failure::Usage)?;
    // The exit status matters even if the table has lost its reader.
    let mut people = Output::stdout().optional();
    if let Some(path) = &args.json {
        let mut json = Output::create("--json", path)?.optional();
        json.json(&comparison)?;
        if to_stdout(args.json.as_ref()) {
            people = Output::nowhere();
        }
    }
    people.print(&comparison.text(style::stdout()))?;
    comparison.judge().map_err(Failure::Measurement)
}

/// Reads the file that `option` (or an argument) names.
pub(crate) fn saved_run(option: &str, path: &Path) -> Result<SavedRun, Failure> {
    let read = if is_dash(path) {
        SavedRun::read(std::io::stdin().lock())
    } else {
        File::open(path).map_err(|error| error.to_string()).and_then(SavedRun::read)
    };
    read.map_err(|why| {
        let wrong = format!("{option}: {}: {why}", one_line(path.display()));
        Failure::usage(wrong, "a file that --json or --json-stream wrote")
    })
}
