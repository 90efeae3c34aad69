//! All jobs of a run, from what was launched to the last that a process asked for.

use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use super::group::Group;
use super::output::Outputs;
use super::{Event, Failure, Launch, LaunchError, Member, process};
use crate::pmi1::SIZE_MAX;
use crate::server::{self, Heard, Violation};
use crate::spawn::Spawn;
use crate::spawn::order::{Order, Request};
use crate::wire::WireError;

/// Between SIGTERM and SIGKILL.
const GRACE_TIME: Duration = Duration::from_secs(1);
/// One ^C may come twice, to the process and to its group, as timeout(1) sends it; a later one is meant.
const SAME_TIME: Duration = Duration::from_millis(500);
/// How long output is waited for that someone outside of the jobs' process groups holds open.
const OUTPUT_TIME: Duration = Duration::from_secs(1);
/// Jobs that run at a time.
const JOBS_MAX: usize = 1024;

pub(super) struct Run<F> {
    /// The jobs of which processes are left, by number.
    groups: BTreeMap<u32, Group>,
    /// Numbers are not given out again: what a job said may be heard after its end.
    next: u32,
    outputs: Outputs,
    events: SyncSender<Event>,
    label: bool,
    keep_going: bool,
    first: Option<(Member, Failure)>,
    /// When those that are still there get SIGKILL: the jobs are being ended.
    kill_at: Option<Instant>,
    /// When the user first asked for the end.
    interrupted: Option<Instant>,
    told: F,
}

impl<F: FnMut(Member, &Failure)> Run<F> {
    pub(super) fn new(launch: &Launch, events: SyncSender<Event>, told: F) -> Self {
        Run {
            groups: BTreeMap::new(),
            next: 0,
            outputs: Outputs::default(),
            events,
            label: launch.label,
            keep_going: launch.keep_going,
            first: None,
            kill_at: None,
            interrupted: None,
            told,
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
        let mut group = Group::start(job, spawn, values, self.label)?;
        group.listen(job, &mut self.outputs, &self.events)?;
        self.groups.insert(job, group);
        Ok(())
    }

    /// Takes events until all processes have ended. Gives the first failure.
    pub(super) fn until_all_end(mut self, events: &Receiver<Event>) -> Option<(Member, Failure)> {
        while !self.groups.is_empty() {
            match next(events, self.kill_at) {
                Some(event) => self.take(event),
                None => {
                    self.signal_all(Signal::KILL);
                    self.kill_at = Some(Instant::now() + GRACE_TIME);
                }
            }
        }
        let until = Some(Instant::now() + OUTPUT_TIME);
        while !self.outputs.are_over() {
            match next(events, until) {
                Some(Event::OutputEnded) => self.outputs.ended(),
                Some(_) => {}
                None => break,
            }
        }
        self.first
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Request(member, Ok(request)) => self.hear(member, request),
            Event::Request(member, Err(error)) => {
                // An end of the connection is none of the process: of that the kernel tells.
                if !matches!(error, WireError::Closed | WireError::Broken(_)) {
                    self.violated(member, error.to_string());
                }
                if let Some(group) = self.groups.get_mut(&member.job) {
                    group.processes[member.rank as usize].silenced();
                }
                self.reap();
            }
            Event::Signal(SIGCHLD) => self.reap(),
            Event::Signal(signal) => self.hand_on(signal),
            Event::OutputEnded => self.outputs.ended(),
        }
    }

    fn hear(&mut self, member: Member, request: Request) {
        // One that couldn't be started as a whole has said something before it was killed.
        let Some(group) = self.groups.get_mut(&member.job) else { return };
        let heard: Result<_, Violation> = match request {
            Request::Line(line) => group.server.hear(member.rank, &line),
            Request::Spawn(order) => group.server.hear_order(member.rank, order),
        };
        match heard {
            Ok(Heard::Replies(replies)) => group.send(replies),
            Ok(Heard::Spawn(order)) => self.spawn(member, order),
            Ok(Heard::Abort(status)) => {
                self.fail(member, Failure::Aborted(status));
                self.end();
            }
            Err(violation) => self.violated(member, violation.to_string()),
        }
    }

    /// Starts the job that a process asks for, and answers.
    fn spawn(&mut self, asker: Member, order: Order) {
        let refusal = self.try_spawn(order).err();
        let reply = server::spawned(asker.rank, refusal.as_deref());
        if let Some(group) = self.groups.get_mut(&asker.job) {
            group.send(vec![reply]);
        }
    }

    fn try_spawn(&mut self, order: Order) -> Result<(), String> {
        if self.kill_at.is_some() {
            return Err("the jobs are being ended".to_owned());
        }
        let processes = self.groups.values().map(|group| group.processes.len()).sum();
        if let Some(why) = refusal(self.groups.len(), processes, order.spawn.size) {
            return Err(why.to_owned());
        }
        self.start(&order.spawn, order.values).map_err(|error| error.to_string())
    }

    fn violated(&mut self, member: Member, why: String) {
        let Some(group) = self.groups.get(&member.job) else { return };
        let process = &group.processes[member.rank as usize];
        if !process.is_over() {
            process.signal(Signal::KILL);
            self.fail(member, Failure::Violation(why));
        }
    }

    /// Looks who has ended.
    fn reap(&mut self) {
        let mut failures = Vec::new();
        for (&job, group) in &mut self.groups {
            for rank in 0..group.processes.len() {
                let Some(status) = group.processes[rank].ended() else { continue };
                let rank = u32::try_from(rank).unwrap_or(u32::MAX);
                let failure = failure(status, group.server.takes_part(rank));
                let replies = group.server.ended(rank, failure.is_some());
                group.send(replies);
                failures.extend(failure.map(|failure| (Member { job, rank }, failure)));
            }
        }
        self.groups.retain(|_, group| !group.is_over());
        for (member, failure) in failures {
            self.fail(member, failure);
        }
    }

    fn fail(&mut self, member: Member, failure: Failure) {
        if self.kill_at.is_some() {
            return;
        }
        (self.told)(member, &failure);
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

    fn hand_on(&mut self, signal: i32) {
        let asks_for_the_end = matches!(signal, SIGINT | SIGTERM | SIGHUP);
        if asks_for_the_end
            && self.interrupted.get_or_insert_with(Instant::now).elapsed() > SAME_TIME
        {
            self.signal_all(Signal::KILL);
        } else if let Some(signal) = Signal::from_named_raw(signal) {
            self.signal_all(signal);
        }
    }

    fn signal_all(&self, signal: Signal) {
        for process in self.groups.values().flat_map(|group| &group.processes) {
            process.signal(signal);
        }
    }
}

/// Why no job of so many processes is started beside these.
fn refusal(jobs: usize, processes: usize, asked: u32) -> Option<&'static str> {
    if jobs >= JOBS_MAX {
        return Some("too many jobs run");
    }
    (processes + asked as usize > SIZE_MAX as usize).then_some("too many processes run")
}

/// How a process has failed, if it has. `takes_part`: it may not end now.
fn failure(status: ExitStatus, takes_part: bool) -> Option<Failure> {
    match (status.code(), process::signal_of(status)) {
        (Some(0), _) => takes_part.then_some(Failure::LeftEarly),
        (Some(code), _) => Some(Failure::Exited(u8::try_from(code).unwrap_or(u8::MAX))),
        (None, signal) => Some(Failure::Killed(signal.unwrap_or(0))),
    }
}

/// The next event; `None` if it doesn't come in time.
fn next(events: &Receiver<Event>, until: Option<Instant>) -> Option<Event> {
    let Some(until) = until else { return events.recv().ok() };
    events.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_is_bounded() {
        let max = SIZE_MAX as usize;
        assert_eq!(refusal(JOBS_MAX - 1, max - 2, 2), None);
        assert_eq!(refusal(1, max - 2, 3), Some("too many processes run"));
        assert_eq!(refusal(1, max, u32::MAX), Some("too many processes run"));
        assert_eq!(refusal(JOBS_MAX, 1, 1), Some("too many jobs run"));
    }
}
