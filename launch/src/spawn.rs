//! Jobs that a running job starts: what is started, and how PMI-1 asks for it.
//!
//! The spawn request is the one command of PMI-1 that has several lines, from `mcmd=spawn` to
//! `endcmd`. Each line is `key=value`. A value extends to the end of its line: it may have spaces,
//! and any other character except a newline and a zero byte.

pub mod request;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;

/// The most processes of a job; higher ranks are refused.
pub const SIZE_MAX: u32 = 1 << 24;
/// The longest string, in bytes, that [`Job::spawn`](crate::Job::spawn) passes to the processes
/// that it starts.
pub const WORD_BYTES_MAX: usize = 512;
/// The most words of a command, its name included. MPICH's mpiexec crashes at 1000 lines.
pub const COMMAND_WORDS_MAX: usize = 900;
/// The longest spawn request of PMI-1, in bytes. MPICH's mpiexec crashes at 64 KiB.
pub const BYTES_MAX: usize = 32 << 10;

/// The key of the string that a parent passes to a spawned process. It isn't MPICH's
/// `PARENT_ROOT_PORT_NAME`: MPICH's `MPI_Init` would connect to the value of that key, and a value
/// that MPICH has put there would be taken for ours.
pub(crate) const PARENT_KEY: &str = "TAGMATCH_PARENT";
/// The key of the secret that a parent passes to a spawned process by PMI-1.
pub(crate) const PARENT_SECRET_KEY: &str = "TAGMATCH_PARENT_SECRET";
/// The last line of a spawn request.
const END: &str = "endcmd";

/// A job to start. The default has no command and no process, which is an error.
///
/// Fields may be added: begin with [`Spawn::new`].
#[derive(Clone, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Spawn {
    /// The command and its arguments: 1 to [`COMMAND_WORDS_MAX`] words. A command without `/` is
    /// searched in `PATH`.
    pub command: Vec<OsString>,
    /// The number of processes: 1 to [`SIZE_MAX`].
    pub size: u32,
}

/// Why a job can't be spawned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// This process was not started by a launcher.
    #[error(
        "no launcher has started this process; start it by `mpiexec`, `mpirun` or `tagperf run`"
    )]
    NoLauncher,
    /// The size or the length of the command is out of range.
    #[error(
        "can't spawn {size} processes of a command of {words} words: there may be 1 to {SIZE_MAX} processes and 1 to {COMMAND_WORDS_MAX} words"
    )]
    OutOfRange {
        /// The number of processes.
        size: u32,
        /// The number of words of the command.
        words: usize,
    },
    /// The string for the spawned processes is invalid.
    #[error(
        "`{word}` can't be passed to spawned processes: it must be 1 to {WORD_BYTES_MAX} printable ASCII characters without spaces"
    )]
    Word {
        /// The beginning of the string.
        word: String,
    },
    /// A word of the command can't be passed to the launcher.
    #[error("`{argument}` in a command can't be passed to the launcher: {why}")]
    Argument {
        /// The beginning of the word.
        argument: String,
        /// The reason.
        why: &'static str,
    },
    /// `srun` would start the job on processors that no other step has, and answer only then.
    #[error(
        "`srun` would wait for processors that no step has, and this step has those of its nodes; \
         `SLURM_OVERLAP=1 srun --mpi=pmi2` lets steps share them"
    )]
    NoOverlap,
    /// `srun` would refuse so many processes, and not answer.
    #[error(
        "`srun` would not start {size} processes on {processors} processors; \
         `SLURM_OVERLAP=1 SLURM_OVERCOMMIT=1 srun --mpi=pmi2` lets processes share them"
    )]
    FewProcessors {
        /// The number of processes.
        size: u32,
        /// The number of processors of the allocation.
        processors: u64,
    },
    /// The command is too long.
    #[error("the spawn request has {length} bytes; launchers take {BYTES_MAX}")]
    TooLong {
        /// The length of the PMI-1 request, in bytes.
        length: usize,
    },
}

impl Spawn {
    /// `size` processes of a command.
    pub fn new(command: Vec<OsString>, size: u32) -> Self {
        Spawn { command, size }
    }

    /// Checks the size and the length of the command.
    pub(crate) fn check(&self) -> Result<(), SpawnError> {
        let size = self.size;
        let words = self.command.len();
        if !(1..=SIZE_MAX).contains(&size) || !(1..=COMMAND_WORDS_MAX).contains(&words) {
            return Err(SpawnError::OutOfRange { size, words });
        }
        if self.command[0].is_empty() {
            let why = "the name of a command is not empty";
            return Err(SpawnError::Argument { argument: String::new(), why });
        }
        Ok(())
    }

    /// The PMI-1 request for this job. Its processes get `word`, and `secret` if there is one.
    pub(crate) fn to_lines(&self, word: &str, secret: Option<&str>) -> Result<String, SpawnError> {
        self.check()?;
        let values: Result<Vec<_>, _> = self.command.iter().map(|word| value(word)).collect();
        let values = values?;
        let mut lines = format!("mcmd=spawn\nnprocs={}\nexecname={}\n", self.size, values[0]);
        lines.push_str("totspawns=1\nspawnssofar=1\n");
        for (number, value) in values.iter().enumerate().skip(1) {
            // Writing to a string doesn't fail.
            let _ = writeln!(lines, "arg{number}={value}");
        }
        let passed = [(PARENT_KEY, Some(word)), (PARENT_SECRET_KEY, secret)];
        let passed = passed.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let count = passed.clone().count();
        let _ = writeln!(lines, "argcnt={}\npreput_num={count}", values.len() - 1);
        for (number, (key, value)) in passed.enumerate() {
            let _ = writeln!(lines, "preput_key_{number}={key}\npreput_val_{number}={value}");
        }
        let _ = writeln!(lines, "info_num=0\n{END}");
        let length = lines.len();
        if length > BYTES_MAX { Err(SpawnError::TooLong { length }) } else { Ok(lines) }
    }
}

/// Checks the string for spawned processes: the one that a parent passes, and the one that a
/// process receives.
pub(crate) fn check_word(word: &str) -> Result<(), SpawnError> {
    let is_right = (1..=WORD_BYTES_MAX).contains(&word.len())
        && word.bytes().all(|byte| byte.is_ascii_graphic())
        && !word.ends_with(END);
    if is_right { Ok(()) } else { Err(SpawnError::Word { word: beginning(word) }) }
}

/// A word of a command as the value of a line.
fn value(word: &OsStr) -> Result<&str, SpawnError> {
    let no = |why| SpawnError::Argument { argument: beginning(&word.to_string_lossy()), why };
    let text = word.to_str().ok_or_else(|| no("it is not UTF-8"))?;
    if text.contains(['\n', '\0']) {
        return Err(no("it has a newline or a zero byte"));
    }
    // MPICH's mpiexec takes a line that ends so for the end of the request.
    if text.ends_with(END) {
        return Err(no("it ends in `endcmd`, as a spawn request of PMI-1 does"));
    }
    Ok(text)
}

/// The first 60 characters of a text, for an error message.
fn beginning(text: &str) -> String {
    text.escape_debug().take(60).collect()
}
