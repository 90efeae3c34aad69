//! What to launch, and why a launch can fail.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use tagmatch_secret::{SECRET_FILE, SecretError};

use super::hosts::HostsError;
use crate::spawn::SIZE_MAX;

/// A job to launch. The default has no command and no process, which is an error.
///
/// Fields may be added: begin with [`Launch::new`].
#[derive(Clone, Default, Debug)]
#[non_exhaustive]
pub struct Launch {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// The number of processes.
    pub size: u32,
    /// Whether each line of the processes' output begins with the [`Member`](super::Member) in
    /// brackets. Otherwise the processes write to the launcher's output directly.
    pub label: bool,
    /// Whether the other processes go on when a process fails.
    pub keep_going: bool,
}

impl Launch {
    /// `size` processes of a command.
    pub fn new(command: Vec<OsString>, size: u32) -> Self {
        Launch { command, size, ..Launch::default() }
    }

    /// Sets [`label`](#structfield.label).
    #[must_use]
    pub fn label(mut self, label: bool) -> Self {
        self.label = label;
        self
    }

    /// Sets [`keep_going`](#structfield.keep_going).
    #[must_use]
    pub fn keep_going(mut self, keep_going: bool) -> Self {
        self.keep_going = keep_going;
        self
    }
}

/// Why a job can't be started, or was ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The size is out of range, or the command is empty.
    #[error(
        "can't launch {size} processes of a command of {words} words: there may be 1 to {SIZE_MAX} processes, of at least one word"
    )]
    OutOfRange {
        /// The number of processes.
        size: u32,
        /// The number of words of the command.
        words: usize,
    },
    /// The command can't be started.
    #[error("cannot start {command}: {error}")]
    Start {
        /// The name of the command.
        command: String,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The directory of the launcher doesn't exist on another machine.
    #[error("there is no directory {0:?}, in which the launcher runs")]
    Directory(PathBuf),
    /// The directory of the launcher, in which ranks on other machines run, has no name: it was
    /// deleted, or a part of its path can't be searched.
    #[error(
        "the directory that the launcher runs in can't be named, so no rank can run there: {0}"
    )]
    OwnDirectory(#[source] io::Error),
    /// The machines can't be used.
    #[error(transparent)]
    Hosts(#[from] HostsError),
    /// The processes of a machine can't be started.
    #[error("{host}: {why}")]
    Host {
        /// The name of the machine.
        host: String,
        /// The reason.
        why: String,
    },
    /// The environment gives a secret that can't be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The secret has a zero byte, so no environment variable can have it.
    #[error("the secret in the file that {SECRET_FILE} names has a zero byte; text is right")]
    SecretWithZero,
    /// The launcher's standard output can't be written; if its reader has gone, the error is
    /// [`BrokenPipe`](io::ErrorKind::BrokenPipe). The processes were ended.
    #[error("cannot write standard output: {0}")]
    Output(#[source] io::Error),
    /// A system call of the launcher has failed, for instance because a resource has run out.
    #[error("cannot launch: {0}")]
    System(#[from] io::Error),
}
