//! The log of connections that are not from peers of this job: one line for each machine.

use std::collections::HashSet;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use tagmatch_os::tcp;

/// Most machines that are remembered.
const MACHINES_MAX: usize = 1024;

/// The machines from which a wrong connection came.
#[derive(Default)]
pub(crate) struct RefusedMachines {
    machines: HashSet<IpAddr>,
}

impl RefusedMachines {
    /// Logs what is wrong with a connection, once for each machine.
    pub(crate) fn tell(&mut self, socket: BorrowedFd<'_>, what: &str) {
        let Ok(machine) = tcp::peer_address(socket) else { return };
        if self.machines.len() < MACHINES_MAX && self.machines.insert(machine) {
            log::warn!("a connection from {machine} was refused: {what}");
        }
    }
}
