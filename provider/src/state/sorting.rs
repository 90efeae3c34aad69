//! Untagged messages that the provider matches, in place of the worker.
//!
//! A worker matches whole receives. It can't put the next part of a multi-receive buffer before
//! receives that were posted after the buffer, so these wait until the buffer is used up (see
//! `multi`). If the buffer takes the messages of one source only, or one of the receives behind it
//! does, such a wait might never end: messages of other sources are for the receives behind it.
//!
//! So while a receive that waits names its source, the worker has no receive of untagged messages.
//! Its unexpected messages are taken out in the order in which they came, and each goes to the
//! first receive that takes it. Those that no receive takes stay here, as strays, for later
//! receives.

use tagmatch::{Match, Message};
use tagmatch_device::slab::Key;
use tagmatch_ofi_provider::UNTAGGED;

use super::endpoint::{Endpoint, Sinks};
use super::operation::Receive;
use super::pending::Pending;
use crate::errno;
use crate::memory::buffer;

/// Most messages that are taken from the worker at one time.
const PORTION: usize = 64;

impl Endpoint {
    /// Gives messages to the receives that take them, and ends receives whose source is down. Gives
    /// whether there was any.
    #[cold]
    pub(crate) fn sort(&mut self, sinks: &mut Sinks<'_>) -> bool {
        for _ in 0..PORTION {
            if self.directed == 0 {
                break;
            }
            match self.worker.mprobe(Match::tag(UNTAGGED)) {
                Ok(Some(message)) => self.strays.push_back(message),
                Ok(None) | Err(_) => break,
            }
        }
        let has_begun = self.match_strays(sinks);
        has_begun | self.end_orphans(sinks)
    }

    fn match_strays(&mut self, sinks: &mut Sinks<'_>) -> bool {
        let mut has_begun = false;
        while let Some(stray) = self.strays.get(self.unwanted) {
            let sender = stray.status().source;
            let takes = |pending: &Pending| pending.source().is_none_or(|source| source == sender);
            let Some(index) = self.pending.iter().position(takes) else {
                self.unwanted += 1;
                continue;
            };
            // A message is on its way into this buffer, and its length is known when it has
            // arrived. If the buffer has room left then, it takes the next message of the sender.
            if self.pending[index].is_posted() {
                break;
            }
            let Ok(key) = self.vacant() else { break };
            if let Some(message) = self.strays.remove(self.unwanted) {
                self.give(sinks, index, key, message);
                has_begun = true;
            }
        }
        has_begun
    }

    /// Gives a message to a receive that waits.
    fn give(&mut self, sinks: &mut Sinks<'_>, index: usize, key: Key, message: Message) {
        if let Some(Pending::Multi { rest, receive, is_posted, .. }) = self.pending.get_mut(index) {
            *is_posted = true;
            let part = Receive { start: rest.start(), room: rest.len(), ..*receive };
            let posted = message.recv_queued(buffer(*rest), key.to_bits());
            if !self.begun(sinks, key, part, posted) {
                self.remove_pending(index);
            }
        } else if let Some(Pending::Plain { buffer, receive, .. }) = self.remove_pending(index) {
            let posted = message.recv_queued(buffer, key.to_bits());
            self.begun(sinks, key, receive, posted);
        }
    }

    /// Ends the receives that name a source that is down, once they have its last message.
    fn end_orphans(&mut self, sinks: &mut Sinks<'_>) -> bool {
        let mut has_ended = false;
        let mut index = 0;
        while let Some(pending) = self.pending.get(index) {
            let source = pending.source().filter(|_| !pending.is_posted());
            let is_stray = |message: &Message| Some(message.status().source) == source;
            let fault = source
                .filter(|peer| matches!(self.worker.peer_fault(*peer), Ok(Some(_))))
                .filter(|_| !self.strays.iter().any(is_stray))
                .and_then(|peer| self.worker.probe(Match::tag(UNTAGGED).from(peer)).err());
            let Some(error) = fault else {
                index += 1;
                continue;
            };
            if let Some(pending) = self.remove_pending(index) {
                self.fail(sinks, pending.receive(), errno::of_error(&error));
                has_ended = true;
            }
        }
        has_ended
    }
}
