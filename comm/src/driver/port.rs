//! How a machine sends and receives.

use tagmatch::Buffer;

use crate::error::Error;
use crate::ft::Service;
use crate::net::{Mode, Net};

use super::channel::Channel;

/// Up to this many bytes a message is sent as a copy, with nothing to wait for.
pub(crate) const INJECT_MAX: usize = 4096;

enum Operation<N: Net> {
    Send(N::Send),
    Receive(N::Receive),
}

/// The operations that one machine has under way.
pub(crate) struct Operations<N: Net>(Vec<Option<Operation<N>>>);

impl<N: Net> Default for Operations<N> {
    fn default() -> Self {
        Operations(Vec::new())
    }
}

/// Names an operation of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(usize);

/// How a machine's operation has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The received bytes; for a send, the memory that it was given.
    pub(crate) data: Vec<u8>,
    /// The message's length in bytes, also if there was room for fewer.
    pub(crate) length: u64,
    /// Whether the sender knew of a failure.
    pub(crate) marked: bool,
}

/// The transport, as a machine sees it in a step.
pub(crate) struct Port<'a, N: Net> {
    pub(crate) net: &'a mut N,
    pub(crate) ft: &'a mut Service<N>,
    pub(crate) operations: &'a mut Operations<N>,
}

impl<N: Net> Port<'_, N> {
    /// Sends to a member. `None`: there is nothing to wait for. `marked`: this process knows of a failure.
    ///
    /// # Errors
    /// There is no such rank, or it is down, or the communicator is revoked.
    pub(crate) fn send(
        &mut self,
        channel: &Channel,
        to: u32,
        data: &[u8],
        marked: bool,
    ) -> Result<Option<Handle>, Error> {
        if data.len() > INJECT_MAX {
            return self.send_vec(channel, to, data.to_vec(), marked).map(Some);
        }
        channel.check()?;
        let (process, tag) = channel.destination(to, marked)?;
        let sent = self.net.inject(process, tag, data);
        sent.map(|()| None).map_err(|error| channel.error(error))
    }

    /// Sends this memory to a member, without a copy. The [end](Self::test) gives it back.
    ///
    /// # Errors
    /// There is no such rank, or the communicator is revoked.
    pub(crate) fn send_vec(
        &mut self,
        channel: &Channel,
        to: u32,
        data: Vec<u8>,
        marked: bool,
    ) -> Result<Handle, Error> {
        channel.check()?;
        let (process, tag) = channel.destination(to, marked)?;
        let send = self.net.send(process, tag, Buffer::from(data), Mode::Standard);
        Ok(self.keep(Operation::Send(send)))
    }

    /// Receives up to `room` bytes from a member.
    ///
    /// # Errors
    /// There is no such rank, or the communicator is revoked.
    pub(crate) fn receive(
        &mut self,
        channel: &Channel,
        from: u32,
        room: usize,
    ) -> Result<Handle, Error> {
        self.receive_vec(channel, from, vec![0; room])
    }

    /// Receives from a member into this memory, up to its length. The [end](Self::test) gives it back.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub(crate) fn receive_vec(
        &mut self,
        channel: &Channel,
        from: u32,
        room: Vec<u8>,
    ) -> Result<Handle, Error> {
        channel.check()?;
        let (pattern, room) = (channel.pattern(from)?, Buffer::from(room));
        let receive = if channel.tags_name_senders() {
            self.net.receive_by_tag(pattern, room)
        } else {
            self.net.receive(pattern, room)
        };
        Ok(self.keep(Operation::Receive(receive)))
    }

    /// Asks to cancel a receive. It still has an end.
    pub(crate) fn cancel(&mut self, handle: Handle) {
        if let Some(Some(Operation::Receive(receive))) = self.operations.0.get_mut(handle.0) {
            self.net.cancel(receive);
        }
    }

    /// The end of an operation, once.
    ///
    /// # Errors
    /// The process that the operation depends on is down, or the transport failed, or the communicator is revoked.
    pub(crate) fn test(
        &mut self,
        channel: &Channel,
        handle: Handle,
    ) -> Option<Result<Ended, Error>> {
        let slot = self.operations.0.get_mut(handle.0);
        let Some(slot) = slot.filter(|slot| slot.is_some()) else {
            return Some(Err(Error::AlreadyTaken));
        };
        let ended = match slot.as_mut()? {
            Operation::Send(send) => self.net.test_send(send).map(|ended| {
                ended.map(|buffer| Ended { data: buffer.into_vec(), length: 0, marked: false })
            }),
            Operation::Receive(receive) => self.net.test_receive(receive).map(|ended| {
                ended.map(|arrived| {
                    let marked = channel.is_marked(arrived.envelope.tag);
                    let length = arrived.envelope.length;
                    Ended { data: arrived.buffer.into_vec(), length, marked }
                })
            }),
        };
        if ended.is_none() && channel.is_revoked() {
            // A receive that is dropped is cancelled.
            *slot = None;
            return Some(Err(Error::Revoked));
        }
        let ended = ended?;
        *slot = None;
        Some(ended.map_err(|failed| channel.error(failed.error)))
    }

    fn keep(&mut self, operation: Operation<N>) -> Handle {
        let slots = &mut self.operations.0;
        let free = slots.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            slots.push(None);
            slots.len() - 1
        });
        slots[at] = Some(operation);
        Handle(at)
    }
}
