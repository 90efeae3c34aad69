//! `--json-stream`: a line of JSON when a test begins, for every result, once a second in between,
//! and when the test is over. `record` says which.

use std::time::Duration;

use serde::Serialize;

use crate::{Config, Document, Header, Matching, NicCounted, Row};

/// The time between two lines of progress.
pub const PROGRESS: Duration = Duration::from_secs(1);

/// A line, with the fields that every line has first.
#[derive(Serialize)]
struct Record<T> {
    #[serde(flatten)]
    header: Header,
    #[serde(flatten)]
    content: T,
}

impl<T> Record<T> {
    fn new(record: &'static str, test: &str, content: T) -> Self {
        let header = Header { record: Some(record.into()), ..Header::new(test.to_owned()) };
        Self { header, content }
    }
}

#[derive(Serialize)]
struct Start<'a> {
    device: &'a str,
    config: &'a Config,
}

#[derive(Serialize)]
struct OneResult<'a> {
    device: &'a str,
    #[serde(flatten)]
    row: &'a Row,
    matching: &'a Matching,
    validated: bool,
}

#[derive(Serialize)]
struct RowProgress<'a> {
    what: &'a str,
    /// The row's number; the first is 1.
    step: usize,
    steps: usize,
    elapsed_ms: u64,
}

#[derive(Serialize)]
struct End<'a> {
    results: usize,
    matching: &'a Matching,
    #[serde(skip_serializing_if = "Option::is_none")]
    nic_matches: Option<&'a NicCounted>,
    validated: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    interrupted: bool,
}

/// The line of a test that begins.
pub fn start(document: &Document) -> impl Serialize + '_ {
    let content = Start { device: &document.device, config: &document.config };
    Record::new("start", document.test(), content)
}

/// The line of a result.
pub fn result<'a>(
    document: &'a Document,
    row: &'a Row,
    matching: &'a Matching,
) -> impl Serialize + 'a {
    let device = &*document.device;
    let validated = document.validated;
    Record::new("result", document.test(), OneResult { device, row, matching, validated })
}

/// A line of progress. `what` begins with the test's name.
pub fn progress(what: &str, step: usize, steps: usize, elapsed: Duration) -> String {
    let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    let test = what.split(' ').next().unwrap_or_default();
    let line = Record::new("progress", test, RowProgress { what, step, steps, elapsed_ms });
    serde_json::to_string(&line).map_or_else(|_| String::new(), |line| line + "\n")
}

/// The line of a test that is over.
pub fn end(document: &Document) -> impl Serialize + '_ {
    let &Document { ref matching, validated, interrupted, .. } = document;
    let results = document.results.len();
    let nic_matches = document.nic_matches.as_ref();
    let end = End { results, matching, nic_matches, validated, interrupted };
    Record::new("end", document.test(), end)
}
