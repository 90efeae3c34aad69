//! Unexpected messages: probed, matched by a probe, received, discarded.

use tagmatch_device::PeerId;
use tagmatch_soft::{Pattern, Tag};

use crate::core::{Core, failed};
use crate::credit::Amount;
use crate::error::Fault;
use crate::request::{MessageId, Posted, Status};
use crate::slab::Slab;
use crate::store::Stored;
use crate::wire::AppCtx;

/// A message that no receive was posted for; its envelope is taken apart, for the sake of the size.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) tag: Tag,
    length: u64,
    pub(crate) source: PeerId,
    immediate: u32,
    /// With *ack wanted*: the operation that its sender waits to see ended.
    ack: AppCtx,
    has_immediate: bool,
    pub(crate) body: Body,
}

// A stranger's messages wait in as little memory as they can; and no look at one takes a second cache line.
const _: () = assert!(Slab::<Message>::SLOT_BYTES == 64);

impl Message {
    pub(crate) fn new(status: &Status, ack: AppCtx, body: Body) -> Self {
        let Status { source, tag, length, truncated: _, immediate } = *status;
        let has_immediate = immediate.is_some();
        let immediate = immediate.unwrap_or(0);
        Message { tag, length, source, immediate, ack, has_immediate, body }
    }

    pub(crate) fn status(&self) -> Status {
        Status {
            source: self.source,
            tag: self.tag,
            length: self.length,
            truncated: false,
            immediate: self.has_immediate.then_some(self.immediate),
        }
    }

    pub(crate) fn operation(&self) -> Option<AppCtx> {
        self.ack.ack_wanted().then(|| self.ack.operation())
    }
}

/// Where the bytes of an unexpected message are.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// Here.
    Stored(Stored),
    /// Still with the sender: address and key of a span that is as long as the message.
    Remote { address: u64, key: u32 },
    /// With a sender that went down.
    Lost,
}

impl Core {
    /// The envelope of the oldest waiting message that the pattern matches.
    pub(crate) fn probe(&mut self, pattern: &Pattern) -> Option<Status> {
        let handle = self.unexpected.find(pattern)?;
        let (_, _, index) = self.unexpected.get(handle)?;
        let key = self.messages.key_at(index)?;
        self.messages.get(key).map(Message::status)
    }

    /// Takes that message off the list: no other probe or receive finds it (MPI-4.1 section 3.8.2).
    pub(crate) fn matched_probe(&mut self, pattern: &Pattern) -> Option<(MessageId, Status)> {
        let index = self.unexpected.take(pattern)?;
        let key = self.messages.key_at(index)?;
        let status = self.messages.get(key)?.status();
        Some((MessageId(key), status))
    }

    /// Receives a message that a matched probe took.
    pub(crate) fn receive_message(
        &mut self,
        id: MessageId,
        buffer: tagmatch_device::Buffer,
    ) -> Posted {
        if !buffer.is_writable() {
            return failed(Fault::ReadOnlyBuffer, buffer);
        }
        match self.messages.remove(id.0) {
            Some(message) => {
                self.counters.unexpected += 1;
                self.deliver(message, buffer)
            }
            None => failed(Fault::NoSuchMessage, buffer),
        }
    }

    /// Drops a message that a matched probe took; its sender completes as if it had been received.
    pub(crate) fn discard_message(&mut self, id: MessageId) -> bool {
        let Some(message) = self.messages.remove(id.0) else {
            return false;
        };
        self.discard(message);
        true
    }

    pub(crate) fn discard(&mut self, message: Message) {
        let operation = message.operation();
        let status = message.status();
        self.counters.discarded += 1;
        match message.body {
            Body::Stored(stored) => self.drop_stored(&status, stored),
            Body::Remote { .. } => self.freed(status.source, Amount::RENDEZVOUS),
            Body::Lost => return,
        }
        self.acknowledge(status.source, operation);
    }
}
