//! Messages that a worker sends to itself: a queue in memory.

use std::collections::VecDeque;

use tagmatch_device::{Outgoing, Refused};

/// Most messages in the queue.
const MESSAGES_MAX: usize = 256;

/// The queue of messages to oneself.
#[derive(Default)]
pub(super) struct Oneself {
    waiting: VecDeque<(Vec<u8>, Option<u32>)>,
    /// The message that was taken last, which an event borrows.
    taken: Vec<u8>,
}

impl Oneself {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn send(&mut self, message: Outgoing<'_>) -> Result<(), Refused> {
        if self.waiting.len() >= MESSAGES_MAX {
            return Err(Refused::Full);
        }
        let bytes = [message.header, message.payload].concat();
        self.waiting.push_back((bytes, message.immediate));
        Ok(())
    }

    /// Takes the next message. Its bytes stay valid until the next call.
    pub(super) fn take(&mut self) -> Option<(&[u8], Option<u32>)> {
        let (bytes, immediate) = self.waiting.pop_front()?;
        self.taken = bytes;
        Some((&self.taken, immediate))
    }
}
