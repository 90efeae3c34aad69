//! The report of `TAGMATCH_FI_REPORT`: where the messages of each process were matched, and why a
//! NIC didn't match the others.
//!
//! Each process adds its row when it ends. The file has the rows of all processes of the job that
//! have ended, so it is complete when the job is over. With `-`, the processes of one machine
//! gather their rows, and the last one that lives prints them to standard error (`gathering`).

mod advice;
mod file;
mod gathering;
mod job;
mod row;
mod table;

use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use tagmatch_ofi_provider::PerProcess;
use tagmatch_os::notice;

use gathering::Gathering;
use job::Job;
use row::Row;
use table::Table;

/// How long the end of a process waits until a full pipe has room for the report.
const PATIENCE: Duration = Duration::from_secs(5);

/// How much older than its change the time of a file may be: the kernel's clock for files ticks
/// every ten milliseconds or more often.
const COARSE: Duration = Duration::from_millis(20);

/// See [`started`].
static STARTED: OnceLock<SystemTime> = OnceLock::new();

/// What this process gathers with the others of its machine, or why it can't.
static GATHERING: PerProcess<Option<io::Result<Gathering>>> = PerProcess::new(None);

/// The numbers of this process's endpoints that were closed.
static CLOSED: PerProcess<Option<Row>> = PerProcess::new(None);

/// Adds the numbers of an endpoint that is closed: see [`Row::of`].
pub(crate) fn add(counters: &tagmatch::Counters, posted: u64, unexpected: u64) {
    let row = Row::of(counters, posted, unexpected);
    CLOSED.change(|closed| closed.get_or_insert_default().add(&row));
}

/// Adds this process's row to the report at `path`; `-` means standard error. A process that opened
/// no endpoint has no row; a forked child doesn't write its parent's.
pub(crate) fn write(path: &Path) {
    let gathering = GATHERING.take().flatten();
    if let Some(row) = CLOSED.take().flatten()
        && let Err(error) = write_row(path, row, gathering)
    {
        let numbers = row.0.map(|number| number.to_string()).join(" ");
        let path = path.display();
        notice::tell(&format!(
            "tagmatch: TAGMATCH_FI_REPORT={path}: {error}; this row is missing there: {numbers}"
        ));
    }
}

/// This process has a report at `path`, and opens an endpoint.
pub(crate) fn begin(path: &Path) {
    STARTED.get_or_init(SystemTime::now);
    if is_printed(path) {
        let join = || Gathering::join(&Job::of_environment());
        GATHERING.change(|gathering| {
            gathering.get_or_insert_with(join);
        });
    }
}

fn is_printed(path: &Path) -> bool {
    path == Path::new("-")
}

fn write_row(path: &Path, row: Row, gathering: Option<io::Result<Gathering>>) -> io::Result<()> {
    let job = Job::of_environment();
    let added = |table: Table, size: Option<u64>| {
        let mut table = table;
        table.add(job.process(), row);
        table.render(&job.name, size)
    };
    if !is_printed(path) {
        return file::update(path, |text, changed| {
            let is_older = job.has_ranks() && changed + COARSE < started();
            let table = if is_older { Table::default() } else { Table::parse(text, &job.name) };
            added(table, job.size)
        });
    }
    let gathering = gathering.unwrap_or_else(|| Gathering::join(&job))?;
    let report = gathering.leave(|text| added(Table::parse(text, &job.name), job.local_size))?;
    if let Some(report) = report {
        notice::print(&report, PATIENCE);
    }
    Ok(())
}

/// When this process opened its first endpoint. The processes of a job have all opened theirs
/// before one of them ends, so a report that was changed before that time is of another job.
fn started() -> SystemTime {
    *STARTED.get_or_init(SystemTime::now)
}

#[cfg(test)]
mod oracle;
