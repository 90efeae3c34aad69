//! The numbers by which one process knows others. The network numbers processes through all jobs.

use std::ops::Range;

use tagmatch_comm::net::{Envelope, FOREIGN_MAX, NetError, NetFailed, Pattern, ProcessId};

/// One process's numbers of the processes that it knows, and their numbers through all jobs.
#[derive(Debug)]
pub(crate) struct JobNumbers {
    /// This process's number through all jobs.
    pub(crate) own: ProcessId,
    /// The numbers through all jobs of the processes of its job.
    pub(crate) job: Range<u32>,
    /// Known processes of other jobs, by number through all jobs; the first one is known as the
    /// number after the job's.
    foreign: Vec<ProcessId>,
}

impl JobNumbers {
    pub(crate) fn new(own: u32, job: Range<u32>) -> Self {
        JobNumbers { own: ProcessId(own), job, foreign: Vec::new() }
    }

    /// Number of processes of the job.
    pub(crate) fn size(&self) -> u32 {
        self.job.end - self.job.start
    }

    /// The number through all jobs of a process that this one knows.
    pub(crate) fn in_world(&self, process: ProcessId) -> Result<ProcessId, NetError> {
        let found = match process.0.checked_sub(self.size()) {
            None => Some(ProcessId(self.job.start + process.0)),
            Some(at) => self.foreign.get(at as usize).copied(),
        };
        found.ok_or_else(|| NetError::Other(format!("there is no process {}", process.0)))
    }

    /// This process's number of a process that is numbered through all jobs; `None` if it doesn't
    /// know that process.
    pub(crate) fn here(&self, process: ProcessId) -> Option<ProcessId> {
        if self.job.contains(&process.0) {
            return Some(ProcessId(process.0 - self.job.start));
        }
        let at = self.foreign.iter().position(|known| *known == process)?;
        u32::try_from(at).ok().map(|at| ProcessId(self.size() + at))
    }

    /// As [`here`](Self::here), with a new number for a process that this one didn't know, unless
    /// it knows too many.
    pub(crate) fn admit(&mut self, process: ProcessId) -> Option<ProcessId> {
        self.here(process).or_else(|| {
            let at = u32::try_from(self.foreign.len()).ok().filter(|at| *at < FOREIGN_MAX)?;
            self.foreign.push(process);
            Some(ProcessId(self.size() + at))
        })
    }

    pub(crate) fn pattern(&self, pattern: Pattern) -> Result<Pattern, NetError> {
        let from = pattern.from.map(|from| self.in_world(from)).transpose()?;
        Ok(Pattern { from, ..pattern })
    }

    pub(crate) fn envelope(&mut self, envelope: Envelope) -> Envelope {
        Envelope { from: envelope.from.and_then(|from| self.admit(from)), ..envelope }
    }

    pub(crate) fn failed(&mut self, NetFailed { error, buffer }: NetFailed) -> NetFailed {
        let error = match error {
            NetError::Down(process) => NetError::Down(self.here(process).unwrap_or(process)),
            NetError::Forged(process) => NetError::Forged(self.here(process).unwrap_or(process)),
            other => other,
        };
        NetFailed { error, buffer }
    }
}
