//! A leader that waits for a call at its port.

use std::sync::Arc;

use super::leader_link::{LeaderLink, PortLine};
use crate::driver::MachineIo;
use crate::error::Error;
use crate::life::Life;
use crate::mailbox::Opened;
use crate::net::Net;

pub(super) struct Accepting {
    pub(super) port: Arc<Opened>,
    /// The communicator whose revocation ends the wait.
    pub(super) life: Arc<Life>,
}

impl Accepting {
    /// Takes the next call, and returns the link to the leader that has called.
    pub(super) fn step<N: Net>(
        &self,
        io: &mut MachineIo<'_, N>,
    ) -> Option<Result<LeaderLink, Error>> {
        let life = Arc::clone(&self.life);
        if life.is_revoked() {
            return Some(Err(Error::Revoked));
        }
        // A caller whose settings differ may find that out first, and give up before its call is
        // accepted.
        let withdrawn = self.port.take_withdrawn();
        if let Some(error) = withdrawn.into_iter().find_map(|process| io.ft.unequal(process)) {
            return Some(Err(error));
        }
        let Some((with, mailbox)) = self.port.answer() else {
            io.ft.expect();
            return None;
        };
        Some(Ok(LeaderLink::Line(PortLine { mailbox, with, life })))
    }
}
