//! The processes of one job of a run, and the job's PMI-1 server.

use std::sync::mpsc::SyncSender;

use super::event::LauncherEvent;
use super::failure::Member;
use super::launch::LaunchError;
use super::output::Outputs;
use super::process::{Process, ProcessSettings};
use crate::server::{Reply, Server};
use crate::spawn::Spawn;

pub(super) struct RunningJob {
    pub(super) server: Server,
    /// The processes by rank.
    pub(super) processes: Vec<Process>,
}

impl RunningJob {
    /// Starts all processes, or none. `values` are in the server's key-value space before the
    /// processes start.
    pub(super) fn start(
        job: u32,
        spawn: &Spawn,
        values: impl IntoIterator<Item = (String, String)>,
        label: bool,
    ) -> Result<Self, LaunchError> {
        let kvsname = format!("kvs_{}_{job}", std::process::id());
        let server = Server::new(spawn.size, &kvsname, values);
        let mut running = RunningJob { server, processes: Vec::new() };
        for rank in 0..spawn.size {
            let settings =
                ProcessSettings { member: Member { job, rank }, size: spawn.size, label };
            // On an error, dropping `running` kills the processes that were started.
            running.processes.push(Process::start(&spawn.command, settings)?);
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
