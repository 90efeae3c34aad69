//! The sends and receives of a state machine.

use tagmatch::Buffer;

use super::channel::Channel;
use crate::error::Error;
use crate::ft::Service;
use crate::net::{Mode, Net, ProcessId};

/// A message of up to this many bytes is sent as a copy, and its send has no end to wait for.
pub(crate) const INJECT_MAX: usize = 4096;

enum MachineTransfer<N: Net> {
    Send(N::Send),
    Receive(N::Receive),
}

/// The sends and receives that one machine has under way.
pub(crate) struct Operations<N: Net>(Vec<Option<MachineTransfer<N>>>);

impl<N: Net> Default for Operations<N> {
    fn default() -> Self {
        Operations(Vec::new())
    }
}

/// Names a send or receive of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(usize);

/// The result of a machine's send or receive.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The received bytes; for a send, the memory that it was given.
    pub(crate) data: Buffer,
    /// The length of a received message in bytes, even if the buffer was shorter. 0 for a send.
    pub(crate) length: u64,
    /// Whether the received message is marked: its sender knew of a failure.
    pub(crate) marked: bool,
}

/// The access of a machine to the transport and to the service for failures, during one step.
pub(crate) struct MachineIo<'a, N: Net> {
    pub(crate) net: &'a mut N,
    pub(crate) ft: &'a mut Service<N>,
    pub(crate) operations: &'a mut Operations<N>,
}

impl<N: Net> MachineIo<'_, N> {
    /// Sends to a member. Returns `None` if the send is complete. `marked`: this process knows of a
    /// failure.
    ///
    /// # Errors
    /// The communicator has no such rank, or is revoked; the process is down. If the transport
    /// refuses a short message for another reason, this process also leaves its job: the member
    /// would wait for it for ever.
    pub(crate) fn send(
        &mut self,
        channel: &Channel,
        to: u32,
        data: &[u8],
        marked: bool,
    ) -> Result<Option<Handle>, Error> {
        if data.len() > INJECT_MAX {
            return self.send_buffer(channel, to, Buffer::from(data.to_vec()), marked).map(Some);
        }
        channel.check()?;
        let (process, tag) = channel.destination(to, marked)?;
        self.note_send(channel, process);
        let sent = self.net.inject(process, tag, data);
        sent.map(|()| None).map_err(|error| {
            self.ft.note_unsent(self.net, process, &error);
            channel.error(error)
        })
    }

    /// Sends this memory to a member, without a copy. [`test`](Self::test) gives it back at the
    /// end.
    ///
    /// # Errors
    /// The communicator has no such rank, or is revoked.
    pub(crate) fn send_buffer(
        &mut self,
        channel: &Channel,
        to: u32,
        data: Buffer,
        marked: bool,
    ) -> Result<Handle, Error> {
        channel.check()?;
        let (process, tag) = channel.destination(to, marked)?;
        self.note_send(channel, process);
        let send = self.net.send(process, tag, data, Mode::Standard);
        Ok(self.keep(MachineTransfer::Send(send)))
    }

    /// To be called before each message to a process.
    fn note_send(&mut self, channel: &Channel, process: ProcessId) {
        match &channel.life {
            Some(life) => self.ft.note_send(self.net, life, process),
            None => self.ft.greet(self.net, process),
        }
    }

    /// Receives up to `room` bytes from a member.
    ///
    /// # Errors
    /// The communicator has no such rank, or is revoked.
    pub(crate) fn receive(
        &mut self,
        channel: &Channel,
        from: u32,
        room: usize,
    ) -> Result<Handle, Error> {
        self.receive_into(channel, from, Buffer::zeroed(room))
    }

    /// Receives from a member into this memory, up to its length. [`test`](Self::test) gives it
    /// back at the end.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub(crate) fn receive_into(
        &mut self,
        channel: &Channel,
        from: u32,
        room: Buffer,
    ) -> Result<Handle, Error> {
        channel.check()?;
        let pattern = channel.pattern(from)?;
        if let Some(from) = pattern.from {
            self.ft.greet(self.net, from);
        }
        let receive = if channel.tags_name_senders() {
            self.net.receive_by_tag(pattern, room)
        } else {
            self.net.receive(pattern, room)
        };
        Ok(self.keep(MachineTransfer::Receive(receive)))
    }

    /// Asks to cancel a receive. It still ends, and must be tested until then.
    pub(crate) fn cancel(&mut self, handle: Handle) {
        if let Some(Some(MachineTransfer::Receive(receive))) = self.operations.0.get_mut(handle.0) {
            self.net.cancel(receive);
        }
    }

    /// The result of a send or receive, once, if it has ended.
    ///
    /// # Errors
    /// The process that the operation depends on is down, or the transport failed, or the
    /// communicator is revoked.
    pub(crate) fn test(
        &mut self,
        channel: &Channel,
        handle: Handle,
    ) -> Option<Result<Ended, Error>> {
        let slot = self.operations.0.get_mut(handle.0);
        let Some(slot) = slot.filter(|slot| slot.is_some()) else {
            return Some(Err(Error::AlreadyTaken));
        };
        let mut sender = None;
        let ended = match slot.as_mut()? {
            MachineTransfer::Send(send) => self
                .net
                .test_send(send)
                .map(|ended| ended.map(|buffer| Ended { data: buffer, length: 0, marked: false })),
            MachineTransfer::Receive(receive) => self.net.test_receive(receive).map(|ended| {
                ended.map(|arrived| {
                    let marked = channel.is_marked(arrived.envelope.tag);
                    let length = arrived.envelope.length;
                    sender = arrived.envelope.from;
                    Ended { data: arrived.buffer, length, marked }
                })
            }),
        };
        if ended.is_none() && channel.is_revoked() {
            // Dropping a receive cancels it.
            *slot = None;
            return Some(Err(Error::Revoked));
        }
        let ended = ended?;
        *slot = None;
        if let Some(Err(error)) = sender.map(|from| self.ft.compare(self.net, Some(from))) {
            return Some(Err(error));
        }
        Some(ended.map_err(|failed| channel.error(failed.error)))
    }

    fn keep(&mut self, operation: MachineTransfer<N>) -> Handle {
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
