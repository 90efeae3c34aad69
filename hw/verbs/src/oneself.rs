//! Messages to oneself.

use std::collections::VecDeque;

use tagmatch_device::{Outgoing, Refused};

/// Most messages to oneself that wait.
const MESSAGES_MAX: usize = 256;

/// Messages to oneself, as they wait to be taken.
#[derive(Default)]
pub(super) struct Oneself {
    waiting: VecDeque<(Vec<u8>, Option<u32>)>,
    /// What was taken last, as long as it is looked at.
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
        let mut bytes = Vec::with_capacity(message.header.len() + message.payload.len());
        bytes.extend_from_slice(message.header);
        bytes.extend_from_slice(message.payload);
        self.waiting.push_back((bytes, message.immediate));
        Ok(())
    }

    /// The next message, which stays until the next call.
    pub(super) fn take(&mut self) -> Option<(&[u8], Option<u32>)> {
        let (bytes, immediate) = self.waiting.pop_front()?;
        self.taken = bytes;
        Some((&self.taken, immediate))
    }
}
