//! The ends of processes and of jobs, and signals.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{GRACE_TIME, Run};
use crate::launcher::event::is_request_to_end;
use crate::launcher::failure::{Failure, Member};
use crate::launcher::remote::RemoteHost;

/// One ^C may arrive twice: timeout(1) sends it to the process and to its group. Only an interrupt
/// after this time counts as a second one.
const SAME_TIME: Duration = Duration::from_millis(500);

impl<F: FnMut(Member, &Failure)> Run<F> {
    pub(super) fn kill_what_is_due(&mut self) {
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

    /// Finds processes that have ended.
    pub(super) fn reap(&mut self) {
        let mut failures = Vec::new();
        for (&number, job) in &mut self.jobs {
            for (rank, at) in (0..).zip(0..job.processes.len()) {
                let Some(status) = job.processes[at].ended() else { continue };
                let failure = Failure::of(status, job.server.is_joined(rank));
                let failure = failure.filter(|_| !job.is_refused);
                let replies = job.server.ended(rank, failure.is_some());
                job.send(number, replies);
                failures.extend(failure.map(|failure| (Member { job: number, rank }, failure)));
            }
        }
        self.jobs.retain(|_, job| !job.is_over());
        for (member, failure) in failures {
            self.fail(member, failure);
        }
    }

    pub(super) fn fail(&mut self, member: Member, failure: Failure) {
        if self.kill_at.is_some() {
            return;
        }
        (self.on_failure)(member, &failure);
        self.first.get_or_insert((member, failure));
        if !self.keep_going {
            self.end();
        }
    }

    pub(super) fn end(&mut self) {
        if self.kill_at.is_none() {
            self.kill_at = Some(Instant::now() + GRACE_TIME);
            self.signal_all(Signal::TERM);
        }
    }

    /// Forwards a signal to all processes. A second request to end sends SIGKILL instead.
    pub(super) fn forward(&mut self, signal: i32) {
        let is_request_to_end = is_request_to_end(signal);
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

    pub(super) fn signal_all(&self, signal: Signal) {
        for process in self.jobs.values().flat_map(|job| &job.processes) {
            process.signal(signal);
        }
    }
}
