//! Where output goes: standard output, standard error, or a file that a user named.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::failure::{Failure, one_line};

/// One place to write to. What can't be written there is a [`Failure`], except that a reader who
/// has seen enough (`| head`) is none.
pub(crate) struct Output {
    name: String,
    to: Box<dyn Write>,
}

impl Output {
    pub(crate) fn stdout() -> Self {
        // Whole lines as they come: a table's rows are watched while it is measured.
        Self { name: "standard output".into(), to: Box::new(io::stdout()) }
    }

    pub(crate) fn stderr() -> Self {
        Self { name: "standard error".into(), to: Box::new(io::stderr()) }
    }

    /// Takes everything and writes nothing.
    pub(crate) fn nowhere() -> Self {
        Self { name: "nowhere".into(), to: Box::new(io::sink()) }
    }

    /// Makes the file at `path`, or takes standard output for `-`.
    pub(crate) fn create(option: &str, path: &Path) -> Result<Self, Failure> {
        if is_dash(path) {
            let to = Box::new(BufWriter::with_capacity(1 << 16, io::stdout()));
            return Ok(Self { name: "standard output".into(), to });
        }
        let name = one_line(path.display());
        let file = File::create(path).map_err(|error| {
            let right = "a file that can be written, or - for standard output, would be right";
            Failure::Usage(format!("{option}: cannot create {name}: {error}; {right}"))
        })?;
        Ok(Self { name, to: Box::new(BufWriter::with_capacity(1 << 16, file)) })
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

    /// Lets `write` write, then flushes.
    pub(crate) fn with(
        &mut self,
        write: impl FnOnce(&mut Box<dyn Write>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        self.write(write)?;
        self.write(|to| to.flush())
    }

    /// Lets `write` write; what it wrote may wait for a later [`with`](Self::with).
    pub(crate) fn write(
        &mut self,
        write: impl FnOnce(&mut Box<dyn Write>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        write(&mut self.to).map_err(|error| Failure::write(&self.name, &error))
    }
}

/// Whether a path stands for standard input or output.
pub(crate) fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Whether an option names standard output.
pub(crate) fn to_stdout(option: Option<&PathBuf>) -> bool {
    option.is_some_and(|path| is_dash(path))
}
