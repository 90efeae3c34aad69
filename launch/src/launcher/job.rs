//! The processes of one job of a run, and the job's PMI-1 server.

use std::sync::mpsc::SyncSender;

use super::event::LauncherEvent;
use super::failure::Member;
use super::launch::LaunchError;
use super::output::Outputs;
use super::part::Part;
use super::process::Process;
use crate::server::{Reply, Server};

pub(super) struct RunningJob {
    pub(super) server: Server,
    /// The processes by rank.
    pub(super) processes: Vec<Process>,
}

impl RunningJob {
    /// Starts all processes, or none. `values` are in the server's key-value space before the
    /// processes start.
    pub(super) fn start(
        part: &Part,
        values: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, LaunchError> {
        let kvsname = format!("kvs_{}_{}", std::process::id(), part.job);
        let server = Server::new(part.size, &kvsname, values);
        let mut running = RunningJob { server, processes: Vec::new() };
        for member in part.members() {
            // On an error, dropping `running` kills the processes that were started.
            running.processes.push(Process::start(part, member)?);
        }
        Ok(running)
    }

    /// Starts to send the processes' requests, and the ends of their outputs, as events.
    pub(super) fn listen(
        &mut self,
        job: u32,
        outputs: &mut Outputs,
        events: &SyncSender<LauncherEvent>,
    ) -> Result<(), LaunchError> {
        for (rank, process) in (0..).zip(&mut self.processes) {
            let member = Member { job, rank };
            outputs.begin(member, process, events)?;
            process.listen(member, events)?;
        }
        Ok(())
    }

    pub(super) fn send(&mut self, replies: Vec<Reply>) {
        for Reply { to, line } in replies {
            self.processes[to as usize].send(&line);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.processes.iter().all(Process::is_over)
    }
}
