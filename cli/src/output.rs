//! Outputs: standard output, standard error, or a file that the user named.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use tagmatch_os::process;
use tagmatch_results::show::one_line;

use crate::failure::Failure;

/// One output. An error in writing is a [`Failure`]; a reader that has gone (`| head`) is not
/// reported.
pub(crate) struct Output {
    name: String,
    to: Box<dyn Write>,
    /// Whether the rest goes on when the reader has gone.
    is_optional: bool,
    is_stdout: bool,
}

/// A file whose old contents stay until something new is written.
struct TruncateOnWrite {
    file: File,
    is_begun: bool,
    written: u64,
}

impl Write for TruncateOnWrite {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_begun {
            self.is_begun = true;
            // A device or a pipe can't be truncated.
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
        }
        let end = self.written + bytes.len() as u64;
        process::check_file_size(end)?;
        let count = self.file.write(bytes)?;
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Output {
    fn new(name: impl Into<String>, to: impl Write + 'static, is_stdout: bool) -> Self {
        Self { name: name.into(), to: Box::new(to), is_optional: false, is_stdout }
    }

    pub(crate) fn stdout() -> Self {
        // Line by line, since people watch a table while it is measured.
        Self::new("standard output", io::stdout(), true)
    }

    pub(crate) fn stderr() -> Self {
        Self::new("standard error", io::stderr(), false)
    }

    /// An output that discards everything.
    pub(crate) fn nowhere() -> Self {
        Self::new("nowhere", io::sink(), false)
    }

    /// Goes on without a reader: for when something else is to be written too.
    pub(crate) fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }

    /// Whether the reader has gone, so that the next write would fail. Costs a system call.
    pub(crate) fn has_no_reader(&self) -> bool {
        self.is_stdout && !self.is_optional && stdout_has_no_reader()
    }

    /// Creates the file at `path`, or takes standard output for `-`.
    pub(crate) fn create(option: &str, path: &Path) -> Result<Self, Failure> {
        if is_dash(path) {
            let to = BufWriter::with_capacity(1 << 16, io::stdout());
            return Ok(Self::new("standard output", to, true));
        }
        let name = one_line(path.display());
        let file = File::options().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| {
            let why = format!("{option}: cannot create {name}: {error}");
            Failure::usage(why, "a file that can be written")
        })?;
        let to = BufWriter::with_capacity(
            1 << 16,
            TruncateOnWrite { file, is_begun: false, written: 0 },
        );
        Ok(Self::new(name, to, false))
    }

    /// Writes `text` at once.
    pub(crate) fn print(&mut self, text: &str) -> Result<(), Failure> {
        self.with(|to| to.write_all(text.as_bytes()))
    }

    /// Writes one compact line of JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        self.with(|to| {
            serde_json::to_writer(&mut *to, value)?;
            to.write_all(b"\n")
        })
    }

    /// Calls `write`, then flushes.
    pub(crate) fn with(
        &mut self,
        write: impl FnOnce(&mut Box<dyn Write>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        self.write(write)?;
        self.write(|to| to.flush())
    }

    /// Calls `write`; the bytes may stay in a buffer until a later [`with`](Self::with).
    pub(crate) fn write(
        &mut self,
        write: impl FnOnce(&mut Box<dyn Write>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        match write(&mut self.to) {
            Err(error) if self.is_optional && error.kind() == io::ErrorKind::BrokenPipe => {
                self.to = Box::new(io::sink());
                Ok(())
            }
            written => written.map_err(|error| Failure::write(&self.name, &error)),
        }
    }
}

/// The kernel reports this for the writing end of a pipe.
fn stdout_has_no_reader() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default())).is_ok()
        && polled[0].revents().contains(PollFlags::ERR)
}

/// Whether a path stands for standard input or output.
pub(crate) fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Whether an option names standard output.
pub(crate) fn to_stdout(option: Option<&PathBuf>) -> bool {
    option.is_some_and(|path| is_dash(path))
}
