//! How the leaders of two groups speak to each other.

use std::sync::Arc;

use crate::error::Error;
use crate::net::Net;
use crate::port::{Channel, Handle, Port};

use super::connect::Number;

/// The way to the leader of the other group.
#[derive(Clone, Debug)]
pub(super) struct Bridge {
    pub(super) channel: Channel,
    /// Its rank there.
    pub(super) to: u32,
    /// Tag and bytes of what tells it that there is someone.
    pub(super) calls: Option<(u32, [u8; 4])>,
    /// Open as long as there are answers to come.
    pub(super) _port: Option<Arc<Number>>,
}

impl Bridge {
    /// Tells the other one, if it doesn't know, that there is someone.
    pub(super) fn call<N: Net>(&self, port: &mut Port<'_, N>) {
        if let Some((tag, call)) = &self.calls {
            let calling = Channel { tag: *tag, ..self.channel.clone() };
            // Whatever keeps it from arriving keeps the next message from it, too.
            let _ = port.send(&calling, self.to, call, false);
        }
    }
}

/// A head in each direction, of the same length, and what belongs to it, if there is anything. Both sides go
/// through it to the end, whatever they have to say: so the next one's messages are its own.
pub(super) struct Swap {
    sending: Vec<Handle>,
    receiving: Option<Handle>,
    received: Result<Vec<u8>, Error>,
    /// How many bytes belong to a head; `None`: it was asked.
    rest: Option<fn(&[u8]) -> usize>,
}

impl Swap {
    pub(super) fn begin<N: Net>(
        port: &mut Port<'_, N>,
        bridge: &Bridge,
        data: &[u8],
        head: usize,
        rest: fn(&[u8]) -> usize,
    ) -> Self {
        let received = Ok(Vec::new());
        let mut swap = Swap { sending: Vec::new(), receiving: None, received, rest: Some(rest) };
        swap.receive(port, bridge, head);
        let (head, rest) = data.split_at(head.min(data.len()));
        swap.send(port, bridge, head);
        if !rest.is_empty() {
            swap.send(port, bridge, rest);
        }
        swap
    }

    fn receive<N: Net>(&mut self, port: &mut Port<'_, N>, bridge: &Bridge, room: usize) {
        match port.receive(&bridge.channel, bridge.to, room) {
            Ok(handle) => self.receiving = Some(handle),
            Err(error) => self.received = Err(error),
        }
    }

    fn send<N: Net>(&mut self, port: &mut Port<'_, N>, bridge: &Bridge, data: &[u8]) {
        match port.send(&bridge.channel, bridge.to, data, false) {
            Ok(handle) => self.sending.extend(handle),
            Err(error) => self.received = Err(error),
        }
    }

    /// What the other one has said.
    pub(super) fn step<N: Net>(
        &mut self,
        port: &mut Port<'_, N>,
        bridge: &Bridge,
    ) -> Option<Result<Vec<u8>, Error>> {
        let Bridge { channel, to, .. } = bridge;
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
                fits.map(<[u8]>::to_vec).ok_or(Error::Mismatch { rank: *to, length, due })
            });
            let rest =
                self.rest.take().zip(part.as_ref().ok()).map_or(0, |(rest, head)| rest(head));
            match (&mut self.received, part) {
                (Ok(received), Ok(part)) => received.extend(part),
                (Ok(_), Err(error)) => self.received = Err(error),
                (Err(_), _) => {}
            }
            if rest > 0 {
                self.receive(port, bridge, rest);
            }
        }
        Some(self.received.clone())
    }
}
