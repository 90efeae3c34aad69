//! Groups without a common communicator meet at a port, by its name. They may belong to one job or
//! to two.
//!
//! A port is a mailbox (`mailbox.rs`) of the leader of the accepting group. The leader of the other
//! group calls it. Once the call is accepted, the leaders exchange descriptions of their groups,
//! like leaders that share a communicator.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::comm::Comm;
use crate::driver::Driver;
use crate::error::Error;
use crate::ft::Life;
use crate::mailbox::Opened;
use crate::net::{Net, ProcessName};
use crate::runtime::Runtime;

use super::accepting::Accepting;
use super::create::{AttemptStart, InterRequest};
use super::intercomm::InterComm;
use super::leader_link::{LeaderLink, PortLine};
use super::uniformity::Uniformity;

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
    mailbox: Arc<Opened>,
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
    /// [connects](Self::connect) to a port. Collective; blocks until a group connects.
    ///
    /// `leader` is the same rank at all members. The leader has opened the port, and gives it.
    /// Calls are accepted in the order in which they arrived. A call whose process has given up is
    /// skipped; if the process has died, this call fails. The other group may belong to another job
    /// with the same layouts of ids and tags.
    ///
    /// Revoking this communicator ends the wait at all members. So a program that may have to give
    /// up should accept on a duplicate.
    ///
    /// # Errors
    /// As for [`create_inter_as`](Self::create_inter_as).
    pub fn accept(
        &self,
        uniformity: Uniformity,
        leader: u32,
        port: Option<&OpenPort>,
    ) -> Result<InterComm<N>, Error> {
        self.iaccept(uniformity, leader, port).wait()
    }

    /// The non-blocking form of the call.
    pub fn iaccept(
        &self,
        uniformity: Uniformity,
        leader: u32,
        port: Option<&OpenPort>,
    ) -> InterRequest<N> {
        let accepts = port.map(|port| Accepting {
            port: Arc::clone(&port.mailbox),
            life: Arc::clone(self.life()),
        });
        self.begin_inter(leader, None, |channel| AttemptStart {
            uniformity,
            leader,
            link: Err(Error::NoPeer),
            accepts,
            channel,
        })
    }

    /// Creates an intercommunicator of this communicator's group and the group that
    /// [accepts](Self::accept) at a port. Collective; blocks until the call is accepted.
    ///
    /// `leader` is the same rank at all members. The leader gives the name of the port. The other
    /// group may belong to another job, as for [`accept`](Self::accept).
    ///
    /// # Errors
    /// As for [`create_inter_as`](Self::create_inter_as). The process in the port's name is down,
    /// or does not exist. [`Error::Port`]: that process has no such port, or has closed it; it has
    /// to make progress to answer so. [`Error::Members`]: both groups together have more processes
    /// than the source field of a tag can name.
    pub fn connect(
        &self,
        uniformity: Uniformity,
        leader: u32,
        port: Option<PortName>,
    ) -> Result<InterComm<N>, Error> {
        self.iconnect(uniformity, leader, port).wait()
    }

    /// The non-blocking form of the call.
    pub fn iconnect(
        &self,
        uniformity: Uniformity,
        leader: u32,
        port: Option<PortName>,
    ) -> InterRequest<N> {
        let link = port.ok_or(Error::NoPeer).and_then(|name| self.link_to(name));
        let accepts = None;
        self.begin_inter(leader, None, |channel| AttemptStart {
            uniformity,
            leader,
            link,
            accepts,
            channel,
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
    /// Waits until all members of both groups have called this, so that no operation of the
    /// intercommunicator is under way anywhere, and then frees it. Collective over both groups;
    /// blocks. The handle is dropped even if there is an error.
    ///
    /// # Errors
    /// [`Error::InUse`]: a clone, a request or a held message is left. A process is down.
    pub fn disconnect(self) -> Result<(), Error> {
        self.idisconnect()?.wait().map(drop)
    }

    /// The non-blocking form of the call.
    ///
    /// # Errors
    /// [`Error::InUse`].
    pub fn idisconnect(self) -> Result<crate::coll::CollRequest<N>, Error> {
        if Arc::strong_count(&self.comm.inner) > 1 {
            return Err(Error::InUse);
        }
        Ok(self.ibarrier())
    }
}
