//! How the leaders of two groups communicate.

use std::sync::Arc;

use crate::driver::{Channel, Machine, MachineIo};
use crate::error::Error;
use crate::life::Life;
use crate::mailbox::Opened;
use crate::net::{Net, ProcessId};
use crate::plans::{Exchange, Placement, Plan};

/// The link to the leader of the other group.
#[derive(Debug)]
pub(super) enum LeaderLink {
    /// Both leaders are members of a communicator, in which the other one has this rank.
    Peer { channel: Channel, to: u32 },
    /// The leaders have met at a port, or are about to.
    Line(PortLine),
}

#[derive(Debug)]
pub(super) struct PortLine {
    pub(super) mailbox: Opened,
    pub(super) with: ProcessId,
    /// The communicator whose revocation ends the wait.
    pub(super) life: Arc<Life>,
}

impl LeaderLink {
    /// The process of the other leader.
    pub(super) fn process(&self) -> Option<ProcessId> {
        match self {
            LeaderLink::Peer { channel, to } => channel.group.process(*to),
            LeaderLink::Line(line) => Some(line.with),
        }
    }

    /// Whether the other leader may have received what this one has sent.
    pub(super) fn is_answered(&self) -> bool {
        match self {
            LeaderLink::Peer { .. } => true,
            LeaderLink::Line(line) => line.mailbox.is_answered(),
        }
    }
}

impl PortLine {
    /// The next message of the other leader. [`Error::Port`]: there will be none, because the other
    /// leader has no such port, or has given up.
    fn listen<N: Net>(&self, io: &mut MachineIo<'_, N>) -> Option<Result<Vec<u8>, Error>> {
        if self.life.is_revoked() {
            return Some(Err(Error::Revoked));
        }
        if let Some(error) = io.ft.unequal(self.with) {
            return Some(Err(error));
        }
        let is_down = io.net.is_down(self.with);
        if is_down {
            // Its last messages may have arrived.
            io.ft.look(io.net);
        }
        match self.mailbox.listen() {
            Some(said) => Some(said.map_err(|_| Error::Port)),
            None if is_down => Some(Err(Error::ProcessFailed { rank: None })),
            None => {
                io.ft.expect();
                None
            }
        }
    }
}

/// One message in each direction. Both sides carry it out to the end, even after a failure. So no
/// message of it is left for the next exchange.
pub(super) enum LeaderSwap {
    Peer(Box<PeerSwap>),
    Line,
}

impl LeaderSwap {
    /// Starts the exchange. In a communicator, a message is a head of `head` bytes and a rest.
    /// `rest` computes the length of the rest from the head.
    pub(super) fn begin(link: &LeaderLink, data: &[u8], head: usize, rest: RestLength) -> Self {
        match link {
            LeaderLink::Peer { channel, to } => {
                let (own, later) = data.split_at(head.min(data.len()));
                let exchange = swap(channel, *to, own, head);
                let later = Some((later.to_vec(), rest));
                LeaderSwap::Peer(Box::new(PeerSwap { exchange, later, received: Vec::new() }))
            }
            LeaderLink::Line(line) => {
                line.mailbox.say(data);
                LeaderSwap::Line
            }
        }
    }

    /// The message of the other leader.
    pub(super) fn step<N: Net>(
        &mut self,
        io: &mut MachineIo<'_, N>,
        link: &LeaderLink,
    ) -> Option<Result<Vec<u8>, Error>> {
        match (self, link) {
            (LeaderSwap::Peer(swap), LeaderLink::Peer { channel, to }) => {
                swap.step(io, channel, *to)
            }
            (LeaderSwap::Line, LeaderLink::Line(line)) => line.listen(io),
            _ => Some(Err(Error::Leader)),
        }
    }
}

/// Computes the length of a message's rest from its head.
type RestLength = fn(&[u8]) -> usize;

pub(super) struct PeerSwap {
    /// The exchange of the heads, or of the rests.
    exchange: Exchange,
    /// The rest of this leader's message, until the heads are exchanged.
    later: Option<(Vec<u8>, RestLength)>,
    /// The head of the other leader's message.
    received: Vec<u8>,
}

impl PeerSwap {
    fn step<N: Net>(
        &mut self,
        io: &mut MachineIo<'_, N>,
        channel: &Channel,
        to: u32,
    ) -> Option<Result<Vec<u8>, Error>> {
        loop {
            let ended = self.exchange.step(io)?;
            let Some((own, rest)) = self.later.take() else {
                return Some(ended.map(|rest| [&self.received[..], &rest].concat()));
            };
            let length = ended.as_ref().map_or(0, |head| rest(head));
            self.exchange = swap(channel, to, &own, length).after(ended.as_ref().err().cloned());
            self.received = ended.unwrap_or_default().into_vec();
        }
    }
}

/// Sends these bytes to the other leader, and receives `taken` bytes. Empty messages are not sent.
pub(super) fn swap(channel: &Channel, with: u32, given: &[u8], taken: usize) -> Exchange {
    let mut plan = Plan { memory: given.to_vec().into(), result: 0..taken, ..Plan::default() };
    plan.memory.resize(given.len().max(taken));
    if taken > 0 {
        plan.receive(with, 0..taken, Placement::Replace);
    }
    if !given.is_empty() {
        plan.send(with, 0..given.len());
    }
    Exchange::new(channel.clone(), plan, None)
}
