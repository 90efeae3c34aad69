//! Groups that have no communicator in common, of one job or of two, meet by the name of a port.
//!
//! A port is a mailbox of one process, the leader of the group that accepts. The leader of the other group calls
//! there. Once the call is accepted, both swap cards as leaders do who have a communicator (`mailbox.rs`).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::comm::Comm;
use crate::driver::{Driver, Port};
use crate::error::Error;
use crate::ft::Life;
use crate::mailbox::Opened;
use crate::net::{Net, ProcessName};
use crate::runtime::Runtime;

use super::InterComm;
use super::bridge::{Bridge, Line};
use super::create::{Begun, InterRequest, Uniformity};

/// A port's name, as one process can tell another by whatever means: its text is `name:number`, the
/// process's name in hexadecimal. No two ports ever have the same name: that of a closed port is never another one's.
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
            // No sign, as an integer's own form has one.
            let number = number.bytes().all(|byte| byte.is_ascii_digit()).then_some(number)?;
            Some(PortName { process: process.parse().ok()?, number: number.parse().ok()? })
        };
        parse().ok_or(Error::Port)
    }
}

/// A port at which this process accepts. It is closed when it is dropped and no [`Comm::accept`] uses it any more: who
/// has called and was not accepted has an error then, as has who calls later.
#[derive(Debug)]
pub struct OpenPort {
    name: PortName,
    mailbox: Arc<Opened>,
}

impl OpenPort {
    /// Its name.
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
    /// Opens a port. There may be any number of them.
    ///
    /// # Errors
    /// [`Error::Port`]: the transport has no name for this process.
    pub fn open_port(&self) -> Result<OpenPort, Error> {
        OpenPort::open(self.driver())
    }
}

impl<N: Net> Comm<N> {
    /// An intercommunicator of this communicator's group and one that [connects](Self::connect) to the port,
    /// which `leader`, the same rank at all members, has opened and gives. Collective; blocks until there is a
    /// group that connects. Of several, the one that called first is the next; if it has died since, that
    /// is the result. One that has given up since is passed over. The group may be of another job, whose layouts of ids and tags are the same.
    ///
    /// Whoever revokes this communicator ends the wait at all members. So one that may have to be given up is
    /// called on a duplicate.
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

    /// The same, without blocking.
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
        self.begin_inter(leader, None, |channel| Begun {
            uniformity,
            leader,
            bridge: Err(Error::NoPeer),
            accepts,
            channel,
        })
    }

    /// An intercommunicator of this communicator's group and that which [accepts](Self::accept) at the port,
    /// whose name `leader`, the same rank at all members, gives. Collective; blocks until it is accepted. The
    /// group may be of another job, as for that call.
    ///
    /// # Errors
    /// As for [`create_inter_as`](Self::create_inter_as); the process that is named is down or isn't.
    /// [`Error::Port`]: it has no such port, or has closed it. That process has to make progress to say so.
    /// [`Error::Members`]: both groups together are too large for a tag's source.
    pub fn connect(
        &self,
        uniformity: Uniformity,
        leader: u32,
        port: Option<PortName>,
    ) -> Result<InterComm<N>, Error> {
        self.iconnect(uniformity, leader, port).wait()
    }

    /// The same, without blocking.
    pub fn iconnect(
        &self,
        uniformity: Uniformity,
        leader: u32,
        port: Option<PortName>,
    ) -> InterRequest<N> {
        let bridge = port.ok_or(Error::NoPeer).and_then(|name| self.bridge_to(name));
        let accepts = None;
        self.begin_inter(leader, None, |channel| Begun {
            uniformity,
            leader,
            bridge,
            accepts,
            channel,
        })
    }

    fn bridge_to(&self, name: PortName) -> Result<(Bridge, bool), Error> {
        let own = self.group().process(self.rank()).ok_or(Error::Group)?;
        let process = self.driver().lock().net.admit(&name.process);
        let with = process.ok().filter(|process| *process != own).ok_or(Error::Port)?;
        let mailbox = self.driver().mailboxes.call(with, name.number);
        Ok((Bridge::Line(Line { mailbox, with, life: Arc::clone(self.life()) }), false))
    }

    fn life(&self) -> &Arc<Life> {
        &self.inner.life
    }
}

/// A leader that waits for a call.
pub(super) struct Accepting {
    port: Arc<Opened>,
    life: Arc<Life>,
}

impl Accepting {
    /// The way to one that has called.
    pub(super) fn step<N: Net>(&self, port: &mut Port<'_, N>) -> Option<Result<Bridge, Error>> {
        let life = Arc::clone(&self.life);
        if life.is_revoked() {
            return Some(Err(Error::Revoked));
        }
        let Some((with, mailbox)) = self.port.answer() else {
            port.ft.expect();
            return None;
        };
        Some(Ok(Bridge::Line(Line { mailbox, with, life })))
    }
}

impl<N: Net> InterComm<N> {
    /// Frees it at all of both groups, once all have called this: then nothing of it is under way
    /// anywhere. Collective over both; blocks. It is let go of also when there is an error.
    ///
    /// # Errors
    /// [`Error::InUse`]: a clone, a request or a held message is left. A process is down.
    pub fn disconnect(self) -> Result<(), Error> {
        self.idisconnect()?.wait().map(drop)
    }

    /// The same, without blocking.
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
