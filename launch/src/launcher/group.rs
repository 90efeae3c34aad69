//! The processes of one job of a run, and what they have said.

use std::sync::mpsc::SyncSender;

use super::output::Outputs;
use super::process::{Place, Process};
use super::{Event, LaunchError, Member};
use crate::server::{Reply, Server};
use crate::spawn::Spawn;

pub(super) struct Group {
    pub(super) server: Server,
    /// By rank.
    pub(super) processes: Vec<Process>,
}

impl Group {
    /// Starts all processes, or none. `values` are those of their keys that are there before they are.
    pub(super) fn start(
        job: u32,
        spawn: &Spawn,
        values: impl IntoIterator<Item = (String, String)>,
        label: bool,
    ) -> Result<Self, LaunchError> {
        let kvsname = format!("kvs_{}_{job}", std::process::id());
        let server = Server::new(spawn.size, &kvsname, values);
        let mut group = Group { server, processes: Vec::new() };
        for rank in 0..spawn.size {
            let place = Place { member: Member { job, rank }, size: spawn.size, label };
            // What was started is killed as it is dropped.
            group.processes.push(Process::start(&spawn.command, place)?);
        }
        Ok(group)
    }

    /// Makes events of what they say and write.
    pub(super) fn listen(
        &mut self,
        job: u32,
        outputs: &mut Outputs,
        events: &SyncSender<Event>,
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
            // One that doesn't read its answers doesn't get them.
            self.processes[to as usize].say(&line);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.processes.iter().all(Process::is_over)
    }
}
