//! `--json-stream`: a line of JSON when a test begins, for every result, once a second in between,
//! and when the test is over. `record` says which.

use std::time::Duration;

use serde::Serialize;

use crate::result::{Document, Matching, Row, SCHEMA};

/// The time between two lines of progress.
pub(crate) const PROGRESS: Duration = Duration::from_secs(1);

/// The first fields of every line.
#[derive(Serialize)]
struct RecordHead {
    schema: u32,
    tool: &'static str,
    version: &'static str,
    record: &'static str,
}

impl RecordHead {
    fn new(record: &'static str) -> Self {
        Self { schema: SCHEMA, tool: "tagperf", version: env!("CARGO_PKG_VERSION"), record }
    }
}

#[derive(Serialize)]
struct StartRecord<'a, C> {
    #[serde(flatten)]
    head: RecordHead,
    test: &'static str,
    device: &'a str,
    config: &'a C,
}

#[derive(Serialize)]
struct ResultRecord<'a> {
    #[serde(flatten)]
    head: RecordHead,
    test: &'static str,
    device: &'a str,
    #[serde(flatten)]
    row: &'a Row,
    #[serde(skip_serializing_if = "Option::is_none")]
    matching: Option<&'a Matching>,
    validated: bool,
}

#[derive(Serialize)]
struct ProgressRecord<'a> {
    #[serde(flatten)]
    head: RecordHead,
    test: &'a str,
    what: &'a str,
    /// The row's number; the first is 1.
    step: usize,
    steps: usize,
    elapsed_ms: u64,
}

#[derive(Serialize)]
struct EndRecord<'a> {
    #[serde(flatten)]
    head: RecordHead,
    test: &'static str,
    results: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    matching: Option<&'a Matching>,
    validated: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    interrupted: bool,
}

pub(super) fn start<C: Serialize>(document: &Document<C>) -> impl Serialize + '_ {
    let (test, device) = (document.test(), document.device());
    StartRecord { head: RecordHead::new("start"), test, device, config: document.config() }
}

pub(super) fn result<'a>(
    document: &'a Document<impl Serialize>,
    row: &'a Row,
    matching: &'a Matching,
) -> impl Serialize + 'a {
    ResultRecord {
        head: RecordHead::new("result"),
        test: document.test(),
        device: document.device(),
        row,
        matching: document.matching().map(|_| matching),
        validated: document.validated(),
    }
}

/// A line of progress. `what` begins with the test's name.
pub(crate) fn progress(what: &str, step: usize, steps: usize, elapsed: Duration) -> String {
    let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    let test = what.split(' ').next().unwrap_or_default();
    let line =
        ProgressRecord { head: RecordHead::new("progress"), test, what, step, steps, elapsed_ms };
    serde_json::to_string(&line).map_or_else(|_| String::new(), |line| line + "\n")
}

pub(super) fn end(document: &Document<impl Serialize>) -> impl Serialize + '_ {
    EndRecord {
        head: RecordHead::new("end"),
        test: document.test(),
        results: document.results(),
        matching: document.matching(),
        validated: document.validated(),
        interrupted: document.interrupted(),
    }
}
