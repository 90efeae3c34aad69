//! All jobs of a run: the one that was launched, and those that processes have asked for.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use super::event::{LauncherEvent, next};
use super::failure::{Failure, Member};
use super::hosts::{Hosts, HostsError, evenly, mapping};
use super::job::RunningJob;
use super::launch::{Launch, LaunchError};
use super::output::Outputs;
use super::part::{Environment, Part};
use super::remote::{RemoteHost, RemoteProcess};
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
    /// The other machines; empty if all processes run here.
    hosts: Vec<RemoteHost>,
    /// The number of job 0's processes on each of them.
    counts: Vec<u32>,
    /// Why job 0 can't be started.
    refusal: Option<LaunchError>,
    first: Option<(Member, Failure)>,
    /// Set while the jobs are being ended: when the remaining processes get SIGKILL.
    kill_at: Option<Instant>,
    /// When the agents of the other machines get SIGKILL.
    kill_hosts_at: Option<Instant>,
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
            hosts: Vec::new(),
            counts: Vec::new(),
            refusal: None,
            first: None,
            kill_at: None,
            kill_hosts_at: None,
            interrupted: None,
            on_failure,
        }
    }

    /// Starts the agents of these machines. All processes will run there.
    pub(super) fn connect(&mut self, size: u32, hosts: &Hosts) -> Result<(), LaunchError> {
        for (number, (name, count)) in hosts.divide(size)?.into_iter().enumerate() {
            self.hosts.push(RemoteHost::start(number, &name, hosts, &self.events)?);
            self.counts.push(count);
            self.outputs.expect();
        }
        Ok(())
    }

    /// Starts a job. If it runs on other machines, their answers come as events.
    pub(super) fn start(
        &mut self,
        spawn: &Spawn,
        values: impl IntoIterator<Item = (String, String)>,
        asker: Option<Member>,
    ) -> Result<(), LaunchError> {
        let job = self.next;
        self.next += 1;
        let mut part = Part {
            job,
            size: spawn.size,
            first: 0,
            count: spawn.size,
            command: spawn.command.clone(),
            environment: self.environment.clone(),
            directory: PathBuf::new(),
            label: self.label,
            is_remote: false,
        };
        let running = if self.hosts.is_empty() {
            RunningJob::start_here(&part, values, &mut self.outputs, &self.events)?
        } else {
            part.directory = env::current_dir()?;
            let living = self.hosts.iter().enumerate().filter(|(_, host)| !host.is_lost);
            let living: Vec<_> = living.map(|(number, host)| (number, host.link.clone())).collect();
            let is_first = job == 0;
            let counts =
                if is_first { self.counts.clone() } else { evenly(spawn.size, living.len()) };
            let counts: Vec<_> = counts.into_iter().filter(|&count| count > 0).collect();
            if counts.is_empty() {
                return Err(HostsError::None.into());
            }
            let mapping = ("PMI_process_mapping".to_owned(), mapping(&counts));
            let hosts = living.into_iter().zip(counts);
            let hosts = hosts.map(|((number, link), count)| (number, link, count));
            let values = values.into_iter().chain([mapping]);
            RunningJob::start_there(part, values, asker, hosts)
        };
        self.jobs.insert(job, running);
        Ok(())
    }

    /// Handles events until all processes have ended. Returns the first failure.
    pub(super) fn until_all_end(
        mut self,
        events: &Receiver<LauncherEvent>,
    ) -> Result<Option<(Member, Failure)>, LaunchError> {
        while !self.jobs.is_empty() {
            let until = [self.kill_at, self.kill_hosts_at].into_iter().flatten().min();
            match next(events, until) {
                Some(event) => self.handle(event),
                None => self.kill_what_is_due(),
            }
        }
        self.hosts.iter().for_each(|host| host.link.close());
        let until = Some(Instant::now() + OUTPUT_TIME);
        while !self.outputs.are_over() {
            match next(events, until) {
                Some(LauncherEvent::OutputEnded | LauncherEvent::HostLost(..)) => {
                    self.outputs.ended();
                }
                Some(_) => {}
                None => break,
            }
        }
        match (self.first, self.refusal) {
            (None, Some(refusal)) => Err(refusal),
            (first, _) => Ok(first),
        }
    }

    fn kill_what_is_due(&mut self) {
        let now = Instant::now();
        if self.kill_hosts_at.is_some_and(|at| at <= now) {
            self.kill_hosts_at = None;
            self.hosts.iter_mut().for_each(RemoteHost::kill);
        }
        if self.kill_at.is_some_and(|at| at <= now) {
            self.signal_all(Signal::KILL);
            self.kill_at = Some(now + GRACE_TIME);
            self.kill_hosts_at.get_or_insert(now + GRACE_TIME);
        }
    }

    fn handle(&mut self, event: LauncherEvent) {
        match event {
            LauncherEvent::Request(member, text) => self.handle_text(member, &text),
            LauncherEvent::RemoteRequest(host, member, text) => {
                if self.remote(host, member).is_some() {
                    self.handle_text(member, &text);
                }
            }
            LauncherEvent::Ended(host, member, status) => {
                if let Some(process) = self.remote(host, member) {
                    process.end(Some(status));
                }
                self.reap();
            }
            LauncherEvent::Signal(SIGCHLD) => {
                self.hosts.iter_mut().for_each(RemoteHost::check);
                self.reap();
            }
            LauncherEvent::Signal(signal) => self.forward(signal),
            LauncherEvent::OutputEnded => self.outputs.ended(),
            LauncherEvent::Started(host, job, refusal) => self.started(host, job, refusal),
            LauncherEvent::HostLost(host, why) => self.host_lost(host, why),
            LauncherEvent::Frame(_) | LauncherEvent::Closed => {}
        }
    }

    /// A process that runs on this other machine.
    fn remote(&mut self, host: usize, member: Member) -> Option<&mut RemoteProcess> {
        let job = self.jobs.get_mut(&member.job)?;
        let process = job.processes.get_mut(member.rank as usize)?.on_host(host)?;
        (!process.is_over()).then_some(process)
    }

    /// A machine has started its part of a job, or refuses.
    fn started(&mut self, host: usize, number: u32, refusal: Option<String>) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        job.waits_for.remove(&host);
        if let Some(why) = refusal {
            job.processes.iter_mut().filter_map(|p| p.on_host(host)).for_each(|p| p.end(None));
            self.refuse(number, host, why);
        } else if job.waits_for.is_empty()
            && let Some(asker) = job.asker.take()
        {
            self.answer_spawn(asker, None);
        }
    }

    /// Ends a job that a machine can't start.
    fn refuse(&mut self, number: u32, host: usize, why: String) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        job.is_refused = true;
        job.processes.iter().for_each(|process| process.signal(Signal::KILL));
        let asker = job.asker.take();
        let error = LaunchError::Host { host: self.hosts[host].name.clone(), why };
        match asker {
            Some(asker) => self.answer_spawn(asker, Some(&error.to_string())),
            None if number == 0 => {
                self.refusal.get_or_insert(error);
                // Some machines may never answer.
                self.kill_hosts_at.get_or_insert_with(|| Instant::now() + GRACE_TIME);
            }
            None => {}
        }
        self.reap();
    }

    /// Nothing more comes from a machine. The helper there kills its processes.
    fn host_lost(&mut self, host: usize, why: Option<String>) {
        self.outputs.ended();
        let how = self.hosts[host].end();
        let why = why.unwrap_or(how);
        let (mut refused, mut failed) = (Vec::new(), Vec::new());
        for (&number, job) in &mut self.jobs {
            let is_refused = job.waits_for.remove(&host);
            let mut lost = Vec::new();
            for (rank, process) in (0..).zip(&mut job.processes) {
                if let Some(process) = process.on_host(host).filter(|p| !p.is_over()) {
                    process.end(None);
                    lost.push(rank);
                }
            }
            for rank in lost {
                let replies = job.server.ended(rank, true);
                job.send(replies);
                if !is_refused && !job.is_refused {
                    failed.push(Member { job: number, rank });
                }
            }
            refused.extend(is_refused.then_some(number));
        }
        for number in refused {
            self.refuse(number, host, why.clone());
        }
        let name = self.hosts[host].name.clone();
        for member in failed {
            self.fail(member, Failure::Lost(format!("the connection to {name} has ended: {why}")));
        }
        self.jobs.retain(|_, job| !job.is_over());
    }

    fn handle_text(&mut self, member: Member, text: &[u8]) {
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

    /// Starts the job that a process asks for, and answers when it runs.
    fn spawn(&mut self, asker: Member, request: SpawnRequest) {
        match self.try_spawn(asker, request) {
            Err(refusal) => self.answer_spawn(asker, Some(&refusal)),
            Ok(()) if self.hosts.is_empty() => self.answer_spawn(asker, None),
            // The other machines answer first.
            Ok(()) => {}
        }
    }

    fn answer_spawn(&mut self, asker: Member, refusal: Option<&str>) {
        let reply = server::spawn_result(asker.rank, refusal);
        if let Some(job) = self.jobs.get_mut(&asker.job) {
            job.send(vec![reply]);
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
                let failure = failure.filter(|_| !job.is_refused);
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
        let first = self.jobs.get_mut(&0).filter(|job| !job.waits_for.is_empty());
        if let Some(job) = first.filter(|_| is_request_to_end) {
            // Machines that don't answer can't forward it. Helpers kill what their processes have
            // started when the link is closed. They can't if they are killed themselves.
            job.is_refused = true;
            let launcher = (Member { job: 0, rank: 0 }, Failure::Killed(signal));
            self.first.get_or_insert(launcher);
            self.hosts.iter().for_each(|host| host.link.close());
            self.kill_hosts_at.get_or_insert_with(|| Instant::now() + GRACE_TIME);
        } else if is_request_to_end
            && self.interrupted.get_or_insert_with(Instant::now).elapsed() > SAME_TIME
        {
            self.signal_all(Signal::KILL);
            self.kill_hosts_at.get_or_insert_with(|| Instant::now() + GRACE_TIME);
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
