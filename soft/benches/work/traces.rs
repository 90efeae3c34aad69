//! The recorded traces of the repository, and their replay under the clock.

use std::convert::Infallible;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::BufReader;
use std::path::Path;

use tagmatch_trace::{Matcher, Pass, Trace, run};

pub(crate) struct RecordedTrace {
    pub(crate) name: String,
    pub(crate) trace: Trace,
}

/// All recorded traces, by name.
pub(crate) fn load() -> Vec<RecordedTrace> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/traces");
    let mut traces: Vec<RecordedTrace> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|file| file.expect("readable").path())
        .map(|path| {
            let file = BufReader::new(File::open(&path).expect("readable"));
            RecordedTrace {
                name: path.file_stem().expect("a file").to_string_lossy().into_owned(),
                trace: Trace::parse(file).expect("a trace"),
            }
        })
        .collect();
    traces.sort_by(|a, b| a.name.cmp(&b.name));
    traces
}

/// Runs a trace through lists. The clock runs during the matching alone.
pub(crate) fn replay<M: Matcher>(trace: &Trace, lists: M) -> Pass<M> {
    let Ok(pass) = run(trace, lists, u64::MAX, |_, result| {
        black_box(result);
        Ok::<(), Infallible>(())
    });
    pass
}
