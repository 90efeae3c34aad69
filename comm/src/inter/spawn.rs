//! Spawning: a group of this job and the processes of a new job meet at a port.
//!
//! `Comm::spawn` (`inter/spawn.rs`) is an accept whose root has given the port's name to a closure.
//! The closure starts the other job, and the new processes connect to that port. This crate can't
//! know whether they will connect. A caller that learns that they won't revokes the parent's
//! communicator, which ends the wait at all its members.

use std::fmt::Display;

use super::connect::{OpenPort, PortName};
use super::intercomm::InterComm;
use super::uniformity::Uniformity;
use crate::comm::{Collective, Comm};
use crate::error::Error;
use crate::net::Net;

impl<N: Net> Comm<N> {
    /// Creates an intercommunicator of this communicator's group and the processes that `start`
    /// starts (`MPI_Comm_spawn`). Collective.
    ///
    /// `root` is the same rank at all members. The root gives `start`, which gets the name of a
    /// port. `start` starts a job by any means, and passes the name to its processes. All of them
    /// together [connect](Comm::connect) to that port, with the same uniformity. This process makes
    /// no progress until `start` returns, so `start` must not wait for them to connect.
    ///
    /// ```no_run
    /// # use tagmatch::Local;
    /// # use tagmatch_comm::net::worker::WorkerNet;
    /// # use tagmatch_comm::{Comm, Error, InterComm, PortName, Uniformity};
    /// # type World = Comm<WorkerNet<Local>>;
    /// # type Inter = InterComm<WorkerNet<Local>>;
    /// fn parent(world: &World) -> Result<Inter, Error> {
    ///     let start = |port: &PortName| {
    ///         let mut solver = std::process::Command::new("solver");
    ///         solver.env("PARENT_PORT", port.to_string()).spawn().map(drop)
    ///     };
    ///     world.spawn(Uniformity::Strict, 0, (world.rank() == 0).then_some(start)).wait()
    /// }
    ///
    /// fn child(world: &World) -> Result<Inter, Box<dyn std::error::Error>> {
    ///     let port = std::env::var("PARENT_PORT")?.parse()?;
    ///     Ok(world.connect(Uniformity::Strict, 0, Some(port)).wait()?)
    /// }
    /// ```
    ///
    /// This process can't know whether the started processes will connect: the call waits for them.
    /// A program that learns that they have ended [revokes](Comm::revoke) this communicator, at any
    /// member. That ends the call at all members. So a program that may have to give up should
    /// spawn on a duplicate.
    ///
    /// # Errors
    /// [`Error::NotStarted`], at all living members: `start` has failed. The root's error has its
    /// message. [`Error::NoPeer`]: the root gave no `start`. With a uniformity other than `None`,
    /// these are the cause in [`Error::NotCreated`]. Otherwise the errors of
    /// [`accept`](Comm::accept).
    pub fn spawn<'a, E: Display>(
        &'a self,
        uniformity: Uniformity,
        root: u32,
        start: Option<impl FnOnce(&PortName) -> Result<(), E> + 'a>,
    ) -> Collective<'a, N, InterComm<N>> {
        Collective::begun_by(move || {
            let start = start.filter(|_| self.rank() == root).ok_or(Error::NoPeer);
            let started = start.and_then(|start| {
                // No job is started if the intercommunicator is impossible.
                self.driver().settings.ids.localcomm(self.id())?;
                let port = OpenPort::open(self.driver())?;
                let not_started = |why: E| Error::NotStarted { why: Some(why.to_string()) };
                start(&port.name()).map_err(not_started).map(|()| port.mailbox)
            });
            self.start_accept(uniformity, root, started)
        })
    }
}
