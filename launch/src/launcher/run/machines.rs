//! What other machines answer, and what becomes of their processes.

use std::time::Instant;

use rustix::process::Signal;

use super::{GRACE_TIME, Run};
use crate::launcher::failure::{Failure, Member};
use crate::launcher::launch::LaunchError;
use crate::launcher::remote::RemoteProcess;

impl<F: FnMut(Member, &Failure)> Run<F> {
    /// A process that runs on this other machine.
    pub(super) fn remote(&mut self, host: usize, member: Member) -> Option<&mut RemoteProcess> {
        let job = self.jobs.get_mut(&member.job)?;
        let process = job.processes.get_mut(member.rank as usize)?.on_host(host)?;
        (!process.is_over()).then_some(process)
    }

    /// A machine has started its part of a job, or refuses.
    pub(super) fn started(&mut self, host: usize, number: u32, refusal: Option<String>) {
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
    pub(super) fn refuse(&mut self, number: u32, host: usize, why: String) {
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
    pub(super) fn host_lost(&mut self, host: usize, why: Option<String>) {
        let how = self.hosts[host].end();
        let why = why.unwrap_or(how);
        let mut refused = Vec::new();
        let mut failed = Vec::new();
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
                job.send(number, replies);
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
}
