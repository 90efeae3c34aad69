//! Groups that have no communicator in common, of one job or of two, meet by the name of a port.
//!
//! A port is a context outside of any mask, at one process: the leader of the group that accepts. The leader
//! of the other one opens a port as well, for the answers, and says so in a *call*. From there on both swap
//! cards as leaders do who have a communicator.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::comm::Comm;
use crate::error::Error;
use crate::ft::Life;
use crate::group::Group;
use crate::ids::{ContextId, IdLayout};
use crate::net::{Net, Pattern, ProcessName};
use crate::port::{Abroad, Channel, Handle, Port, unpackable};
use crate::runtime::{Runtime, Shared};
use tagmatch::TagMask;

use super::InterComm;
use super::bridge::Bridge;
use super::create::{Begun, InterRequest, Uniformity};

/// Bytes of a call: the number of the caller's port.
const CALL_BYTES: usize = 4;

/// Numbers of the ports that this process has open.
#[derive(Debug, Default)]
pub(crate) struct Ports(Mutex<BTreeSet<u32>>);

impl Ports {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them.
#[derive(Debug)]
pub(super) struct Number {
    number: u32,
    context: ContextId,
    ports: Arc<Ports>,
}

impl Number {
    /// The lowest that is free.
    fn open(ports: &Arc<Ports>, ids: IdLayout) -> Result<Self, Error> {
        let mut open = ports.lock();
        let number = (0..).find(|number| !open.contains(number)).unwrap_or(u32::MAX);
        let context = ids.dynamic(number).map_err(|_| Error::Exhausted { ids: ids.ids() })?;
        open.insert(number);
        Ok(Number { number, context, ports: Arc::clone(ports) })
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.ports.lock().remove(&self.number);
    }
}

/// A port's name, as one process can tell another by whatever means: its text is `name:number`, the
/// process's name in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortName {
    process: ProcessName,
    number: u32,
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

/// A port at which this process accepts. Dropping it closes it.
#[derive(Debug)]
pub struct OpenPort {
    name: PortName,
    number: Arc<Number>,
}

impl OpenPort {
    /// Its name.
    pub fn name(&self) -> PortName {
        self.name
    }
}

impl<N: Net> Runtime<N> {
    /// Opens a port.
    ///
    /// # Errors
    /// [`Error::Exhausted`]: as many are open as there are ids outside of masks. [`Error::Port`]: the transport
    /// has no name for this process.
    pub fn open_port(&self) -> Result<OpenPort, Error> {
        let Runtime(shared) = self;
        let number = Arc::new(Number::open(&shared.ports, shared.ids)?);
        let net = &shared.lock().net;
        let process = net.name(net.own()).ok_or(Error::Port)?;
        Ok(OpenPort { name: PortName { process, number: number.number }, number })
    }
}

impl<N: Net> Comm<N> {
    /// An intercommunicator of this communicator's group and one that [connects](Self::connect) to the port,
    /// which `leader`, the same rank at all members, has opened and gives. Collective; blocks until there is a
    /// group that connects. Of several, the one that called first is the next; if it has died since, that
    /// is the result. The group may be of another job, whose layouts of ids and tags are the same.
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
        let accepts = port.map(|port| {
            let Shared { tags, planted, .. } = *self.shared;
            let life = Some(Arc::clone(self.life()));
            let group = Arc::new(Group::new(self.group().process(self.rank())));
            let context = port.number.context;
            let channel = Channel {
                group,
                own: 0,
                context,
                tag: call(tags),
                tags,
                planted,
                life,
                abroad: None,
                turn: None,
            };
            Accepting { port: Arc::clone(&port.number), channel, call: None }
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
        let Shared { ids, tags, planted, ref ports, .. } = *self.shared;
        let theirs = ids.dynamic(name.number).map_err(|_| Error::Port)?;
        let own = self.group().process(self.rank()).ok_or(Error::Group)?;
        let process = self.shared.lock().net.admit(&name.process);
        let process = process.ok().filter(|process| *process != own).ok_or(Error::Port)?;
        let port = Arc::new(Number::open(ports, ids)?);
        let group = Arc::new(Group::new([process, own]));
        let abroad = Some(Abroad { ranks: 0..1, context: theirs });
        let life = Some(Arc::clone(self.life()));
        let channel = Channel {
            group,
            own: 1,
            context: port.context,
            tag: 0,
            tags,
            planted,
            life,
            abroad,
            turn: None,
        };
        let calls = Some((call(tags), port.number.to_le_bytes()));
        Ok((Bridge { channel, to: 0, calls, _port: Some(port) }, false))
    }

    fn life(&self) -> &Arc<Life> {
        &self.inner.life
    }
}

/// The tag of calls.
fn call(tags: tagmatch::TagLayout) -> u32 {
    1 << (tags.tag_bits() - 2)
}

/// A leader that waits for a call.
pub(super) struct Accepting {
    port: Arc<Number>,
    /// Of this process and, once there is a call, the caller.
    channel: Channel,
    call: Option<Handle>,
}

impl Accepting {
    /// The way to one that has called.
    pub(super) fn step<N: Net>(
        &mut self,
        port: &mut Port<'_, N>,
        ids: IdLayout,
    ) -> Option<Result<Bridge, Error>> {
        if self.channel.is_revoked() {
            return Some(Err(Error::Revoked));
        }
        if self.call.is_none() {
            match self.listen(port)? {
                Ok(call) => self.call = Some(call),
                Err(error) => return Some(Err(error)),
            }
        }
        let call = port.test(&self.channel, self.call?)?;
        self.call = None;
        // One that can't be, or whose sender has died, is as if it were not there.
        let ended = call.ok()?;
        let number = <[u8; CALL_BYTES]>::try_from(&ended.data[..]).ok();
        let number = number.filter(|_| ended.length == CALL_BYTES as u64)?;
        let context = ids.dynamic(u32::from_le_bytes(number)).ok()?;
        let abroad = Some(Abroad { ranks: 1..2, context });
        let channel = Channel { tag: 0, abroad, ..self.channel.clone() };
        Some(Ok(Bridge { channel, to: 1, calls: None, _port: Some(Arc::clone(&self.port)) }))
    }

    /// Looks whether one calls, and takes the call.
    fn listen<N: Net>(&mut self, port: &mut Port<'_, N>) -> Option<Result<Handle, Error>> {
        let Channel { context, tag, tags, .. } = self.channel;
        let tag = match tags.pack(context.bits().into(), 1, tag.into()) {
            Ok(tag) => tag,
            Err(error) => return Some(Err(unpackable(error))),
        };
        let pattern = Pattern { tag, mask: TagMask::EXACT, from: None };
        let own = self.channel.group.process(0);
        let Some(from) = port.net.probe(pattern)?.from.filter(|from| own != Some(*from)) else {
            // Of someone who can't be answered.
            drop(port.net.matched_probe(pattern));
            return None;
        };
        self.channel.group = Arc::new(Group::new(own.into_iter().chain([from])));
        Some(port.receive(&self.channel, 1, CALL_BYTES))
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
