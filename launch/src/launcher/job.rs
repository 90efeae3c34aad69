//! The processes of one job of a run, and the job's PMI-1 server.

use std::collections::BTreeSet;
use std::sync::mpsc::SyncSender;

use super::event::LauncherEvent;
use super::failure::Member;
use super::frame::ToHelper;
use super::launch::LaunchError;
use super::link::Link;
use super::output::{Outputs, Sink};
use super::part::MachinePart;
use super::process::Process;
use super::rank::Rank;
use super::remote::RemoteProcess;
use crate::server::{BARRIER_OUT, Reply, Server};

/// The most values in one frame. A key and its value have at most 1 KiB together.
const VALUES_MAX: usize = 4096;

pub(super) struct RunningJob {
    pub(super) server: Server,
    /// The processes by rank.
    pub(super) processes: Vec<Rank>,
    /// The machines that have not said yet that their processes run.
    pub(super) waits_for: BTreeSet<usize>,
    /// The process that has asked for the job, and gets an answer when all machines have said so.
    pub(super) asker: Option<Member>,
    /// The ways to the helpers of other machines, which answer for the server.
    helpers: Vec<Link>,
    /// Whether the job can't be started. How its processes end is no failure then.
    pub(super) is_refused: bool,
}

impl RunningJob {
    fn new(
        job: u32,
        size: u32,
        values: impl IntoIterator<Item = (String, String)>,
        asker: Option<Member>,
    ) -> Self {
        let server = Server::new(size, &format!("kvs_{}_{job}", std::process::id()), values);
        let processes = Vec::new();
        let waits_for = BTreeSet::new();
        RunningJob { server, processes, waits_for, asker, helpers: Vec::new(), is_refused: false }
    }

    /// Starts all processes on this machine, or none, and begins to send their requests, and the
    /// ends of their outputs, as events. `values` are in the server's key-value space before the
    /// processes start.
    pub(super) fn start_here(
        part: &MachinePart,
        values: impl IntoIterator<Item = (String, String)>,
        outputs: &mut Outputs,
        events: &SyncSender<LauncherEvent>,
    ) -> Result<Self, LaunchError> {
        let mut running = Self::new(part.job, part.size, values, None);
        for member in part.members() {
            // On an error, dropping `running` kills the processes that were started.
            running.processes.push(Rank::Here(Process::start(part, member)?));
        }
        for (member, rank) in part.members().zip(&mut running.processes) {
            let Rank::Here(process) = rank else { continue };
            let (output, error) = process.outputs();
            let label = part.label.then_some(member);
            outputs.begin(label, output, Sink::Output, events)?;
            outputs.begin(label, error, Sink::Error, events)?;
            process.listen(member, events)?;
        }
        Ok(running)
    }

    /// Tells machines to start the processes: `part` is the part of the first machine, without its
    /// number of processes, and `hosts` are the numbers of the machines, and of their processes.
    pub(super) fn start_there(
        mut part: MachinePart,
        values: impl IntoIterator<Item = (String, String)>,
        asker: Option<Member>,
        hosts: impl IntoIterator<Item = (usize, Link, u32)>,
    ) -> Self {
        let mut running = Self::new(part.job, part.size, values, asker);
        running.server.keep_news();
        for (host, link, count) in hosts {
            part.count = count;
            let ranks = part
                .members()
                .map(|member| Rank::There(RemoteProcess::new(host, member, link.clone())));
            running.processes.extend(ranks);
            running.waits_for.insert(host);
            link.send(&ToHelper::Start(part.clone()));
            part.first += count;
            running.helpers.push(link);
        }
        running
    }

    /// Sends lines to processes. When a barrier has ended, helpers are told the new values first.
    pub(super) fn send(&mut self, job: u32, replies: Vec<Reply>) {
        if replies.iter().any(|reply| reply.line == BARRIER_OUT) {
            let news = self.server.take_news();
            let name = self.server.kvsname();
            for values in news.chunks(VALUES_MAX) {
                let frame = ToHelper::Values(job, name.to_owned(), values.to_vec());
                self.helpers.iter().for_each(|helper| helper.send(&frame));
            }
        }
        for Reply { to, line } in replies {
            self.processes[to as usize].send(&line);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.processes.iter().all(Rank::is_over)
    }
}
