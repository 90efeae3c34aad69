//! Groups without a common communicator meet at a port, by its name. They may belong to one job or
//! to two.
//!
//! A port is a mailbox (`mailbox.rs`) of the leader of the accepting group. The leader of the other
//! group calls it. Once the call is accepted, the leaders exchange descriptions of their groups,
//! like leaders that share a communicator.
//!
//! The groups may belong to two jobs (MPI-4.1, chapter 11), and neither job need have started the
//! other. Messages to mailboxes ("letters") travel with the control messages about failures. So a
//! process that makes progress answers them, whatever else it does:
//!
//! 1. A process never uses a mailbox number twice. So the name of a closed port never names another
//!    port, and no mailbox takes in a late message.
//! 2. A letter to a mailbox that is not open is answered with *over*. When a port closes, each call
//!    in its queue is answered so, too. The caller's result is an error.
//! 3. The accepting side sends first, to the caller's line. If the caller has given up, its line is
//!    closed, the answer is *over*, and the next call is accepted. A line that closes before its
//!    call is answered removes the call from the port's queue. If the caller's settings differ, the
//!    accepting side ends with that error all the same.
//!
//! How processes of two jobs identify each other:
//!
//! 1. A process numbers other processes by itself: processes of its job by their ranks, processes
//!    of other jobs in the order in which it learns of them. These numbers are never sent to
//!    another process. Within a communicator all messages use ranks, which are the same at all
//!    members.
//! 2. A *name* is the same everywhere: it is the worker's address. A process whose name is
//!    received, or that sends a message, is *admitted*: it gets a number and is connected, so that
//!    its death becomes known. At most 2^16 processes are admitted, and none is forgotten.
//! 3. Names appear in the name of a port (`name:number`), in the leaders' group descriptions, and
//!    in revocations and invitations of groups that span jobs. Within a job, these messages carry
//!    ranks, which are shorter. Before a process admits the named processes, it checks that it is a
//!    member itself, and that the sender is.
//! 4. An epoch is a hash of ranks in the parent. The epoch of a pair of groups is a hash of the
//!    epochs of both attempts and one id. So both jobs compute the same epoch. A process never has
//!    the same epoch twice, because the number of its own attempt is part of the hash. Processes
//!    without a common communicator may have the same key, but they send each other nothing about
//!    it. If a message about such a key arrives all the same, it counts only for a communicator of
//!    exactly the members that the message names.
//!
//! A merge gives a communicator of both jobs, which is like any other. Machines are numbered within
//! a job: in a communicator of two jobs, each member counts as being on a machine of its own.
//! Heartbeats stay within a job, too.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::accepting::Accepting;
use super::create_machine::AttemptStart;
use super::intercomm::InterComm;
use super::leader_link::{LeaderLink, PortLine};
use super::uniformity::Uniformity;
use crate::comm::{CollRequest, Collective, Comm};
use crate::driver::Driver;
use crate::error::Error;
use crate::life::Life;
use crate::mailbox::Opened;
use crate::net::{Net, ProcessName};
use crate::runtime::Runtime;

/// The name of a port. A program passes it to other processes by any means. As text it is
/// `name:number`, with the name of the process in hexadecimal. No two ports ever have the same
/// name, even after a port is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortName {
    process: ProcessName,
    number: u64,
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.process, self.number)
    }
}

impl FromStr for PortName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parse = || {
            let (process, number) = text.split_once(':')?;
            // Parsing an integer would accept a sign.
            let number = number.bytes().all(|byte| byte.is_ascii_digit()).then_some(number)?;
            Some(PortName { process: process.parse().ok()?, number: number.parse().ok()? })
        };
        parse().ok_or(Error::Port)
    }
}

/// An open port of this process. The port is closed when this is dropped and no [`Comm::accept`]
/// uses it any more. Calls that were not accepted then end with an error, and so do later calls.
#[derive(Debug)]
pub struct OpenPort {
    name: PortName,
    pub(super) mailbox: Arc<Opened>,
}

impl OpenPort {
    /// The name of the port.
    pub fn name(&self) -> PortName {
        self.name
    }

    pub(super) fn open<N: Net>(driver: &Driver<N>) -> Result<Self, Error> {
        let mailbox = driver.mailboxes.open_port();
        let net = &driver.lock().net;
        let process = net.name(net.own()).ok_or(Error::Port)?;
        let name = PortName { process, number: mailbox.number() };
        Ok(OpenPort { name, mailbox: Arc::new(mailbox) })
    }
}

impl<N: Net> Runtime<N> {
    /// Opens a port. A process may have any number of ports.
    ///
    /// # Errors
    /// [`Error::Port`]: the transport has no name for this process.
    pub fn open_port(&self) -> Result<OpenPort, Error> {
        OpenPort::open(self.driver())
    }
}

impl<N: Net> Comm<N> {
    /// Creates an intercommunicator of this communicator's group and a group that
    /// [connects](Self::connect) to a port. Ends when a group has connected.
    ///
    /// `leader` is the same rank at all members. The leader has opened the port, and gives it.
    /// Calls are accepted in the order in which they arrived. A call whose process has given up is
    /// skipped; if the process has died, this call fails. The other group may belong to another job
    /// with the same [`Config`](crate::Config).
    ///
    /// Revoking this communicator ends the wait at all members. So a program that may have to give
    /// up should accept on a duplicate.
    ///
    /// # Errors
    /// As for [`create_inter`](Self::create_inter). [`Error::UnequalSetting`], at all members of
    /// both groups: a group that has called is of a job with other settings.
    pub fn accept(
        &self,
        uniformity: Uniformity,
        leader: u32,
        port: Option<&OpenPort>,
    ) -> Collective<'_, N, InterComm<N>> {
        let port = port.map(|port| Arc::clone(&port.mailbox));
        Collective::begun_by(move || {
            self.start_accept(uniformity, leader, port.ok_or(Error::NoPeer))
        })
    }

    /// Begins to accept a call, or tells the other members why there is no port.
    pub(super) fn start_accept(
        &self,
        uniformity: Uniformity,
        leader: u32,
        port: Result<Arc<Opened>, Error>,
    ) -> CollRequest<N, InterComm<N>> {
        let (accepts, error) = match port {
            Ok(port) => (Some(Accepting { port, life: Arc::clone(self.life()) }), Error::NoPeer),
            Err(error) => (None, error),
        };
        self.begin_inter(AttemptStart { uniformity, leader, link: Err(error), accepts })
    }

    /// Creates an intercommunicator of this communicator's group and the group that
    /// [accepts](Self::accept) at a port. Ends when the call is accepted.
    ///
    /// `leader` is the same rank at all members. The leader gives the name of the port. The other
    /// group may belong to another job, as for [`accept`](Self::accept).
    ///
    /// # Errors
    /// As for [`create_inter`](Self::create_inter). The process in the port's name is down,
    /// or does not exist. [`Error::Port`]: that process has no such port, or has closed it; it has
    /// to make progress to answer so. [`Error::Members`]: both groups together have more processes
    /// than the source field of a tag can name. [`Error::UnequalSetting`], as for
    /// [`accept`](Self::accept).
    pub fn connect(
        &self,
        uniformity: Uniformity,
        leader: u32,
        port: Option<PortName>,
    ) -> Collective<'_, N, InterComm<N>> {
        Collective::begun_by(move || {
            let link = port.ok_or(Error::NoPeer).and_then(|name| self.link_to(name));
            self.begin_inter(AttemptStart { uniformity, leader, link, accepts: None })
        })
    }

    fn link_to(&self, name: PortName) -> Result<(LeaderLink, bool), Error> {
        let own = self.group().process(self.rank()).ok_or(Error::Group)?;
        let process = self.driver().lock().net.admit(&name.process);
        let with = process.ok().filter(|process| *process != own).ok_or(Error::Port)?;
        let mailbox = self.driver().mailboxes.call(with, name.number);
        Ok((LeaderLink::Line(PortLine { mailbox, with, life: Arc::clone(self.life()) }), false))
    }

    fn life(&self) -> &Arc<Life> {
        &self.inner.life
    }
}

impl<N: Net> InterComm<N> {
    /// Waits until all members of both groups have begun this, so that no operation of the
    /// intercommunicator is under way anywhere, and then frees it. Collective over both groups. The
    /// handle is dropped even if there is an error.
    ///
    /// # Errors
    /// [`Error::InUse`]: a clone, a request or a held message is left. A process is down.
    pub fn disconnect(self) -> Collective<'static, N, ()>
    where
        N: 'static,
    {
        Collective::begun_by(move || {
            if Arc::strong_count(&self.comm.inner) > 1 {
                return self.comm.ended(Err(Error::InUse));
            }
            self.start_barrier()
        })
    }
}
