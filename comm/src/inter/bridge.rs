//! How the leaders of two groups speak to each other.

use std::sync::Arc;

use crate::driver::{Channel, Handle, Port};
use crate::error::Error;
use crate::ft::Life;
use crate::mailbox::Opened;
use crate::net::{Net, ProcessId};

/// The way to the leader of the other group.
#[derive(Debug)]
pub(super) enum Bridge {
    /// It has this rank in a communicator of both leaders.
    Peer { channel: Channel, to: u32 },
    /// They have met at a port, or are about to.
    Line(Line),
}

#[derive(Debug)]
pub(super) struct Line {
    pub(super) mailbox: Opened,
    pub(super) with: ProcessId,
    /// Of the communicator whose revocation ends the wait.
    pub(super) life: Arc<Life>,
}

impl Bridge {
    /// The other leader.
    pub(super) fn process(&self) -> Option<ProcessId> {
        match self {
            Bridge::Peer { channel, to } => channel.group.process(*to),
            Bridge::Line(line) => Some(line.with),
        }
    }

    /// Whether the other leader may have heard what was said.
    pub(super) fn is_answered(&self) -> bool {
        match self {
            Bridge::Peer { .. } => true,
            Bridge::Line(line) => line.mailbox.is_answered(),
        }
    }
}

impl Line {
    /// The next message of the other leader. [`Error::Port`]: there will be none, since it has no such port, or has
    /// given up.
    fn listen<N: Net>(&self, port: &mut Port<'_, N>) -> Option<Result<Vec<u8>, Error>> {
        if self.life.is_revoked() {
            return Some(Err(Error::Revoked));
        }
        let mut next = self.mailbox.listen();
        if next.is_none() && port.net.is_down(self.with) {
            // Its last words may have come.
            port.ft.look(port.net);
            next = self.mailbox.listen();
            if next.is_none() {
                return Some(Err(Error::ProcessFailed { rank: None }));
            }
        }
        if next.is_none() {
            port.ft.expect();
        }
        Some(next?.map_err(|_| Error::Port))
    }
}

/// A message in each direction. Both sides go through it to the end, whatever they have to say: so the next one's
/// messages are its own.
pub(super) enum Swap {
    Peer(PeerSwap),
    Line,
}

impl Swap {
    /// Between peers the message is a head of so many bytes, and what belongs to it; `rest` says how many bytes
    /// those are.
    pub(super) fn begin<N: Net>(
        port: &mut Port<'_, N>,
        bridge: &Bridge,
        data: &[u8],
        head: usize,
        rest: fn(&[u8]) -> usize,
    ) -> Self {
        match bridge {
            Bridge::Peer { channel, to } => {
                Swap::Peer(PeerSwap::begin(port, (channel, *to), data, head, rest))
            }
            Bridge::Line(line) => {
                line.mailbox.say(data);
                Swap::Line
            }
        }
    }

    /// What the other one has said.
    pub(super) fn step<N: Net>(
        &mut self,
        port: &mut Port<'_, N>,
        bridge: &Bridge,
    ) -> Option<Result<Vec<u8>, Error>> {
        match (self, bridge) {
            (Swap::Peer(swap), Bridge::Peer { channel, to }) => swap.step(port, (channel, *to)),
            (Swap::Line, Bridge::Line(line)) => line.listen(port),
            _ => Some(Err(Error::Leader)),
        }
    }
}

/// The other leader's rank in a channel of both.
type Peer<'a> = (&'a Channel, u32);

pub(super) struct PeerSwap {
    sending: Vec<Handle>,
    receiving: Option<Handle>,
    received: Result<Vec<u8>, Error>,
    /// How many bytes belong to a head; `None`: it was asked.
    rest: Option<fn(&[u8]) -> usize>,
}

impl PeerSwap {
    fn begin<N: Net>(
        port: &mut Port<'_, N>,
        peer: Peer<'_>,
        data: &[u8],
        head: usize,
        rest: fn(&[u8]) -> usize,
    ) -> Self {
        let received = Ok(Vec::new());
        let mut swap =
            PeerSwap { sending: Vec::new(), receiving: None, received, rest: Some(rest) };
        swap.receive(port, peer, head);
        let (head, rest) = data.split_at(head.min(data.len()));
        swap.send(port, peer, head);
        if !rest.is_empty() {
            swap.send(port, peer, rest);
        }
        swap
    }

    fn receive<N: Net>(&mut self, port: &mut Port<'_, N>, (channel, to): Peer<'_>, room: usize) {
        match port.receive(channel, to, room) {
            Ok(handle) => self.receiving = Some(handle),
            Err(error) => self.received = Err(error),
        }
    }

    fn send<N: Net>(&mut self, port: &mut Port<'_, N>, (channel, to): Peer<'_>, data: &[u8]) {
        match port.send(channel, to, data, false) {
            Ok(handle) => self.sending.extend(handle),
            Err(error) => self.received = Err(error),
        }
    }

    fn step<N: Net>(
        &mut self,
        port: &mut Port<'_, N>,
        (channel, to): Peer<'_>,
    ) -> Option<Result<Vec<u8>, Error>> {
        while let Some(handle) = self.sending.last() {
            if let Err(error) = port.test(channel, *handle)? {
                self.received = Err(error);
            }
            self.sending.pop();
        }
        while let Some(handle) = self.receiving {
            let ended = port.test(channel, handle)?;
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
                self.receive(port, (channel, to), rest);
            }
        }
        Some(self.received.clone())
    }
}
