//! How the leaders of two groups communicate.

use std::sync::Arc;

use crate::driver::{Channel, Handle, MachineIo};
use crate::error::Error;
use crate::ft::Life;
use crate::mailbox::Opened;
use crate::net::{Net, ProcessId};

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
        let mut next = self.mailbox.listen();
        if next.is_none() && io.net.is_down(self.with) {
            // Its last messages may have arrived.
            io.ft.look(io.net);
            next = self.mailbox.listen();
            if next.is_none() {
                return Some(Err(Error::ProcessFailed { rank: None }));
            }
        }
        if next.is_none() {
            io.ft.expect();
        }
        Some(next?.map_err(|_| Error::Port))
    }
}

/// One message in each direction. Both sides carry it out to the end, even after a failure. So no
/// message of it is left for the next exchange.
pub(super) enum LeaderSwap {
    Peer(PeerSwap),
    Line,
}

impl LeaderSwap {
    /// Starts the exchange. In a communicator, a message is a head of `head` bytes and a rest.
    /// `rest` computes the length of the rest from the head.
    pub(super) fn begin<N: Net>(
        io: &mut MachineIo<'_, N>,
        link: &LeaderLink,
        data: &[u8],
        head: usize,
        rest: fn(&[u8]) -> usize,
    ) -> Self {
        match link {
            LeaderLink::Peer { channel, to } => {
                LeaderSwap::Peer(PeerSwap::begin(io, (channel, *to), data, head, rest))
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
                swap.step(io, (channel, *to))
            }
            (LeaderSwap::Line, LeaderLink::Line(line)) => line.listen(io),
            _ => Some(Err(Error::Leader)),
        }
    }
}

/// A channel of both leaders, and the rank of the other leader in it.
type Peer<'a> = (&'a Channel, u32);

pub(super) struct PeerSwap {
    sending: Vec<Handle>,
    receiving: Option<Handle>,
    received: Result<Vec<u8>, Error>,
    /// Computes the length of the rest from the head; `None` once the head was received.
    rest: Option<fn(&[u8]) -> usize>,
}

impl PeerSwap {
    fn begin<N: Net>(
        io: &mut MachineIo<'_, N>,
        peer: Peer<'_>,
        data: &[u8],
        head: usize,
        rest: fn(&[u8]) -> usize,
    ) -> Self {
        let received = Ok(Vec::new());
        let mut swap =
            PeerSwap { sending: Vec::new(), receiving: None, received, rest: Some(rest) };
        swap.receive(io, peer, head);
        let (head, rest) = data.split_at(head.min(data.len()));
        swap.send(io, peer, head);
        if !rest.is_empty() {
            swap.send(io, peer, rest);
        }
        swap
    }

    fn receive<N: Net>(&mut self, io: &mut MachineIo<'_, N>, (channel, to): Peer<'_>, room: usize) {
        match io.receive(channel, to, room) {
            Ok(handle) => self.receiving = Some(handle),
            Err(error) => self.received = Err(error),
        }
    }

    fn send<N: Net>(&mut self, io: &mut MachineIo<'_, N>, (channel, to): Peer<'_>, data: &[u8]) {
        match io.send(channel, to, data, false) {
            Ok(handle) => self.sending.extend(handle),
            Err(error) => self.received = Err(error),
        }
    }

    fn step<N: Net>(
        &mut self,
        io: &mut MachineIo<'_, N>,
        (channel, to): Peer<'_>,
    ) -> Option<Result<Vec<u8>, Error>> {
        while let Some(handle) = self.sending.last() {
            if let Err(error) = io.test(channel, *handle)? {
                self.received = Err(error);
            }
            self.sending.pop();
        }
        while let Some(handle) = self.receiving {
            let ended = io.test(channel, handle)?;
            self.receiving = None;
            let part = ended.and_then(|ended| {
                let (length, due) = (ended.length, ended.data.len());
                let fits = usize::try_from(length).ok().and_then(|length| ended.data.get(..length));
                fits.map(<[u8]>::to_vec).ok_or(Error::Mismatch { rank: to, length, due })
            });
            let rest =
                self.rest.take().zip(part.as_ref().ok()).map_or(0, |(rest, head)| rest(head));
            match (&mut self.received, part) {
                (Ok(received), Ok(part)) => received.extend(part),
                (Ok(_), Err(error)) => self.received = Err(error),
                (Err(_), _) => {}
            }
            if rest > 0 {
                self.receive(io, (channel, to), rest);
            }
        }
        Some(self.received.clone())
    }
}
