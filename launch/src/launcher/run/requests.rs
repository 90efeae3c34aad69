//! What processes ask for by PMI-1.

use rustix::process::Signal;

use super::Run;
use crate::launcher::failure::{Failure, Member};
use crate::server::{self, Action, Violation};
use crate::spawn::SIZE_MAX;
use crate::spawn::request::{PmiRequest, SpawnRequest};
use crate::wire::WireError;

/// The most jobs that run at the same time.
const JOBS_MAX: usize = 1024;

impl<F: FnMut(Member, &Failure)> Run<F> {
    pub(super) fn handle_text(&mut self, member: Member, text: &[u8]) {
        match PmiRequest::read(&mut &*text) {
            Ok(request) => self.handle_request(member, request),
            Err(error) => {
                // The end of the connection is not the end of the process: that comes with SIGCHLD.
                if !matches!(error, WireError::Closed | WireError::Broken(_)) {
                    self.handle_violation(member, error.to_string());
                }
                if let Some(job) = self.jobs.get_mut(&member.job) {
                    job.processes[member.rank as usize].set_disconnected();
                }
                self.reap();
            }
        }
    }

    pub(super) fn handle_request(&mut self, member: Member, request: PmiRequest) {
        // The job may be unknown: some of its processes sent requests, another one couldn't be
        // started, and the job was killed.
        let Some(job) = self.jobs.get_mut(&member.job) else { return };
        let action: Result<_, Violation> = match request {
            PmiRequest::Line(line) => job.server.handle_line(member.rank, &line),
            PmiRequest::Spawn(request) => job.server.handle_spawn(member.rank, request),
        };
        match action {
            Ok(Action::Reply(replies)) => job.send(member.job, replies),
            Ok(Action::Spawn(request)) => self.spawn(member, request),
            Ok(Action::Abort(status)) => {
                self.fail(member, Failure::Aborted(status));
                self.end();
            }
            Err(violation) => self.handle_violation(member, violation.to_string()),
        }
    }

    /// Starts the job that a process asks for, and answers when it runs.
    pub(super) fn spawn(&mut self, asker: Member, request: SpawnRequest) {
        match self.try_spawn(asker, request) {
            Err(refusal) => self.answer_spawn(asker, Some(&refusal)),
            Ok(()) if self.hosts.is_empty() => self.answer_spawn(asker, None),
            // The other machines answer first.
            Ok(()) => {}
        }
    }

    pub(super) fn answer_spawn(&mut self, asker: Member, refusal: Option<&str>) {
        let reply = server::spawn_result(asker.rank, refusal);
        if let Some(job) = self.jobs.get_mut(&asker.job) {
            job.send(asker.job, vec![reply]);
        }
    }

    fn try_spawn(&mut self, asker: Member, request: SpawnRequest) -> Result<(), String> {
        if self.kill_at.is_some() {
            return Err("the jobs are being ended".to_owned());
        }
        let processes = self.jobs.values().map(|job| job.processes.len()).sum();
        if let Some(why) = refusal(self.jobs.len(), processes, request.spawn.size) {
            return Err(why.to_owned());
        }
        let started = self.start(&request.spawn, request.values, Some(asker));
        started.map_err(|error| error.to_string())
    }

    pub(super) fn handle_violation(&mut self, member: Member, why: String) {
        let Some(job) = self.jobs.get(&member.job) else { return };
        let process = &job.processes[member.rank as usize];
        if !process.is_over() {
            process.signal(Signal::KILL);
            self.fail(member, Failure::Violation(why));
        }
    }
}

/// Why a job of `asked` processes can't be started while `jobs` jobs with `processes` processes
/// run; `None` if it can.
fn refusal(jobs: usize, processes: usize, asked: u32) -> Option<&'static str> {
    if jobs >= JOBS_MAX {
        return Some("too many jobs run");
    }
    (processes + asked as usize > SIZE_MAX as usize).then_some("too many processes run")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_processes_are_bounded() {
        let max = SIZE_MAX as usize;
        assert_eq!(refusal(JOBS_MAX - 1, max - 2, 2), None);
        assert_eq!(refusal(1, max - 2, 3), Some("too many processes run"));
        assert_eq!(refusal(1, max, u32::MAX), Some("too many processes run"));
        assert_eq!(refusal(JOBS_MAX, 1, 1), Some("too many jobs run"));
    }
}
