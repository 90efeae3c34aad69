//! All jobs of a run: the one that was launched, and those that processes have asked for.

mod ends;
mod machines;
mod requests;

use std::collections::{BTreeMap, HashSet};
use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use signal_hook::consts::SIGCHLD;

use super::event::{LauncherEvent, is_request_to_end, next};
use super::failure::{Failure, Member};
use super::frame::ToHelper;
use super::guard;
use super::hosts::{Hosts, HostsError, evenly, mapping};
use super::job::RunningJob;
use super::launch::{Launch, LaunchError};
use super::output::Outputs;
use super::part::{Environment, MachinePart};
use super::printer::Printer;
use super::rank::Rank;
use super::remote::RemoteHost;
use crate::spawn::Spawn;

/// The time between SIGTERM and SIGKILL.
const GRACE_TIME: Duration = Duration::from_secs(1);
/// How long to wait, after the last process has ended, for outputs that a process outside of the
/// jobs' process groups holds open.
const OUTPUT_TIME: Duration = Duration::from_secs(1);
/// The same for outputs of other machines: as long as `ssh` takes to notice that a machine has
/// gone.
const REMOTE_OUTPUT_TIME: Duration = Duration::from_secs(15);

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
    /// Why job 0 can't be started, or was ended by the launcher.
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
        let printer = Printer::start(Arc::clone(&self.outputs.flow), self.events.clone())?;
        for (number, (name, count)) in hosts.divide(size)?.into_iter().enumerate() {
            self.hosts.push(RemoteHost::start(number, &name, hosts, &printer, &self.events)?);
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
        let mut part = MachinePart {
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
            part.directory = env::current_dir().map_err(LaunchError::OwnDirectory)?;
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
        self.hosts.iter().for_each(|host| host.link.send(&ToHelper::Finish));
        let is_ended = self.interrupted.is_some() || self.refusal.is_some();
        let idle_time = if self.hosts.is_empty() { OUTPUT_TIME } else { REMOTE_OUTPUT_TIME };
        self.outputs.wait(events, idle_time, is_ended, |event| match event {
            LauncherEvent::OutputFailed(error) => {
                self.refusal.get_or_insert(LaunchError::Output(error));
                true
            }
            LauncherEvent::Signal(signal) => is_request_to_end(signal),
            _ => false,
        });
        match (self.first, self.refusal) {
            (None, Some(refusal)) => Err(refusal),
            (first, _) => Ok(first),
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
                let ranks = self.jobs.values().flat_map(|job| &job.processes);
                let ranks = ranks.filter_map(Rank::pid);
                let own: HashSet<_> = ranks.chain(self.hosts.iter().map(RemoteHost::pid)).collect();
                guard::reap_orphans(|pid| own.contains(&pid));
            }
            LauncherEvent::Signal(signal) => self.forward(signal),
            LauncherEvent::OutputEnded => self.outputs.ended(),
            LauncherEvent::OutputFailed(error) => {
                self.refusal.get_or_insert(LaunchError::Output(error));
                self.end();
            }
            LauncherEvent::Started(host, job, refusal) => self.started(host, job, refusal),
            LauncherEvent::HostLost(host, why) => self.host_lost(host, why),
            LauncherEvent::Frame(_) | LauncherEvent::Closed => {}
        }
    }
}
