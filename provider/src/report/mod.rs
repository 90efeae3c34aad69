//! The report of `TAGMATCH_FI_REPORT`: where the messages of each process were matched, and why a
//! NIC didn't match the others.
//!
//! Each process adds its row when it ends. The file has the rows of all processes of the job that
//! have ended, so it is complete when the job is over. With `-`, the rows of one machine are
//! collected in a file in shared memory, and the last process of the machine prints them to
//! standard error.

mod advice;
mod file;
mod job;
mod row;
mod table;

use std::io;
use std::path::Path;
use std::time::Duration;

use tagmatch_os::notice;

use crate::per_process::PerProcess;
use job::Job;
use row::Row;
use table::Table;

/// How long the end of a process waits until a full pipe has room for the report.
const PATIENCE: Duration = Duration::from_secs(5);

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
    if let Some(row) = CLOSED.take().flatten()
        && let Err(error) = write_row(path, row)
    {
        let numbers = row.0.map(|number| number.to_string()).join(" ");
        let path = path.display();
        notice::tell(&format!(
            "tagmatch: TAGMATCH_FI_REPORT={path}: {error}; this row is missing there: {numbers}"
        ));
    }
}

fn write_row(path: &Path, row: Row) -> io::Result<()> {
    let job = Job::of_environment();
    let own = job.process();
    let add = |text: &str, size: Option<u64>| {
        let mut table = Table::parse(text, &job.name);
        table.add(own.clone(), row);
        let is_last = size.is_none_or(|size| table.rows.len() as u64 >= size);
        (table.render(&job.name, size), is_last)
    };
    if path != Path::new("-") {
        return file::update(path, |text| (add(text, job.size).0, true));
    }
    let mut printed = None;
    file::update_shared(&job.local_name, |text| {
        let (text, is_last) = add(text, job.local_size);
        printed = is_last.then(|| text.clone());
        (text, !is_last)
    })?;
    if let Some(text) = printed {
        notice::print(&text, PATIENCE);
    }
    Ok(())
}
