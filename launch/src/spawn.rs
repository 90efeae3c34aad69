//! Processes that a running job starts: what is asked for, and how PMI-1 writes it.
//!
//! PMI-1 has one command of several lines, from `mcmd=spawn` to `endcmd`. Each is `key=value`, and the value goes on
//! to the end of its line: it may have spaces and any character but those that end it.

pub mod order;

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;

use crate::pmi1::SIZE_MAX;

/// Bytes of the word that [`Job::spawn`](crate::Job::spawn) gives to each process.
pub const WORD_BYTES_MAX: usize = 512;
/// Words of a command. MPICH's mpiexec dies of 1000 lines.
pub const COMMAND_WORDS_MAX: usize = 900;
/// Bytes of all lines that ask for it in PMI-1. MPICH's mpiexec dies of 64 KiB.
pub const BYTES_MAX: usize = 32 << 10;

/// The key under which a spawned process's word stands. It isn't MPICH's `PARENT_ROOT_PORT_NAME`: MPICH's `MPI_Init`
/// would connect to what it finds there, and what MPICH has put there is no word of ours.
pub(crate) const PARENT: &str = "TAGMATCH_PARENT";
const END: &str = "endcmd";

/// A job that is to be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spawn {
    /// The command and its arguments: 1 to [`COMMAND_WORDS_MAX`] words. One without `/` is looked for in `PATH`.
    pub command: Vec<OsString>,
    /// How many processes: 1 to [`SIZE_MAX`].
    pub size: u32,
}

/// Why processes can't be asked for.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// No launcher has started this process.
    #[error(
        "there is no launcher to start processes: `mpiexec`, `mpirun` or `tagperf run` would be"
    )]
    NoLauncher,
    /// There is nothing to start, or too much of it.
    #[error(
        "{size} processes of a command of {words} words: 1 to {SIZE_MAX} of 1 to {COMMAND_WORDS_MAX} would be right"
    )]
    Nothing {
        /// How many processes.
        size: u32,
        /// Words of the command.
        words: usize,
    },
    /// The word for the processes isn't one.
    #[error(
        "`{word}` is no word for spawned processes: 1 to {WORD_BYTES_MAX} printable ASCII characters without spaces are"
    )]
    Word {
        /// Its beginning.
        word: String,
    },
    /// A word of the command can't be handed to the launcher.
    #[error("`{argument}` of a command can't be handed to the launcher: {why}")]
    Argument {
        /// Its beginning.
        argument: String,
        /// Why not.
        why: &'static str,
    },
    /// The command is too long.
    #[error("a command of {length} bytes is more than a launcher takes: {BYTES_MAX}")]
    TooLong {
        /// Its bytes, those of PMI-1's lines included.
        length: usize,
    },
}

impl Spawn {
    /// Whether there is something to start.
    pub(crate) fn check(&self) -> Result<(), SpawnError> {
        let (size, words) = (self.size, self.command.len());
        let is_right = (1..=SIZE_MAX).contains(&size) && (1..=COMMAND_WORDS_MAX).contains(&words);
        if !is_right {
            return Err(SpawnError::Nothing { size, words });
        }
        if self.command[0].is_empty() {
            let why = "a command has a name";
            return Err(SpawnError::Argument { argument: String::new(), why });
        }
        Ok(())
    }

    /// The lines of PMI-1 that ask for it.
    pub(crate) fn to_lines(&self, word: &str) -> Result<String, SpawnError> {
        self.check()?;
        let values: Result<Vec<_>, _> = self.command.iter().map(|word| value(word)).collect();
        let values = values?;
        let mut lines = format!("mcmd=spawn\nnprocs={}\nexecname={}\n", self.size, values[0]);
        lines.push_str("totspawns=1\nspawnssofar=1\n");
        for (number, value) in values.iter().enumerate().skip(1) {
            // Writing to a string doesn't fail.
            let _ = writeln!(lines, "arg{number}={value}");
        }
        let _ = writeln!(lines, "argcnt={}\npreput_num=1", values.len() - 1);
        let _ = writeln!(lines, "preput_key_0={PARENT}\npreput_val_0={word}\ninfo_num=0\n{END}");
        let length = lines.len();
        if length > BYTES_MAX { Err(SpawnError::TooLong { length }) } else { Ok(lines) }
    }
}

/// A word for spawned processes, wherever it comes from.
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
    // MPICH's mpiexec takes it for the end of the command, wherever in a line it stands.
    if text.ends_with(END) {
        return Err(no("it ends as PMI-1's command does"));
    }
    Ok(text)
}

/// As much of a text as fits a line of a report.
fn beginning(text: &str) -> String {
    text.escape_debug().take(60).collect()
}
