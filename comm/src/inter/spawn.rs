//! Spawning: new processes, in a job of their own, and a group of this one meet at a port.

use std::fmt::Display;

use crate::comm::Comm;
use crate::error::Error;
use crate::net::Net;

use super::InterComm;
use super::connect::{OpenPort, PortName};
use super::create::{Begun, InterRequest, Uniformity};

impl<N: Net> Comm<N> {
    /// An intercommunicator of this communicator's group and the processes that `start` starts: what MPI calls
    /// `MPI_Comm_spawn`. Collective; blocks.
    ///
    /// `root`, the same rank at all members, gives `start`, which is told the name of a port. It starts a job,
    /// by whatever means, and hands the name to its processes, which [connect](Comm::connect) there, all
    /// of them together, with the same uniformity. It blocks this process's progress until it returns, so it
    /// must not wait for them to connect.
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
    ///     world.spawn(Uniformity::Strict, 0, (world.rank() == 0).then_some(start))
    /// }
    ///
    /// fn child(world: &World) -> Result<Inter, Box<dyn std::error::Error>> {
    ///     let port = std::env::var("PARENT_PORT")?.parse()?;
    ///     Ok(world.connect(Uniformity::Strict, 0, Some(port))?)
    /// }
    /// ```
    ///
    /// What becomes of processes that were started and have not connected, this one can't know: the call waits
    /// for them. Whoever learns that they have ended [revokes](Comm::revoke) this communicator, at
    /// any member: that ends it at all of them. So one that may have to be given up is called on a duplicate.
    ///
    /// # Errors
    /// [`Error::NotStarted`], at all members that live: `start` has failed; its words are in the root's.
    /// [`Error::NoPeer`]: the root gave none. With a uniformity, either is the cause in [`Error::NotCreated`].
    /// Else what [`accept`](Comm::accept) ends with.
    pub fn spawn<E: Display>(
        &self,
        uniformity: Uniformity,
        root: u32,
        start: Option<impl FnOnce(&PortName) -> Result<(), E>>,
    ) -> Result<InterComm<N>, Error> {
        self.ispawn(uniformity, root, start).wait()
    }

    /// The same, without blocking, but for `start`, which is called at once.
    pub fn ispawn<E: Display>(
        &self,
        uniformity: Uniformity,
        root: u32,
        start: Option<impl FnOnce(&PortName) -> Result<(), E>>,
    ) -> InterRequest<N> {
        let start = start.filter(|_| self.rank() == root).ok_or(Error::NoPeer);
        let started = start.and_then(|start| {
            // Nobody is started for what can't be.
            self.driver().settings.ids.localcomm(self.id())?;
            let port = OpenPort::open(self.driver())?;
            let not_started = |why: E| Error::NotStarted { why: Some(why.to_string()) };
            start(&port.name()).map_err(not_started).map(|()| port)
        });
        match started {
            Ok(port) => self.iaccept(uniformity, root, Some(&port)),
            // The others wait to be told.
            Err(error) => self.begin_inter(root, None, |channel| Begun {
                uniformity,
                leader: root,
                bridge: Err(error),
                accepts: None,
                channel,
            }),
        }
    }
}
