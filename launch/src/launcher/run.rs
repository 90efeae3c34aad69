//! All jobs of a run: the one that was launched, and those that processes have asked for.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use super::event::{LauncherEvent, next};
use super::failure::{Failure, Member};
use super::job::RunningJob;
use super::launch::{Launch, LaunchError};
use super::output::Outputs;
use super::part::{Environment, Part};
use crate::server::{self, Action, Violation};
use crate::spawn::request::{PmiRequest, SpawnRequest};
use crate::spawn::{SIZE_MAX, Spawn};
use crate::wire::WireError;

/// The time between SIGTERM and SIGKILL.
const GRACE_TIME: Duration = Duration::from_secs(1);
/// One ^C may arrive twice: timeout(1) sends it to the process and to its group. Only an interrupt
/// after this time counts as a second one.
const SAME_TIME: Duration = Duration::from_millis(500);
/// How long to wait, after the last process has ended, for outputs that a process outside of the
/// jobs' process groups holds open.
const OUTPUT_TIME: Duration = Duration::from_secs(1);
/// The most jobs that run at the same time.
const JOBS_MAX: usize = 1024;

pub(super) struct Run<F> {
    /// The jobs that still have processes, by number.
    jobs: BTreeMap<u32, RunningJob>,
    /// The number of the next job. No number is used twice: a request of a job may be handled after
    /// the job has ended.
    next: u32,
    outputs: Outputs,
    events: SyncSender<LauncherEvent>,
    label: bool,
    keep_going: bool,
    environment: Environment,
    first: Option<(Member, Failure)>,
    /// Set while the jobs are being ended: when the remaining processes get SIGKILL.
    kill_at: Option<Instant>,
    /// When the user first interrupted the run.
    interrupted: Option<Instant>,
    on_failure: F,
}

impl<F: FnMut(Member, &Failure)> Run<F> {
    pub(super) fn new(
        launch: &Launch,
        environment: Environment,
        events: SyncSender<LauncherEvent>,
        on_failure: F,
    ) -> Self {
        Run {
            jobs: BTreeMap::new(),
            next: 0,
            outputs: Outputs::default(),
            events,
            label: launch.label,
            keep_going: launch.keep_going,
            environment,
            first: None,
            kill_at: None,
            interrupted: None,
            on_failure,
        }
    }

    /// Starts a job.
    pub(super) fn start(
        &mut self,
        spawn: &Spawn,
        values: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), LaunchError> {
        let job = self.next;
        self.next += 1;
        let part = Part {
            job,
            size: spawn.size,
            first: 0,
            count: spawn.size,
            command: spawn.command.clone(),
            environment: self.environment.clone(),
            label: self.label,
        };
        let mut running = RunningJob::start(&part, values)?;
        running.listen(job, &mut self.outputs, &self.events)?;
        self.jobs.insert(job, running);
        Ok(())
    }

    /// Handles events until all processes have ended. Returns the first failure.
    pub(super) fn until_all_end(
        mut self,
        events: &Receiver<LauncherEvent>,
    ) -> Option<(Member, Failure)> {
        while !self.jobs.is_empty() {
            match next(events, self.kill_at) {
                Some(event) => self.handle(event),
                None => {
                    self.signal_all(Signal::KILL);
                    self.kill_at = Some(Instant::now() + GRACE_TIME);
                }
            }
        }
        let until = Some(Instant::now() + OUTPUT_TIME);
        while !self.outputs.are_over() {
            match next(events, until) {
                Some(LauncherEvent::OutputEnded) => self.outputs.ended(),
                Some(_) => {}
                None => break,
            }
        }
        self.first
    }

    fn handle(&mut self, event: LauncherEvent) {
        match event {
            LauncherEvent::Request(member, Ok(request)) => self.handle_request(member, request),
            LauncherEvent::Request(member, Err(error)) => {
                // The end of the connection is not the end of the process: that comes with SIGCHLD.
                if !matches!(error, WireError::Closed | WireError::Broken(_)) {
                    self.handle_violation(member, error.to_string());
                }
                if let Some(job) = self.jobs.get_mut(&member.job) {
                    job.processes[member.rank as usize].set_disconnected();
                }
                self.reap();
            }
            LauncherEvent::Signal(SIGCHLD) => self.reap(),
            LauncherEvent::Signal(signal) => self.forward(signal),
            LauncherEvent::OutputEnded => self.outputs.ended(),
        }
    }

    fn handle_request(&mut self, member: Member, request: PmiRequest) {
        // The job may be unknown: some of its processes sent requests, another one couldn't be
        // started, and the job was killed.
        let Some(job) = self.jobs.get_mut(&member.job) else { return };
        let action: Result<_, Violation> = match request {
            PmiRequest::Line(line) => job.server.handle_line(member.rank, &line),
            PmiRequest::Spawn(request) => job.server.handle_spawn(member.rank, request),
        };
        match action {
            Ok(Action::Reply(replies)) => job.send(replies),
            Ok(Action::Spawn(request)) => self.spawn(member, request),
            Ok(Action::Abort(status)) => {
                self.fail(member, Failure::Aborted(status));
                self.end();
            }
            Err(violation) => self.handle_violation(member, violation.to_string()),
        }
    }

    /// Starts the job that a process asks for, and answers.
    fn spawn(&mut self, asker: Member, request: SpawnRequest) {
        let refusal = self.try_spawn(request).err();
        let reply = server::spawn_result(asker.rank, refusal.as_deref());
        if let Some(job) = self.jobs.get_mut(&asker.job) {
            job.send(vec![reply]);
        }
    }

    fn try_spawn(&mut self, request: SpawnRequest) -> Result<(), String> {
        if self.kill_at.is_some() {
            return Err("the jobs are being ended".to_owned());
        }
        let processes = self.jobs.values().map(|job| job.processes.len()).sum();
        if let Some(why) = refusal(self.jobs.len(), processes, request.spawn.size) {
            return Err(why.to_owned());
        }
        self.start(&request.spawn, request.values).map_err(|error| error.to_string())
    }

    fn handle_violation(&mut self, member: Member, why: String) {
        let Some(job) = self.jobs.get(&member.job) else { return };
        let process = &job.processes[member.rank as usize];
        if !process.is_over() {
            process.signal(Signal::KILL);
            self.fail(member, Failure::Violation(why));
        }
    }

    /// Finds processes that have ended.
    fn reap(&mut self) {
        let mut failures = Vec::new();
        for (&number, job) in &mut self.jobs {
            for (rank, at) in (0..).zip(0..job.processes.len()) {
                let Some(status) = job.processes[at].ended() else { continue };
                let failure = Failure::of(status, job.server.is_joined(rank));
                let replies = job.server.ended(rank, failure.is_some());
                job.send(replies);
                failures.extend(failure.map(|failure| (Member { job: number, rank }, failure)));
            }
        }
        self.jobs.retain(|_, job| !job.is_over());
        for (member, failure) in failures {
            self.fail(member, failure);
        }
    }

    fn fail(&mut self, member: Member, failure: Failure) {
        if self.kill_at.is_some() {
            return;
        }
        (self.on_failure)(member, &failure);
        self.first.get_or_insert((member, failure));
        if !self.keep_going {
            self.end();
        }
    }

    fn end(&mut self) {
        if self.kill_at.is_none() {
            self.kill_at = Some(Instant::now() + GRACE_TIME);
            self.signal_all(Signal::TERM);
        }
    }

    /// Forwards a signal to all processes. A second request to end sends SIGKILL instead.
    fn forward(&mut self, signal: i32) {
        let is_request_to_end = matches!(signal, SIGINT | SIGTERM | SIGHUP);
        if is_request_to_end
            && self.interrupted.get_or_insert_with(Instant::now).elapsed() > SAME_TIME
        {
            self.signal_all(Signal::KILL);
        } else if let Some(signal) = Signal::from_named_raw(signal) {
            self.signal_all(signal);
        }
    }

    fn signal_all(&self, signal: Signal) {
        for process in self.jobs.values().flat_map(|job| &job.processes) {
            process.signal(signal);
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
