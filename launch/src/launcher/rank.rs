//! A process of a job, on this machine or on another one.

use std::process::ExitStatus;

use rustix::process::{Pid, Signal};

use super::process::Process;
use super::remote::RemoteProcess;

pub(super) enum Rank {
    Here(Process),
    There(RemoteProcess),
}

impl Rank {
    /// Whether the process has ended, and all its requests have been handled.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Here(process) => process.is_over(),
            Self::There(process) => process.is_over(),
        }
    }

    /// Notes that the connection has ended, and that all requests before have been handled.
    pub(super) fn set_disconnected(&mut self) {
        // A process on another machine is said to have ended only after that.
        if let Self::Here(process) = self {
            process.set_disconnected();
        }
    }

    /// Sends a line of PMI-1.
    pub(super) fn send(&mut self, line: &str) {
        match self {
            Self::Here(process) => process.send(line.as_bytes()),
            Self::There(process) => process.send(line),
        }
    }

    /// Signals the process group.
    pub(super) fn signal(&self, signal: Signal) {
        match self {
            Self::Here(process) => process.signal(signal),
            Self::There(process) => process.signal(signal),
        }
    }

    /// Returns the exit status once, when the process is over.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        match self {
            Self::Here(process) => process.ended(),
            Self::There(process) => process.ended(),
        }
    }

    /// The number of the process, if it is on this machine.
    pub(super) fn pid(&self) -> Option<Pid> {
        match self {
            Self::Here(process) => Some(process.pid()),
            Self::There(_) => None,
        }
    }

    /// The process, if it is on this other machine.
    pub(super) fn on_host(&mut self, host: usize) -> Option<&mut RemoteProcess> {
        match self {
            Self::There(process) if process.host == host => Some(process),
            _ => None,
        }
    }
}
